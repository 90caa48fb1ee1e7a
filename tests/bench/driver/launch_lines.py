"""The lines of tests/bench/launch: horovodrun against other launchers."""

import contextlib
import ctypes
import functools
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

from driver import teams
from driver.lines import Line, Result

LAUNCHER = teams.BUILD / "bin" / "horovodrun"
TRUE = "/bin/true"
SHELL = ("/bin/sh", "-c", "true; true")
TIMEOUT = 20


def host_names(count):
    return [f"h{n}" for n in range(count)]


def seconds_of(*commands):
    """Returns the wall-clock seconds of commands that start at once, as in a shell loop with &. Infinite if a command
    fails or takes longer than TIMEOUT seconds."""
    start = time.perf_counter()
    processes = []
    is_late = threading.Event()

    def kill_late():
        is_late.set()
        for process in processes:
            with contextlib.suppress(ProcessLookupError):  # the process has already ended
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)

    # Popen.wait with a timeout polls only after 0.5, 1.5, 3.5, 7.5 ms and so on.
    timer = threading.Timer(TIMEOUT, kill_late)
    timer.start()
    for command in commands:
        if not is_late.is_set():
            # Each command gets a process group, so that killpg() also kills its children.
            processes.append(
                subprocess.Popen(
                    [str(word) for word in command],
                    stdin=subprocess.DEVNULL,
                    process_group=0,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
    if is_late.is_set():  # the timer may have missed the last process
        kill_late()
    codes = [process.wait() for process in processes]
    took = time.perf_counter() - start
    timer.cancel()
    return math.inf if any(codes) or is_late.is_set() else took


def spawn_all(command, count):
    """Measures the lower limit: the time in which the kernel starts and reaps these processes."""
    start = time.perf_counter()
    for pid in [os.posix_spawn(command[0], command, os.environ) for _ in range(count)]:
        os.waitpid(pid, 0)
    return time.perf_counter() - start


@functools.cache
def bare_python():
    """Returns a Python interpreter without packages."""
    folder = teams.BUILD / "venv-bare"
    if not (folder / "bin" / "python3").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return str(folder / "bin" / "python3")


def true_with_argument():
    return (TRUE, "x")


def python_pass():
    return (bare_python(), "-c", "pass")


def shell_script():
    return SHELL


def medians(bench, contenders):
    """Returns each contender's median in milliseconds by name, and a note about the contenders that failed.

    The contenders take turns, after a warm-up turn. A contender that fails or hangs gets no further turn and has no
    median."""
    if not LAUNCHER.exists():
        raise teams.Refused(f"{LAUNCHER} is not built")
    rounds = {name: [] for name in contenders}
    left_out = {}
    for number in range(1 + bench.rounds):
        for name, run in contenders.items():
            if name in left_out:
                continue
            start = time.perf_counter()
            took = run()
            if math.isinf(took):
                hangs = time.perf_counter() - start >= TIMEOUT
                left_out[name] = f"had not ended after {TIMEOUT} s" if hangs else "failed"
                left_out[name] += f" in turn {number + 1} of {1 + bench.rounds}"
            elif number > 0:
                rounds[name].append(took)
    if "ours" in left_out:
        raise teams.Refused(f"horovodrun {left_out['ours']}")
    found = {name: 1e3 * statistics.median(all_of) for name, all_of in rounds.items() if name not in left_out}
    return found, "".join(f"; left out: {name} {why}" for name, why in left_out.items())


def runs(**commands):
    """Returns a timed run for each command whose program is installed."""
    return {
        name.replace("_", " "): functools.partial(seconds_of, command)
        for name, command in commands.items()
        if shutil.which(str(command[0]))
    }


def here(count, factor, command=true_with_argument):
    """`factor`: the target as a multiple of hydra's time; None if the line has no target."""

    def measure(bench):
        words = command()
        # Debian 12's torchrun (torch 1.13) cannot start anything with Python 3.11.
        torchrun = teams.BUILD / "venv-torch-2.13" / "bin" / "torchrun"
        contenders = runs(
            ours=[LAUNCHER, "-np", count, *words],
            hydra=["mpiexec.hydra", "-n", count, *words],
            Open_MPI=["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", count, *words],
            torchrun=[torchrun, "--no-python", "--nproc-per-node", count, *words],
        )
        contenders["posix_spawn"] = lambda: spawn_all(words, count)
        found, left_out = medians(bench, contenders)
        ours, limit = found.pop("ours"), found.pop("posix_spawn")
        if "hydra" not in found:
            raise teams.Refused(f"mpiexec.hydra is not there, or fails{left_out}")
        note = f"{ours / found['hydra']:.2f} × hydra; posix_spawn alone {limit:.1f} ms{left_out}"
        if factor is None:
            return Result("ms", ours, found, "measured", True, note)
        return Result("ms", ours, found, f"≤ {factor} × hydra", ours <= factor * found["hydra"], note)

    return measure


def option(name):
    def measure(bench):
        found, _ = medians(bench, {"ours": lambda: seconds_of([LAUNCHER, name])})
        ours = found["ours"]
        return Result("ms", ours, must="≤ 5 ms", passed=ours <= 5)

    return measure


def over_ssh(hosts, slots):
    """The warm-up turn starts the agents; each later turn sets up new ssh connections on both sides."""

    def measure(bench):
        names = host_names(hosts)
        where = ",".join(f"{name}:{slots}" for name in names)
        contenders = runs(ours=[LAUNCHER, "-np", hosts * slots, "-H", where, TRUE])
        contenders["parallel ssh"] = lambda: seconds_of(*(["ssh", name, TRUE] for name in names for _ in range(slots)))
        if hosts == 128:
            contenders |= runs(
                hydra=["mpiexec.hydra", "-n", hosts, "-hosts", ",".join(names), TRUE],
                Open_MPI=[
                    "mpirun.openmpi",
                    "--allow-run-as-root",
                    "-n",
                    hosts,
                    "-H",
                    ",".join(names),
                    "--mca",
                    "oob_tcp_if_include",
                    "10.77.0.0/16",
                    TRUE,
                ],
            )
        found, left_out = medians(bench, contenders)
        ours = found.pop("ours")
        # An unfinished contender takes at least TIMEOUT.
        at_least = 1e3 * TIMEOUT if "had not ended" in left_out else math.nan
        best = min(found.values(), default=at_least)
        return Result("ms", ours, found, "≤ 0.5 × the best", ours <= 0.5 * best, left_out.removeprefix("; "))

    return measure


def memory(bench):
    """Measures the launcher's peak memory while it runs 128 hosts."""
    names = host_names(128)
    process = subprocess.Popen(
        [
            LAUNCHER,
            "-np",
            "128",
            "-H",
            ",".join(f"{n}:1" for n in names),
            "--stdin",
            "all",
            "sh",
            "-c",
            "echo there; read line",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    status = None
    for number, _ in enumerate(process.stdout, 1):
        if number == 128 and pathlib.Path(f"/proc/{process.pid}/status").exists():
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            process.stdin.write("\n")
            process.stdin.close()
    process.wait()
    del bench
    if not status or "VmHWM" not in status:
        raise teams.Refused("the launcher had ended before it could be looked at")
    ours = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024
    return Result("MiB", ours, must="≤ 64 MiB", passed=ours <= 64)


def adopt_orphans():
    """Makes this process the subreaper, because agents leave their parents: os.times() then includes the agents."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans():
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


def output(bench):
    """Measures a rank that prints at full speed: lines received, throughput and processor time."""
    adopt_orphans()
    size = (200 if bench.rounds < 9 else 1000) << 20
    command = f"yes 'the quick brown fox jumps over the lazy dog, and over it again' | head -c {size}"

    def drain(words):
        before, start = os.times(), time.perf_counter()
        with subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            lines = 0
            while chunk := process.stdout.read1(1 << 20):
                lines += chunk.count(b"\n")
        took = time.perf_counter() - start
        reap_orphans()
        after = os.times()
        spent = after.children_user - before.children_user + after.children_system - before.children_system
        return lines, took, spent

    expected, plain, base = drain(["sh", "-c", command])
    lines, took, spent = drain([str(LAUNCHER), "-np", "1", "sh", "-c", command])
    cores = max(0.0, spent - base) / took
    rate = size / took / 1e6
    lost = max(0, expected - lines)  # the launcher adds a newline to an incomplete line
    return Result(
        "MB/s",
        rate,
        must="≥ 200 MB/s, nothing lost, ≤ 1 core",
        passed=rate >= 200 and lost <= 1 and cores <= 1,
        note=f"a pipe alone {size / plain / 1e6:.0f} MB/s; {cores:.2f} cores in launcher and agent; {lost} lines lost",
    )


def _on(count):
    return " ".join(host_names(count))


LINES = [
    Line("true-1", "start and reap 1 × true x", here(1, 1.5)),
    Line("true-4", "start and reap 4 × true x", here(4, 2)),
    Line("true-64", "start and reap 64 × true x", here(64, 0.9)),
    Line("true-256", "start and reap 256 × true x", here(256, 0.9)),
    Line("python-1", "start and reap 1 × python3 -c pass", here(1, 1.3, python_pass)),
    Line("python-4", "start and reap 4 × python3 -c pass", here(4, None, python_pass)),
    Line("python-64", "start and reap 64 × python3 -c pass", here(64, None, python_pass)),
    Line("python-256", "start and reap 256 × python3 -c pass", here(256, None, python_pass)),
    Line("shell-1", "1 shell script", here(1, None, shell_script)),
    Line("shell-4", "4 shell scripts", here(4, None, shell_script)),
    Line("version", "--version", option("--version")),
    Line("help", "--help", option("--help")),
    Line("output", "output of one rank", output),
    Line("ssh-32", "32 hosts × 2 over ssh", over_ssh(32, 2), True, _on(32)),
    Line("ssh-64", "64 hosts × 2 over ssh", over_ssh(64, 2), True, _on(64)),
    Line("ssh-128", "128 hosts × 1 over ssh", over_ssh(128, 1), True, _on(128)),
    Line("memory", "the launcher's memory at 128 hosts", memory, True, _on(128)),
]
