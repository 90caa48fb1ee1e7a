"""The benchmark lines about horovodrun doctor. Each planted fault must be found on its host or link, with its name and
verdict; no other host may have a failure or a warning of another kind."""

import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time

from driver import teams
from driver.lines import Line, Result

LAUNCHER = teams.BUILD / "bin" / "horovodrun"
RATE = ["rate", "20mbit", "burst", "32k", "latency", "50ms"]
MANY = " ".join(f"h{number:02}" for number in range(64))
FEW = "a b c d e f"


def examine(hosts, *flags, slots=2):
    """Returns the doctor's answer as an object, with its seconds as the launcher's user sees them."""
    names = ",".join(f"{name}:{slots}" for name in hosts.split())
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as state:
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ["HOME"], "HOROVOD_STATE_DIR": state}
        done = subprocess.run(
            [LAUNCHER, "doctor", "--json", "-H", names, *flags],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if not done.stdout:
        raise teams.Refused(done.stderr.strip())
    return {**json.loads(done.stdout), "wall": time.monotonic() - began}


def found(answer):
    """Returns (id, verdict, host) of each warning, failure and unknown value."""
    return {
        (check["id"], check["verdict"], name)
        for name, host in answer["hosts"].items()
        for check in host["checks"]
        if check["verdict"] != "note"
    }


def inside(name, *command):
    pid = next(
        int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and is_init_of(entry, name)
    )
    subprocess.run(["nsenter", "-t", str(pid), "-m", "-u", "-n", *command], check=True, stdout=subprocess.DEVNULL)


def is_init_of(process, name):
    """Whether the process is the sshd of a host, the first of its namespaces."""
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return b"sshd" in words[0] and f"/{name}/" in (process / "cmdline").read_text(errors="replace")
    except OSError:
        return False


def outer_port(hosts, name):
    return f"eth0-{hosts.split().index(name)}"


@contextlib.contextmanager
def limited(hosts, rates):
    """Limits what these hosts receive: name -> words of tbf."""
    for name, rate in rates.items():
        subprocess.run(["tc", "qdisc", "add", "dev", outer_port(hosts, name), "root", "tbf", *rate], check=True)
    try:
        yield
    finally:
        for name in rates:
            subprocess.run(["tc", "qdisc", "del", "dev", outer_port(hosts, name), "root"], check=True)


def many_hosts(bench):
    """The seconds of a command for 64 hosts at level net, which receive 20 Mb/s each."""
    with limited(MANY, dict.fromkeys(MANY.split(), RATE)):
        answers = [examine(MANY, slots=1) for _ in range(1 if bench.is_quick else 3)]
    failures = {each for answer in answers for each in found(answer) if each[1] == "fail"}
    pairs = len(answers[0]["pairs"])
    seconds = statistics.median(answer["wall"] for answer in answers)
    note = f"{pairs} pairs; failures: {sorted(failures) or 'none'}"
    return Result("s", seconds, {}, "≤ 10 s, no failure", seconds <= 10 and not failures and pairs == 192, note)


@contextlib.contextmanager
def login(name, text):
    """Runs this text on a host before each agent."""
    files = [pathlib.Path.home() / file for file in (".bashrc", ".profile")]
    for file in files:
        file.write_text(f"[ $(cat /proc/sys/kernel/hostname) != {name} ] || {text}\n")
    try:
        yield
    finally:
        for file in files:
            file.unlink()


@contextlib.contextmanager
def mounted(name, folder, *options):
    inside(name, "mount", *options, folder)
    try:
        yield
    finally:
        inside(name, "umount", folder)


@contextlib.contextmanager
def with_tools(tools):
    """Puts a double of nvidia-smi first in PATH: name of the host -> text of the script."""
    with tempfile.TemporaryDirectory(dir=teams.WORKERS) as folder, contextlib.ExitStack() as stack:
        for name, text in tools.items():
            path = pathlib.Path(folder) / name
            path.mkdir()
            (path / "nvidia-smi").write_text(f"#!/bin/sh\n{text}\n")
            (path / "nvidia-smi").chmod(0o755)
            stack.enter_context(mounted(name, "/usr/local/bin", "--bind", str(path)))
        yield


def gpus(*rows):
    return "\n".join(f"echo 'GPU-{number}, H100, {row}'" for number, row in enumerate(rows))


HEALTHY = "0, No, No, 0x0000000000000001, 10"


def with_gpu(*rows):
    """One host's GPUs beside two healthy ones on each other host."""
    both = gpus(HEALTHY, HEALTHY)
    return with_tools(dict.fromkeys(FEW.split(), both) | {"b": "\n".join(rows)})


@contextlib.contextmanager
def small_packets_only(name):
    for each in FEW.split():  # each packet is one segment
        inside(each, "ip", "link", "set", "eth0", "gso_max_segs", "1")
    subprocess.run(["ip", "link", "set", outer_port(FEW, name), "mtu", "1200"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", outer_port(FEW, name), "mtu", "1500"], check=True)


@contextlib.contextmanager
def without_way(one, other):
    """Drops what a host sends to another one."""
    text = subprocess.run(["getent", "hosts", other], capture_output=True, text=True, check=True).stdout
    address = re.match(r"\S+", text)[0]
    inside(one, "ip", "route", "add", "unreachable", address)
    try:
        yield
    finally:
        inside(one, "ip", "route", "del", "unreachable", address)


def tbf(megabits):
    return ["rate", f"{megabits}mbit", "burst", "32k", "latency", "50ms"]


def slow(name, megabits):
    return limited(FEW, {each: tbf(megabits if each == name else 40) for each in FEW.split()})


# Name -> the context that plants the fault on host b, the expected findings, and the doctor's flags. Each expected
# finding is (id, verdict, host); a set of ids stands for one of them.
FAULTS = {
    "small /dev/shm": (
        lambda: mounted("b", "/dev/shm", "-t", "tmpfs", "-o", "size=512k", "none"),
        ("shm", "fail", "b"),
    ),
    "no inodes in /dev/shm": (
        lambda: mounted("b", "/dev/shm", "-t", "tmpfs", "-o", "nr_inodes=1", "none"),
        ("shm", "fail", "b"),
    ),
    "full TMPDIR": (lambda: mounted("b", "/tmp", "-t", "tmpfs", "-o", "size=256k", "none"), ("tmp", "fail", "b")),
    "read-only TMPDIR": (
        lambda: mounted("b", "/tmp", "-t", "tmpfs", "-o", "ro", "none"),
        ("disk", "fail", "b"),
        "--preflight",
        "full",
    ),
    "few files": (lambda: login("b", "ulimit -n 256"), ("nofile", "warn", "b")),
    "few processes": (lambda: login("b", "ulimit -u 20"), ("nproc", "warn", "b")),
    "one processor": (lambda: login("b", "taskset -pc 0 $$ >/dev/null"), ("cpus", "warn", "b")),
    "lost large packets": (lambda: small_packets_only("b"), ({"mtu_lost", "reach_pair", "reach_peers"}, "fail", None)),
    "no way between two hosts": (lambda: without_way("b", "c"), ("reach_pair", "fail", "b")),
    "slow to receive": (lambda: slow("b", 8), ("bandwidth", "fail", "b")),
    "another MTU": (lambda: another_mtu("b"), ("mtu", "warn", "b")),
    "names missing": (lambda: unresolved("b", "c"), ("names", "warn", "b")),
    "GPU: memory errors": (
        lambda: with_gpu(gpus("3, No, No, 0x1, 10", HEALTHY)),
        ("gpu_ecc", "fail", "b"),
    ),
    "GPU: a row not remapped": (lambda: with_gpu(gpus("0, Yes, No, 0x1, 10", HEALTHY)), ("gpu_remap", "fail", "b")),
    "GPU: remapping pending": (lambda: with_gpu(gpus("0, No, Yes, 0x1, 10", HEALTHY)), ("gpu_remap", "warn", "b")),
    "GPU: too hot": (lambda: with_gpu(gpus("0, No, No, 0x40, 10", HEALTHY)), ("gpu_clocks", "warn", "b")),
    "GPU: used by others": (lambda: with_gpu(gpus("0, No, No, 0x1, 9000", HEALTHY)), ("gpu_memory", "warn", "b")),
    "GPU missing": (lambda: with_gpu(gpus(HEALTHY)), ("gpu_count", "fail", "b")),
    "nvidia-smi hangs": (lambda: with_gpu("sleep 60"), ("gpu_tool", "unknown", "b")),
    "nvidia-smi prints garbage": (lambda: with_gpu("echo '<html>'"), ("gpu_tool", "unknown", "b")),
    "nvidia-smi fails": (lambda: with_gpu("exit 9"), ("gpu_tool", "unknown", "b")),
}


@contextlib.contextmanager
def another_mtu(name):
    inside(name, "ip", "link", "set", "eth0", "mtu", "1400")
    try:
        yield
    finally:
        inside(name, "ip", "link", "set", "eth0", "mtu", "1500")


@contextlib.contextmanager
def unresolved(name, other):
    """Takes a name out of a host's /etc/hosts."""
    lines = pathlib.Path("/etc/hosts").read_text().splitlines()
    with tempfile.NamedTemporaryFile("w", dir=teams.WORKERS) as file:
        file.write("".join(line + "\n" for line in lines if other not in line.split()))
        file.flush()
        with mounted(name, "/etc/hosts", "--bind", file.name):
            yield


def is_expected(finding, expected):
    name, verdict, host = expected
    names = name if isinstance(name, set) else {name}
    return finding[0] in names and finding[1] == verdict and host in (None, finding[2])


def faults(bench):
    wrong = []
    chosen = list(FAULTS.items())
    for name, (plant, expected, *flags) in chosen:
        with plant():
            said = found(examine(FEW, *flags))
        hit = any(is_expected(each, expected) for each in said)
        more = {each for each in said if each[1] == "fail" and not is_expected(each, expected)}
        if not hit or more:
            wrong.append(f"{name}: {sorted(said)}")
    right = len(chosen) - len(wrong)
    note = f"{right} of {len(chosen)} faults; others: {wrong or 'none'}"
    return Result("%", 100 * right / len(chosen), {}, "each on its host, no other failure", not wrong, note)


def healthy(bench):
    """Healthy hosts whose processors compile: no failure."""
    over = threading.Event()

    def compile_again():
        source = '#include <regex>\n#include <map>\nint main() { std::regex r("a*"); }\n'
        while not over.is_set():
            subprocess.run(["g++", "-O2", "-x", "c++", "-", "-o", "/dev/null"], input=source, text=True, check=False)

    compilers = [threading.Thread(target=compile_again) for _ in range(2)]
    for each in compilers:
        each.start()
    runs = 20 if bench.is_quick else 200
    try:
        failures = [each for _ in range(runs) for each in found(examine(FEW)) if each[1] == "fail"]
    finally:
        over.set()
        for each in compilers:
            each.join()
    return Result("failures", len(failures), {}, "0", not failures, f"{runs} runs; {sorted(set(failures)) or 'none'}")


LINES = [
    Line("doctor-64", "64 hosts behind links of 20 Mb/s, level net", many_hosts, True, MANY),
    Line("doctor-faults", "planted faults that are found", faults, True, FEW),
    Line("doctor-healthy", "failures of healthy hosts beside a compiler", healthy, True, FEW),
]
