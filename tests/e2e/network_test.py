#!/usr/bin/python3 -B
"""Networks between hosts: decoy addresses do no harm, flags choose interfaces, ports stay in their range."""

from harness import *
import network

REDUCES = [PYTHON, WORKERS / "reducing_rank.py", "--rank", 99, "--then", "exit3", "--go", "/nowhere"]
WHERE = ["sh", "-c", "echo $MASTER_ADDR by $GLOO_SOCKET_IFNAME, $NCCL_SOCKET_IFNAME."]
LISTENING = "0A"


def second_network():
    """Adds a second network, whose interfaces have different names on the hosts."""
    for index, (name, interface) in enumerate({"a": "fast0", "b": "ens9"}.items()):
        network._ip(
            [
                f"link add more-{name} type veth peer name {interface} netns {host.pid_of(name)}",
                f"link set more-{name} master {network.BRIDGE} up",
            ]
        )
        network._ip([f"addr add 10.79.0.{index + 1}/16 dev {interface}", f"link set {interface} up"], host.pid_of(name))


def sockets(pid, state=None):
    """Returns local and remote address and port of each TCP socket in a process's network namespace."""
    found = set()
    for table in ("tcp", "tcp6"):
        for row in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = row.split()
            if state in (None, words[3]):
                found.add(
                    tuple((address[-8:], int(port, 16)) for address, port in (word.split(":") for word in words[1:3]))
                )
    return found


def listeners():
    return {(pid, address[0][1]) for pid in first_processes() for address in sockets(pid, LISTENING)}


@world()
def test_decoys_neither_hang_nor_slow_a_start():
    # A connection to an address that drops packets would time out much later.
    job = Job(
        *"-np 4 -H a:2,b:2 --start-timeout 120".split(),
        PYTHON,
        "-c",
        "import numpy, horovod.numpy as hvd; hvd.init(); hvd.allreduce(numpy.ones(1)); print('met')",
    )
    job.ends_with(0)
    expect(job.out.count("met") == 4, job.describe())
    expect(job.said() == [], job.describe())
    Job("-np", 2, "-H", "a:1,b:1", "true").ends_with(0)


@world()
def test_named_networks_are_used_by_whatever_name_each_host_has_for_them():
    second_network()
    for rules, address in {
        "10.79.0.0/16": "10.79.0.1",
        "fast0,ens*": "10.79.0.1",
        "^10.77.0.0/16,^eth1,^docker0": "10.79.0.1",
        "eth0": "10.77.0.1",
    }.items():
        job = Job("-np", 2, "-H", "a:1,b:1", "--network-interfaces", rules, *WHERE)
        job.ends_with(0)
        names = ("fast0", "ens9") if address == "10.79.0.1" else ("eth0", "eth0")
        for rank, name in enumerate(names):
            expect(f"[{rank}]<stdout>:{address} by {name}, ={name}." in job.out, job.describe())
    before = {name: sockets(host.pid_of(name), LISTENING) for name in "ab"}
    job = Job("-np", 2, "-H", "a:1,b:1", "--network-interfaces", "10.79.0.0/16", *REDUCES)
    job.wait_for("ready", 2)
    wanted = {"01004F0A", "02004F0A"}
    linked = {frozenset((one[0], other[0])) for one, other in sockets(host.pid_of("a"))}
    expect(frozenset(wanted) in linked, f"{linked}\n{job.describe()}")
    expect(frozenset(("01004D0A", "02004D0A")) not in linked, linked)
    for name, own in (("a", "01004F0A"), ("b", "02004F0A")):
        found = {one[0] for one, _ in sockets(host.pid_of(name), LISTENING) - before[name]}
        found.discard("0100007F")  # the PMIx server of the host
        expect(found == {own}, f"listeners on {name}: {found}\n{job.describe()}")
    job.signal(signal.SIGINT)
    job.ends_with(130)


@world()
def test_a_network_that_leads_nowhere_is_named_in_time():
    job = Job("-np", 2, "-H", "a:1,b:1", "--start-timeout", 120, "--network-interfaces", "eth1", "hostname")
    job.ends_with(0)
    one_sentence(job, "host b reaches none", r"10\.78\.0\.1 \(eth1\)", "--network-interfaces")
    job = Job("-np", 2, "-H", "a:1,b:1", "--network-interfaces", "nic7", "hostname")
    job.ends_with(2)
    for name in "ab":
        expect(
            f"host {name}: prepare: --network-interfaces selects none of the interfaces here: " in job.err
            and "eth0" in job.err,
            job.describe(),
        )


@world()
def test_every_listener_stays_within_the_range():
    before = listeners()
    job = Job(
        *"-np 4 -H a:2,b:2 --port-range 29500-29509".split(),
        "--insecure-compat",
        "sh",
        "-c",
        f"echo port $MASTER_PORT; exec {' '.join(map(str, REDUCES))}",
    )
    job.wait_for("ready", 4)
    expect(len(re.findall("port 29500$", job.out, re.MULTILINE)) == 4, job.describe())
    found = listeners() - before
    expect({port for _, port in found} <= set(range(29500, 29510)), f"{found}\n{job.describe()}")
    expect((host.pid_of("a"), 29500) not in found, "rank 0's MASTER_PORT is taken")
    for name in "ab":
        ports = [port for pid, port in found if pid == host.pid_of(name)]
        expect(len(ports) >= 3, f"two ranks and the store were expected on {name}: {found}")
    job.signal(signal.SIGINT)
    job.ends_with(130)


def test_flags_that_make_no_sense():
    for flags, words in {
        ("--port-range", "9-1"): "--port-range: '9-1'",
        ("--network-interfaces", "10.0.0.0/99"): "--network-interfaces: '10.0.0.0/99'",
    }.items():
        job = Job("-np", 1, *flags, "true")
        job.ends_with(2)
        one_sentence(job, re.escape(words))


@world("a", "--no-decoys")
def test_a_loopback_that_is_down_is_named():
    job = Job("-n", LAUNCHER, "-np", 2, "sh", "-c", "echo rank $HOROVOD_RANK", program=shutil.which("unshare"))
    job.ends_with(0)
    expect(
        job.said()
        == [
            "host localhost: its loopback interface lo is down, so programs there cannot "
            "connect to each other; run there as root: ip link set lo up"
        ],
        job.describe(),
    )


if __name__ == "__main__":
    main()
