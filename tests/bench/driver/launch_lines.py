"""The lines of tests/bench/launch: horovodrun against other launchers."""
import ctypes
import functools
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import threading
import time

from driver import teams
from driver.lines import Line, Result

LAUNCHER = teams.BUILD / "bin" / "horovodrun"
TRUE = "/bin/true"
PATIENCE = 20


def host_names(count):
    return [f"h{n}" for n in range(count)]


def seconds_of(command):
    """The wall clock of a command that must succeed; nothing when it fails or never ends."""
    start = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # A wait with a timeout would look only at 0.5, 1.5, 3.5, 7.5 ms and so on.
    patience = threading.Timer(PATIENCE, process.kill)
    patience.start()
    code = process.wait()
    took = time.perf_counter() - start
    patience.cancel()
    return took if code == 0 else math.inf


def spawn_all(count):
    """The limit: what the kernel takes to start and reap them."""
    start = time.perf_counter()
    for pid in [os.posix_spawn(TRUE, [TRUE], os.environ) for _ in range(count)]:
        os.waitpid(pid, 0)
    return time.perf_counter() - start


def in_parallel(commands):
    """All at once, as a shell's loop with & does."""
    start = time.perf_counter()
    processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) for command in commands]
    codes = [process.wait() for process in processes]
    return math.inf if any(codes) else time.perf_counter() - start


def medians(bench, contenders):
    """In milliseconds by name; the contenders take turns, after one turn that warms up."""
    if not LAUNCHER.exists():
        raise teams.Refused(f"{LAUNCHER} is not built")
    rounds = {name: [] for name in contenders}
    for number in range(1 + bench.rounds):
        for name, run in contenders.items():
            took = run()
            if number > 0:
                rounds[name].append(took)
    found = {name: 1e3 * statistics.median(all_of) for name, all_of in rounds.items()}
    if math.isinf(found["ours"]):
        raise teams.Refused("horovodrun failed")
    return {name: value for name, value in found.items() if not math.isinf(value)}


def runs(**commands):
    """Of those whose program is there."""
    return {name.replace("_", " "): functools.partial(seconds_of, command)
            for name, command in commands.items() if shutil.which(str(command[0]))}


def here(count, factor):
    def measure(bench):
        contenders = runs(
            ours=[LAUNCHER, "-np", count, TRUE],
            hydra=["mpiexec.hydra", "-n", count, TRUE],
            Open_MPI=["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", count, TRUE])
        if count == 1:
            contenders |= runs(torchrun=["torchrun", "--no_python", "--nproc_per_node", 1, TRUE])
        contenders["posix_spawn"] = lambda: spawn_all(count)
        found = medians(bench, contenders)
        ours, limit = found.pop("ours"), found.pop("posix_spawn")
        if "hydra" not in found:
            raise teams.Refused("mpiexec.hydra is not there, or fails")
        return Result("ms", ours, found, f"≤ {factor} × hydra", ours <= factor * found["hydra"],
                      f"posix_spawn alone {limit:.1f} ms")
    return measure


def option(name):
    def measure(bench):
        ours = medians(bench, {"ours": lambda: seconds_of([LAUNCHER, name])})["ours"]
        return Result("ms", ours, must="≤ 5 ms", passed=ours <= 5)
    return measure


def over_ssh(hosts, slots):
    """Agents are there from the first, warming turn; both sides exchange keys anew each time."""
    def measure(bench):
        names = host_names(hosts)
        where = ",".join(f"{name}:{slots}" for name in names)
        contenders = runs(ours=[LAUNCHER, "-np", hosts * slots, "-H", where, TRUE])
        contenders["parallel ssh"] = lambda: in_parallel(
            [["ssh", name, TRUE] for name in names for _ in range(slots)])
        if hosts == 128:
            contenders |= runs(
                hydra=["mpiexec.hydra", "-n", hosts, "-hosts", ",".join(names), TRUE],
                Open_MPI=["mpirun.openmpi", "--allow-run-as-root", "-n", hosts, "-H",
                          ",".join(names), "--mca", "oob_tcp_if_include", "10.77.0.0/16", TRUE])
        found = medians(bench, contenders)
        ours = found.pop("ours")
        best = min(found.values(), default=math.nan)
        return Result("ms", ours, found, "≤ 0.5 × the best", ours <= 0.5 * best)
    return measure


def memory(bench):
    """The launcher's peak while it runs 128 hosts."""
    names = host_names(128)
    process = subprocess.Popen([LAUNCHER, "-np", "128", "-H", ",".join(f"{n}:1" for n in names),
                                "--stdin", "all", "sh", "-c", "echo there; read line"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
    """Agents leave their parents: as the subreaper of all, this process gets to know what they
    took."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans():
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


def output(bench):
    """One rank prints as fast as it can: what arrives, how fast, and at which cost."""
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
        spent = (after.children_user - before.children_user +
                 after.children_system - before.children_system)
        return lines, took, spent

    expected, plain, base = drain(["sh", "-c", command])
    lines, took, spent = drain([str(LAUNCHER), "-np", "1", "sh", "-c", command])
    cores = max(0.0, spent - base) / took
    rate = size / took / 1e6
    lost = expected - lines
    return Result("MB/s", rate, must="≥ 200 MB/s, nothing lost, ≤ 1 core",
                  passed=rate >= 200 and lost <= 1 and cores <= 1,
                  note=f"a pipe alone {size / plain / 1e6:.0f} MB/s; {cores:.2f} cores in launcher "
                       f"and agent; {lost} lines lost")


def _on(count):
    return " ".join(host_names(count))


LINES = [
    Line("local-1", "start and reap 1 process", here(1, 1.5)),
    Line("local-64", "start and reap 64 processes", here(64, 1.0)),
    Line("local-256", "start and reap 256 processes", here(256, 1.0)),
    Line("version", "--version", option("--version")),
    Line("help", "--help", option("--help")),
    Line("output", "output of one rank", output),
    Line("ssh-32", "32 hosts × 2 over ssh", over_ssh(32, 2), True, _on(32)),
    Line("ssh-64", "64 hosts × 2 over ssh", over_ssh(64, 2), True, _on(64)),
    Line("ssh-128", "128 hosts × 1 over ssh", over_ssh(128, 1), True, _on(128)),
    Line("memory", "the launcher's memory at 128 hosts", memory, True, _on(128)),
]
