"""The base class of tests that run the real horovodrun on this machine with small shell commands.

Usage: horovodrun_NAME_test.py PATH_OF_HOROVODRUN [unittest arguments]
"""

import os
import signal
import subprocess
import sys
import time
import unittest

HOROVODRUN = os.path.abspath(sys.argv.pop(1))
TIMEOUT = 200
os.environ.update(HOROVOD_STATE_DIR="none", NO_COLOR="1")


def start(*arguments, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    # A shell may ignore signals for its background jobs; horovodrun starts with the default actions.
    return subprocess.Popen(
        [HOROVODRUN, *arguments],
        restore_signals=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def run(*arguments, **options):
    process = start(*arguments, **options)
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def lines(output):
    return sorted(output.decode().splitlines())


def processes_with(marker):
    """Returns the living processes that have `marker` in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                has_marker = marker.encode() in environ.read()
            with open(f"/proc/{pid}/stat") as stat:
                is_zombie = stat.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if has_marker and not is_zombie and int(pid) != os.getpid():
            found.append(int(pid))
    return found


def wait_until(condition, seconds=TIMEOUT):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def read_until(process, wanted):
    """Reads complete lines of standard output until it has `wanted` of them."""
    return [process.stdout.readline() for _ in range(wanted)]


class Marked(unittest.TestCase):
    """Marks each test's processes, and fails if any of them survives."""

    def setUp(self):
        self.marker = f"HOROVODRUN_TEST={os.getpid()}.{self.id()}"
        self.environment = dict(os.environ)
        name, _, value = self.marker.partition("=")
        self.environment[name] = value

    def tearDown(self):
        self.assertTrue(
            wait_until(lambda: not processes_with(self.marker)), f"left behind: {processes_with(self.marker)}"
        )

    def run_job(self, *arguments, **options):
        return run(*arguments, env=self.environment, **options)

    def start_job(self, *arguments, **options):
        process = start(*arguments, env=self.environment, **options)
        self.addCleanup(self._end, process)
        return process

    @staticmethod
    def _end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


def main():
    unittest.main(verbosity=2)
