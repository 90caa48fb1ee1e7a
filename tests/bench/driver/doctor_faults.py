"""The faults that tests/bench/doctor injects into hosts of tests/hosts. Each ends with its block."""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing

from driver import teams

sys.path[:0] = [str(teams.ROOT / "tests" / "hosts"), str(teams.ROOT / "tests" / "e2e")]
import faults
import host
from slow_link import SlowLink

# The host with the fault, and the other end of a link with a fault.
SICK, OTHER = "c", "d"
NAMES = ["a", "b", SICK, OTHER]
HOSTS = ",".join(f"{name}:2" for name in NAMES)
# The queues are long, so that no packet is lost in a quarter of a second.
USUAL = "rate 20mbit burst 32k latency 400ms"
SLOW = "rate 4mbit burst 32k latency 400ms"
CGROUPS = pathlib.Path("/sys/fs/cgroup")


@dataclasses.dataclass
class Fault:
    """A fault, how to inject it, and what the doctor must find: this id, with one of these verdicts, at this place."""

    name: str
    what: str
    inject: typing.Callable
    id: str
    verdicts: tuple = ("fail",)
    place: tuple = (SICK,)
    level: str = "net"
    hosts: str = HOSTS

    def is_there(self, hosts):
        """A link to the host with the fault also names the host."""
        return set(hosts) == set(self.place) or (len(self.place) == 1 and self.place[0] in hosts)

    def is_right(self, verdict, name, hosts):
        return name == self.id and verdict in self.verdicts and self.is_there(hosts)


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def inside(name, *command):
    """Runs a command in the namespaces of a host. Returns its output."""
    enter = ["nsenter", "-t", str(faults.running(name)), "-m", "-u", "-i", "-n", "-p"]
    return subprocess.run([*enter, *command], check=True, stdout=subprocess.PIPE, text=True).stdout


def port_of(name):
    """Returns the outer end of a host's link."""
    return f"eth0-{host.spec()['names'].index(name)}"


@contextlib.contextmanager
def limited_links(names):
    """Limits what each host receives."""
    for name in names:
        run("tc", "qdisc", "add", "dev", port_of(name), "root", "tbf", *USUAL.split())
    try:
        yield
    finally:
        for name in names:
            # A host that was down has a new link without a limit.
            subprocess.run(["tc", "qdisc", "del", "dev", port_of(name), "root"], stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def hogs(processors, each=1):
    """Keeps processors busy."""
    programs = [
        subprocess.Popen(["taskset", "-c", str(processor), "sh", "-c", "while :; do :; done"])
        for processor in processors
        for _ in range(each)
    ]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


# Files and mounts of a host.


@contextlib.contextmanager
def mounted(target, *options, name=SICK, source="none"):
    inside(name, "mount", *options, source, target)
    try:
        yield
    finally:
        inside(name, "umount", "-l", target)


def small(target, options):
    return lambda: mounted(target, "-t", "tmpfs", "-o", options)


@contextlib.contextmanager
def folder_of(files):
    """Makes a folder with files, given as paths and texts. A text that begins with #! is a program."""
    # All hosts see the folder of the build.
    with tempfile.TemporaryDirectory(dir=teams.WORKERS) as folder:
        for path, text in files.items():
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755 if text.startswith("#!") else 0o644)
        yield pathlib.Path(folder)


@contextlib.contextmanager
def covered(target, files, names=(SICK,)):
    """Shows files in place of a folder of hosts, or of the file `target` if there is one name without a folder."""
    with folder_of(files) as folder, contextlib.ExitStack() as ends:
        source = folder / next(iter(files)) if pathlib.PurePath(target).name in files else folder
        for name in names:
            ends.enter_context(mounted(target, "--bind", name=name, source=source))
        yield


def interface_file(name, text):
    return lambda: covered(f"/sys/devices/virtual/net/eth0/{name}", {name: text})


def device(text):
    files = {"class": "0x030200\n", "current_link_width": text, "max_link_width": "16\n"}
    return lambda: covered("/sys/bus/pci/devices", {f"0000:3b:00.0/{name}": value for name, value in files.items()})


@contextlib.contextmanager
def infiniband(state):
    """Gives the host an InfiniBand card."""
    port = "infiniband/mlx5_0/ports/1"
    files = {f"{port}/state": state, f"{port}/rate": "400 Gb/sec (4X NDR)\n", f"{port}/counters/link_downed": "0\n"}
    with folder_of(files) as folder:
        (folder / "net").symlink_to("/sys/devices/virtual/net")
        with mounted("/sys/class", "--bind", source=folder):
            yield


@contextlib.contextmanager
def locked_memory():
    with limited("memlock=65536:65536"), infiniband("4: ACTIVE\n"):
        yield


@contextlib.contextmanager
def frozen_disk():
    """Freezes the file system of TMPDIR: a write to it sleeps where no signal ends it."""
    with tempfile.NamedTemporaryFile(dir=teams.WORKERS, suffix=".disk") as disk:
        disk.truncate(256 << 20)
        run("mkfs.ext4", "-q", "-F", disk.name)
        with mounted("/tmp", "-o", "loop", source=disk.name):
            inside(SICK, "fsfreeze", "-f", "/tmp")
            try:
                yield
            finally:
                inside(SICK, "fsfreeze", "-u", "/tmp")
                time.sleep(1)  # the abandoned writer ends


@contextlib.contextmanager
def missing_names():
    """The host's file of names loses a host."""
    file = host.STATE / SICK / "etc-hosts"
    text = file.read_text()
    file.write_text("".join(line for line in text.splitlines(True) if not line.split()[1:] == [OTHER]))
    try:
        yield
    finally:
        file.write_text(text)


# Limits of the processes of a host: what sshd has, the agent has too.


@contextlib.contextmanager
def limited(limit):
    for pid in faults.processes(SICK):
        run("prlimit", "-p", pid, f"--{limit}")
    try:
        yield
    finally:
        restart()  # a limit cannot be raised again


@contextlib.contextmanager
def group(controller, settings):
    """Puts the host into a cgroup of version 1."""
    if not (CGROUPS / controller).is_dir():
        raise teams.Missing(f"there is no cgroup controller {controller} of version 1")
    folder = CGROUPS / controller / f"bench-doctor-{os.getpid()}"
    pids = faults.processes(SICK)
    with open(f"/proc/{pids[0]}/cgroup", encoding="ascii") as file:
        paths = dict(line.strip().split(":")[1:] for line in file)
    before = CGROUPS / controller / paths[controller].lstrip("/")
    folder.mkdir()
    try:
        for name, value in settings.items():
            (folder / name).write_text(str(value))
        for pid in pids:
            (folder / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        deadline = time.monotonic() + 30
        while left := (folder / "cgroup.procs").read_text().split():
            for pid in left:
                with contextlib.suppress(OSError):  # the process has just ended
                    (before / "cgroup.procs").write_text(pid)
            if time.monotonic() > deadline:
                break
        folder.rmdir()


@contextlib.contextmanager
def pinned(name, processors):
    before = {pid: os.sched_getaffinity(pid) for pid in faults.processes(name)}
    for pid in before:
        os.sched_setaffinity(pid, processors)
    try:
        yield
    finally:
        for pid, mask in before.items():
            os.sched_setaffinity(pid, mask)


def one_processor():
    return pinned(SICK, {min(os.sched_getaffinity(0))})


@contextlib.contextmanager
def crowded():
    """The host has a processor of its own, on which other programs run."""
    first, *rest = sorted(os.sched_getaffinity(0))
    with pinned(OTHER, set(rest)), pinned(SICK, {first}), hogs([first], 6):
        yield


def restart():
    if host.pid_of(SICK) is not None:
        faults.end(SICK)
    host.start([SICK])
    # The host has a new hardware address; with the old one, connections to it take 15 s or more.
    forget = ["ip", "neigh", "flush", "to", faults.address_of(SICK)]
    run(*forget)
    for name in NAMES:
        if name != SICK and host.pid_of(name) is not None:
            inside(name, *forget)


@contextlib.contextmanager
def lost_host():
    faults.end(SICK)
    try:
        yield
    finally:
        restart()


# Links.


@contextlib.contextmanager
def cut(*peers):
    for peer in peers:
        faults.cut(SICK, peer)
    try:
        yield
    finally:
        for peer in peers:
            faults.heal(SICK, peer)


@contextlib.contextmanager
def received(limit):
    """Limits what the host receives, in another way than usual."""
    run("tc", "qdisc", "replace", "dev", port_of(SICK), "root", "tbf", *limit.split())
    try:
        yield
    finally:
        run("tc", "qdisc", "replace", "dev", port_of(SICK), "root", "tbf", *USUAL.split())


@contextlib.contextmanager
def sent(limit):
    """Limits what the host sends."""
    inside(SICK, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *limit.split())
    try:
        yield
    finally:
        inside(SICK, "tc", "qdisc", "del", "dev", "eth0", "root")


@contextlib.contextmanager
def slow_link():
    """Packets of the host to one other host leave by another, slower interface."""
    own, other = faults.address_of(SICK), faults.address_of(OTHER)
    run("ip", "link", "add", "slow-c", "type", "veth", "peer", "name", "slow", "netns", faults.running(SICK))
    try:
        run("ip", "link", "set", "slow-c", "master", "hosts0", "up")
        # The new interface does not answer for the address of eth0, and answers may arrive at eth0.
        for setting, value in (("arp_ignore", 1), ("rp_filter", 2)):
            inside(SICK, "sh", "-c", f"echo {value} >/proc/sys/net/ipv4/conf/all/{setting}")
        inside(SICK, "ip", "link", "set", "slow", "up")
        inside(SICK, "tc", "qdisc", "add", "dev", "slow", "root", "tbf", *SLOW.split())
        # A broadcast that asks for the other host would lead the answers of all hosts to the new interface.
        there = inside(OTHER, "cat", "/sys/class/net/eth0/address").strip()
        inside(SICK, "ip", "neigh", "add", other, "lladdr", there, "dev", "slow", "nud", "permanent")
        inside(SICK, "ip", "route", "add", f"{other}/32", "dev", "slow", "src", own)
        yield
    finally:
        run("ip", "link", "del", "slow-c")


@contextlib.contextmanager
def delayed():
    try:
        with SlowLink(SICK, 0.02):
            yield
    finally:
        for name in NAMES:
            if name != SICK:
                inside(name, "ip", "neigh", "del", faults.address_of(SICK), "dev", "eth0")
        run("ip", "rule", "del", "priority", "20")


@contextlib.contextmanager
def mtu(inner, outer, segments=()):
    for name in segments:  # each packet is one segment
        inside(name, "ip", "link", "set", "eth0", "gso_max_segs", "1")
    inside(SICK, "ip", "link", "set", "eth0", "mtu", inner)
    run("ip", "link", "set", port_of(SICK), "mtu", outer)
    try:
        yield
    finally:
        run("ip", "link", "set", port_of(SICK), "mtu", "1500")
        inside(SICK, "ip", "link", "set", "eth0", "mtu", "1500")
        for name in segments:
            inside(name, "ip", "link", "set", "eth0", "gso_max_segs", "65535")


# Programs that the doctor asks.

GPUS = "".join(f"GPU-{number}, NVIDIA H100, 0, No, No, 0x0000000000000000, 4\n" for number in range(2))


def printing(text):
    return f"#!/bin/sh\ncat <<'END'\n{text}END\n"


@contextlib.contextmanager
def tools(healthy, sick):
    """Shows programs in /usr/local/bin: those of a healthy host, and those of the host with the fault."""
    others = [name for name in NAMES if name != SICK]
    with covered("/usr/local/bin", healthy, others), covered("/usr/local/bin", sick):
        yield


def gpus(program):
    return lambda: tools({"nvidia-smi": printing(GPUS)}, {"nvidia-smi": program})


def gpu(old, new):
    return gpus(printing(GPUS.replace(old, new, 1)))


def diagnosis(status):
    report = {"tests": [{"name": "Memory", "results": [{"gpu_id": "0", "status": status}]}]}
    return printing(str(report).replace("'", '"') + "\n")


def python(version, torch):
    answer = {"python": version, "packages": {"torch": torch}}
    return {"python3": printing(str(answer).replace("'", '"') + "\n")}


def pythons(version, torch):
    return lambda: tools(python("3.11.2", "2.4.0"), python(version, torch))


WARN, UNKNOWN, LINK = ("warn",), ("unknown",), (SICK, OTHER)
# On a busy machine, a slow host or link may be only a note.
SPEED = ("note", "warn", "fail")
FAULTS = [
    Fault("reach", "a host is down", lost_host, "reach"),
    Fault("cpus", "a CPU set of one processor", one_processor, "cpus", WARN),
    Fault(
        "quota",
        "a quota of half a processor",
        lambda: group("cpu", {"cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": 50000}),
        "cpu_quota",
        WARN,
    ),
    Fault("contention", "other programs on its processor", crowded, "contention", WARN, hosts="c,d"),
    Fault(
        "memory", "a memory limit of 100 MiB", lambda: group("memory", {"memory.limit_in_bytes": 100 << 20}), "memory"
    ),
    Fault("shm", "512 KiB in /dev/shm", small("/dev/shm", "size=512k"), "shm"),
    Fault("shm-inodes", "no inodes in /dev/shm", small("/dev/shm", "nr_inodes=1"), "shm"),
    Fault("tmp", "512 KiB in /tmp", small("/tmp", "size=512k"), "tmp"),
    Fault("disk", "a read-only /tmp", small("/tmp", "ro"), "disk", level="full"),
    Fault("disk-hangs", "a frozen file system", frozen_disk, "disk", UNKNOWN, level="full"),
    Fault("nofile", "256 open files", lambda: limited("nofile=256:256"), "nofile", WARN),
    Fault("nproc", "20 processes of a user", lambda: limited("nproc=20:20"), "nproc", WARN),
    Fault("pids", "30 processes in a cgroup", lambda: group("pids", {"pids.max": 30}), "pids", WARN),
    Fault("memlock", "InfiniBand, and little locked memory", locked_memory, "memlock"),
    Fault("rdma", "an InfiniBand port that is down", lambda: infiniband("1: DOWN\n"), "rdma"),
    Fault("pcie", "half of the PCIe lanes", device("8\n"), "pcie", WARN),
    Fault("duplex", "a half-duplex card", interface_file("duplex", "half\n"), "duplex", WARN),
    Fault("link-speed", "a card at a tenth of its speed", interface_file("speed", "1000\n"), "link_speed", WARN),
    Fault("mtu", "another MTU", lambda: mtu("1400", "1400"), "mtu", WARN),
    Fault("names", "a name that does not resolve", missing_names, "names", WARN),
    Fault("cut", "two hosts that cannot connect", lambda: cut(OTHER), "reach_pair", place=LINK),
    Fault("cut-off", "a host to which no other host can connect", lambda: cut("a", "b", "d"), "reach_peers"),
    Fault("mtu-lost", "large packets are lost", lambda: mtu("1500", "1200", NAMES), "mtu_lost"),
    Fault("latency", "20 ms more on the way to a host", delayed, "latency", ("note", "warn")),
    Fault("receives", "a host that receives at a fifth", lambda: received(SLOW), "bandwidth", SPEED),
    Fault("sends", "a host that sends at a fifth", lambda: sent(SLOW), "bandwidth", SPEED),
    Fault("link", "a link at a fifth", slow_link, "link_bandwidth", SPEED, LINK),
    Fault("loss", "a queue of two packets", lambda: received("rate 20mbit burst 3000 limit 3000"), "retransmits", WARN),
    Fault("gpu-ecc", "uncorrected errors of a GPU", gpu("H100, 0", "H100, 3"), "gpu_ecc"),
    Fault("gpu-remap", "a row that could not be remapped", gpu("No, No", "Yes, No"), "gpu_remap"),
    Fault("gpu-clocks", "a hot GPU", gpu("0x0000000000000000", "0x0000000000000020"), "gpu_clocks", WARN),
    Fault("gpu-memory", "20 GiB of a GPU in use", gpu(", 4\n", ", 20480\n"), "gpu_memory", WARN),
    Fault("gpu-count", "a GPU is missing", gpus(printing(GPUS.splitlines(True)[0])), "gpu_count"),
    Fault("gpu-hangs", "nvidia-smi hangs", gpus("#!/bin/sh\nexec sleep 1000\n"), "gpu_tool", UNKNOWN),
    Fault("gpu-garbage", "nvidia-smi prints garbage", gpus(printing("Segmentation\n")), "gpu_tool", UNKNOWN),
    Fault("gpu-dies", "nvidia-smi fails", gpus("#!/bin/sh\nkill -SEGV $$\n"), "gpu_tool", UNKNOWN),
    Fault(
        "dcgm",
        "dcgmi diag fails",
        lambda: tools({"dcgmi": diagnosis("Pass")}, {"dcgmi": diagnosis("Fail")}),
        "dcgm",
        level="full",
    ),
    Fault("python", "another Python", pythons("3.9.2", "2.4.0"), "python", WARN),
    Fault("package", "another PyTorch", pythons("3.11.2", "2.3.1"), "package", WARN),
]
