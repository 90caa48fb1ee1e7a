#!/usr/bin/python3 -B
"""Repeated and interrupted starts and ends of the runtime, without leaks."""

import functools

from harness import *

import namespaces as ns

WORKER = BUILD / "tests" / "runtime_worker"


def boxed(function):
    """Runs the test as the first process of new namespaces: all processes in them belong to the test."""

    @functools.wraps(function)
    def outside():
        if "HVD_IN_BOX" in os.environ:
            return function()
        command = [
            *"unshare --pid --net --mount --ipc --fork --mount-proc".split(),
            "--kill-child",
            PYTHON,
            "-B",
            os.path.abspath(__file__),
            function.__name__,
        ]
        if run_to_end(command[:8] + ["true"]).returncode:
            raise Skip("namespaces cannot be made here")
        done = run_to_end(command, env={**os.environ, "HVD_IN_BOX": "1"})
        expect(done.returncode == 0, done.stdout + done.stderr)

    return outside


def others():
    """Returns every other running process in these namespaces. Reaps processes that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    found.append((int(entry.name), (entry / "cmdline").read_text()))
            except OSError:
                continue
    return found


def left_in_box():
    """Returns processes, sockets and shared memory that remain. A process that seems to have ended may still close its
    descriptors, since its other threads end after the first thread."""
    found = [f"process {one}" for one in others()]
    found += pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]
    for table in ("tcp", "tcp6"):
        # 06 is TIME_WAIT: the kernel remembers the connection, and no process owns it.
        found += [
            line for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:] if line.split()[3] != "06"
        ]
    found += [str(one) for one in pathlib.Path("/dev/shm").glob("*hvd*")]
    return found


def check_box_is_empty(what):
    wait_until(lambda: not left_in_box(), 60, lambda: f"after {what}, an end of {left_in_box()}")


@boxed
def test_after_any_end_nothing_is_left_in_proc():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    ns.mount("none", "/dev/shm", "tmpfs")
    for how, code in (("sum", 0), ("sum-and-exit", 0), ("lose-by-exit", 3), ("lose-by-signal", 137)):
        job = Job("-np", 3, WORKER, how)
        job.ends_with(code)
        check_box_is_empty(how)
    for victim in ("horovodrun", "horovod-agent", "runtime_worker", ""):
        job = Job("-np", 3, WORKER, "for-ever")
        job.wait_for("running", 3)
        for pid, command in others():
            if victim in command:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # the agent has already ended the rank
        job.process.wait(LONG)
        check_box_is_empty(f"SIGKILL to all of '{victim}'")


def test_a_thousand_starts_and_ends():
    """Runs in each of two processes; the worker compares memory, descriptors and threads."""
    job = Job("-np", 2, WORKER, "cycles")
    job.ends_with(0)
    expect(len(re.findall("1000 cycles", job.out)) == 2, job.describe())


def test_ctrl_c_reaches_whoever_waits():
    with tempfile.TemporaryDirectory() as folder:
        job = Job("-np", 2, PYTHON, WORKERS / "interrupted_rank.py", folder)
        job.ends_with(0)
    expect(job.out.count("interrupted after") == 3, job.describe())


if __name__ == "__main__":
    main()
