"""Runs each test function of a file in its own world of hosts, and starts and watches jobs there.

A test file ends with harness.main(), which runs its functions test_... one by one: all, or those named on the command
line. @world names the hosts that a test needs; a test without it runs without hosts.
"""

import inspect
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HVD_BUILD", ROOT / "build"))
LAUNCHER = BUILD / "bin" / "horovodrun"
AGENT = BUILD / "bin" / "horovod-agent"
HOSTS = ROOT / "tests" / "hosts" / "hosts"
WORKERS = ROOT / "tests" / "e2e" / "workers"
PYTHON = "/usr/bin/python3"
SKIPPED = 77
# Exit code of "hosts run" if it cannot make hosts.
NO_WORLD = 125
# Seconds in which a condition comes true also on a busy machine.
LONG = 200
# Idle seconds for an end that no lease causes: the default lease is 45 s.
PROMPT = 30

sys.path.insert(0, str(HOSTS.parent))
import faults
import host as host
from idle import idle
from sight import agents as agents
from sight import first_processes, host_of, in_world

# The functions idle and rest, for programs of ranks.
IDLE = (HOSTS.parent / "idle.py").read_text()
# Folders of the current test.
FOLDERS = []
# The test's state directory, if it exists.
STATE = []


class Failure(Exception):
    pass


class Skip(Exception):
    pass


def world(names="a b", *options):
    """Marks a test that needs these hosts; it runs as root on the launcher's machine."""

    def mark(function):
        function.world = (names, options)
        return function

    return mark


def expect(condition, words):
    if not condition:
        raise Failure(words)


def wait_until(condition, seconds, words, interval=0.02):
    """Waits until the condition returns a true value, and returns that value. Fails after this number of idle seconds,
    or after LONG."""
    began, unused = time.monotonic(), idle()
    while True:
        if result := condition():
            return result
        past = time.monotonic() - began
        if past > seconds and (idle() - unused > seconds or past > LONG):
            raise Failure(f"not within {seconds} idle s: {words() if callable(words) else words}")
        time.sleep(interval)


def interpreters(variable):
    """Returns the interpreters that a variable names and the test's hosts have: hosts lack the machine's home, where
    pyenv keeps older Pythons. Skips the test if there are none."""
    found = [name for name in os.environ.get(variable, "").split(":") if name and pathlib.Path(name).exists()]
    if not found:
        raise Skip(f"{variable} names no interpreter that is here")
    return found


def scratch(where="/tmp"):
    """Makes a folder, which is removed if the test passes."""
    FOLDERS.append(pathlib.Path(tempfile.mkdtemp(prefix="e2e-", dir=where)))
    return FOLDERS[-1]


def remove_folders():
    STATE.clear()
    while FOLDERS:
        shutil.rmtree(FOLDERS.pop(), ignore_errors=True)


def clean_environment(**more):
    """Returns the variables of a user's shell, without those of this machine or of the tests."""
    kept = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "TERM", "LANG") if name in os.environ}
    return {
        **kept,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": str(BUILD / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOROVOD_STATE_DIR": state_folder(),
        "HOROVOD_SPOOL_DIR": str(pathlib.Path(state_folder()).parent),
        "NO_COLOR": "1",
        **more,
    }


def state_folder():
    """Returns the folder for this test's job records, instead of the user's home."""
    if not STATE:
        STATE.append(scratch() / "state")
    return str(STATE[0])


def run_to_end(words, **more):
    """Runs a command to its end, with any exit code, and returns its output as text."""
    return subprocess.run(words, **{"capture_output": True, "text": True, "timeout": LONG, "check": False, **more})


def ask(*words):
    """Runs a command of horovodrun about running jobs, as from another terminal."""
    return run_to_end([LAUNCHER, *map(str, words)], env=clean_environment())


def entering(name, *command):
    """Returns the command that runs a command in the namespaces of a host."""
    return ["nsenter", "-t", str(host.pid_of(name)), "-m", "-u", "-i", "-n", "-p", *map(str, command)]


def start_agent(address, token, name, slots, *flags, inside=None):
    """Starts an agent that joins a launcher, on this machine or on the host `inside`."""
    command = [AGENT, "--join", address, "--token-file", token, "--name", name, "--slots", str(slots), *flags]
    return subprocess.Popen(
        entering(inside, *command) if inside else command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clean_environment(),
    )


class Job:
    """One horovodrun in its own process group, as a shell starts it."""

    def __init__(self, *arguments, environment=None, cwd=None, program=LAUNCHER):
        self.mark = f"HVD_E2E={os.getpid()}-{time.monotonic_ns()}"
        self.before = Inventory(self.mark)
        self.folder = scratch()
        self.command = [str(program), *map(str, arguments)]
        with open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd or ROOT,
                env={**(environment or clean_environment()), **dict([self.mark.split("=")])},
                process_group=0,
            )

    @property
    def out(self):
        return (self.folder / "out").read_text(errors="replace")

    @property
    def err(self):
        return (self.folder / "err").read_text(errors="replace")

    def said(self):
        """Returns the launcher's own messages, except the one about the threads of ranks that share a host."""
        return [
            line.removeprefix("horovodrun: ")
            for line in self.err.splitlines()
            if line.startswith("horovodrun: ") and "--no-omp-default" not in line
        ]

    def judgement(self):
        """Returns the launcher's own messages without those about folded tracebacks, because ranks may or may not print
        a traceback before their job ends."""
        return [line for line in self.said() if " stopped because of rank " not in line]

    def describe(self):
        return (
            f"$ {' '.join(self.command)}\n--- stdout\n{self.out[-3000:]}\n"
            f"--- stderr\n{self.err[-3000:]}\n--- exit {self.process.poll()}"
        )

    def wait_for(self, words, count=1, seconds=LONG):
        wait_until(
            lambda: len(re.findall(words, self.out)) >= count or self.process.poll() is not None,
            seconds,
            lambda: f"{count} x {words!r}\n{self.describe()}",
        )
        expect(
            len(re.findall(words, self.out)) >= count,
            f"it ended before it printed {count} x {words!r}\n{self.describe()}",
        )

    def wait(self, seconds=LONG):
        """Waits for the launcher and returns its exit code."""
        wait_until(
            lambda: self.process.poll() is not None, seconds, lambda: f"the end of the launcher\n{self.describe()}"
        )
        code = self.process.returncode
        return code if code >= 0 else 128 - code

    def signal(self, number):
        """Sends a signal to the whole process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def ends_with(self, code, seconds=LONG):
        got = self.wait(seconds)
        expect(got == code, f"exit code {got}, expected {code}\n{self.describe()}")

    def leaves_nothing(self, seconds=PROMPT):
        """Fails if a process, socket name or file of the job remains on any host that is up."""
        try:
            self.before.wait_for_ends(seconds)
        except Failure as failure:
            raise Failure(f"{failure}\n{self.describe()}") from None
        expect(not (left := self.before.new_things()), f"left behind: {left}")


class Inventory:
    """Every process of the world, every abstract socket and every file in shared memory.

    Outside of a world, other processes run on the machine: then only processes with `mark` in their environment count,
    without sockets and files.
    """

    def __init__(self, mark=""):
        self.mark = "" if in_world() else mark
        self.began = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.processes = set(self.living())
        self.things = set(self.all_things())

    def living(self):
        """Describes every process, by PID and start time, except sshd's processes."""
        found = {}
        own = os.getpid()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == own:
                continue
            try:
                state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                name = (entry / "comm").read_text().strip()
                if state[0] in "ZX" or name == "sshd" or not words:
                    continue
                if self.mark and self.mark.encode() not in (entry / "environ").read_bytes():
                    continue
                found[entry.name, state[19]] = f"pid {entry.name}, host {host_of(entry)}: {words.strip()}"
            except OSError:
                continue  # the process has just ended
        return found

    @staticmethod
    def all_things():
        for pid in first_processes() if in_world() else ():
            try:
                table = pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]
                names = {line.split()[7] for line in table if len(line.split()) > 7}
                yield from ((pid, name) for name in names if name.startswith("@"))
                for folder in ("dev/shm", "run", "tmp"):
                    for path in pathlib.Path(f"/proc/{pid}/root/{folder}").iterdir():
                        # Temporary files of this harness, of Python and of torch.
                        if not path.name.startswith(("e2e-", "tmp", "torchinductor_")):
                            yield pid, f"/{folder}/{path.name}"
            except OSError:
                continue  # the host is down

    def age(self, moment=None):
        """Returns the age of this inventory now, or at a moment in seconds since the boot of the machine."""
        return (moment or time.clock_gettime(time.CLOCK_BOOTTIME)) - self.began

    def new_ones(self):
        return {key: words for key, words in self.living().items() if key not in self.processes}

    def new_processes(self):
        return list(self.new_ones().values())

    def describe_new(self):
        """Returns a line for each remaining process, with the facts that show its origin."""
        lines = []
        for (pid, _), words in self.new_ones().items():
            state = faults.said_of(pid, "stat").rpartition(")")[2].split()
            if not state:
                continue
            began = self.age(int(state[19]) / os.sysconf("SC_CLK_TCK"))
            rank = re.search(r"(?:^|\0)HOROVOD_RANK=(\d+)", faults.said_of(pid, "environ"))
            lines.append(
                f"{words} (state {state[0]}, rank {rank[1] if rank else 'unknown'}, parent "
                f"{state[1]} {faults.said_of(state[1], 'comm').strip()}, group {state[2]}, "
                f"session {state[3]}, began after {began:.2f} s)"
            )
        return "\n".join(lines)

    def wait_for_ends(self, seconds=PROMPT):
        """Waits until every process that began after this inventory has ended."""
        wait_until(lambda: not self.new_processes(), seconds, lambda: f"an end of:\n{self.describe_new()}")

    def new_things(self):
        return sorted(thing for thing in set(self.all_things()) - self.things)


def one_sentence(job, *patterns):
    """Checks that the launcher printed one sentence, and that it matches all patterns."""
    sentences = job.judgement()
    expect(len(sentences) == 1, f"one sentence expected, got {len(sentences)}\n{job.describe()}")
    for pattern in patterns:
        expect(re.search(pattern, sentences[0]), f"{pattern!r} is not in {sentences[0]!r}\n{job.describe()}")


def run_inside_a_world(function, script):
    names, options = function.world
    done = subprocess.run(
        [HOSTS, "run", "--root", "--names", names, *options, "--", PYTHON, "-B", script, function.__name__],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HVD_IN_WORLD": "1"},
        check=False,
    )
    sys.stderr.write(done.stderr)
    if done.returncode == NO_WORLD:
        words = done.stderr.strip().splitlines() or ["hosts cannot be made"]
        raise Skip(words[-1].removeprefix("hosts: "))
    return done.returncode


def run(function, script):
    try:
        if hasattr(function, "world") and "HVD_IN_WORLD" not in os.environ:
            return run_inside_a_world(function, script)
        function()
    except Skip as skip:
        print(f"SKIP: {skip}")
        remove_folders()
        return SKIPPED
    except Failure as failure:
        print(f"FAIL {function.__name__}: {failure}")
        # The /tmp of a world ends with the world.
        if FOLDERS and not in_world():
            print("kept: " + " ".join(map(str, FOLDERS)))
        FOLDERS.clear()
        return 1
    print(f"PASS {function.__name__}")
    remove_folders()
    return 0


def main():
    module = sys.modules["__main__"]
    tests = {name: value for name, value in inspect.getmembers(module, inspect.isfunction) if name.startswith("test_")}
    chosen = [name if name.startswith("test_") else f"test_{name}" for name in sys.argv[1:]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    codes = [run(tests[name], module.__file__) for name in chosen or tests]
    failed = [code for code in codes if code not in (0, SKIPPED)]
    sys.exit(failed[0] if failed else max(codes, default=1))
