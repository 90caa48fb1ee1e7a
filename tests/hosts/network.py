"""Addresses and links: a bridge in the launcher's namespace, an eth0 in each host, and decoys.

eth0     10.77.0.N   connects the hosts and the launcher (10.77.255.254)
eth1     10.78.0.N   up and with an address, but every packet is lost: a connect hangs
docker0  172.17.0.1  up, and the same on all hosts
Runs in the launcher's network namespace; enters a host's by the PID of its first process.
"""

import subprocess

BRIDGE = "hosts0"
LAUNCHER = "launcher"
LAUNCHER_ADDRESS = "10.77.255.254"
# An unused hardware address: packets to it are lost without an error.
NOBODY = "02:00:00:00:de:ad"
# A routing table for packets whose path leads through this machine.
DIVERTED = 100


def address(index):
    return f"10.77.{index // 250}.{index % 250 + 1}"


def _ip(lines, pid=None):
    enter = ["nsenter", "--target", str(pid), "--net"] if pid else []
    done = subprocess.run(
        [*enter, "ip", "-batch", "-"],
        input="\n".join(lines) + "\n",
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"ip: {done.stderr.strip().splitlines()[0]}")


def make_bridge():
    _ip(
        [
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"link set {BRIDGE} up",
            f"addr add {LAUNCHER_ADDRESS}/16 dev {BRIDGE}",
        ]
    )


def plug_in(indices_and_pids, decoys):
    """Gives each host (its index, the PID of its first process) its interfaces."""
    outside = []
    for index, pid in indices_and_pids:
        # The kernel may still be removing the interfaces of a host that has just ended.
        for end in (f"eth0-{index}", f"eth1-{index}"):
            try_ip(f"link del {end}")
        outside += [
            f"link add eth0-{index} type veth peer name eth0 netns {pid}",
            f"link set eth0-{index} master {BRIDGE} up",
        ]
        if decoys:
            outside += [f"link add eth1-{index} type veth peer name eth1 netns {pid}", f"link set eth1-{index} up"]
    _ip(outside)
    for index, pid in indices_and_pids:
        inside = ["link set lo up", f"addr add {address(index)}/16 dev eth0", "link set eth0 up"]
        if decoys:
            # A host does not resolve the hardware address, and the far end has no address to reply from.
            lost = address(index).replace("10.77.", "10.78.")
            inside += [
                f"addr add {lost}/16 dev eth1",
                "link set eth1 arp off up",
                "link add docker0 type bridge",
                "addr add 172.17.0.1/16 dev docker0",
                "link set docker0 up",
            ]
        _ip(inside, pid)


def unplug(index):
    _ip([f"link set eth0-{index} down"])


def cut(device, peer_address, pid=None):
    """Drops every packet to the peer silently: neither side gets an error."""
    _ip([f"neigh replace {peer_address} lladdr {NOBODY} nud permanent dev {device}"], pid)


def heal(device, peer_address, pid=None):
    try_ip(f"neigh del {peer_address} dev {device}", pid)


def divert(ends):
    """Diverts packets between two hosts (the address of each, the PID of its first process) to programs of this
    machine, which listen and connect with IP_TRANSPARENT."""
    with open(f"/sys/class/net/{BRIDGE}/address", encoding="ascii") as file:
        here = file.read().strip()
    lines = [f"route replace local default dev lo table {DIVERTED}"]
    for (one, pid), (other, _) in (ends, ends[::-1]):
        _ip([f"neigh replace {other} lladdr {here} nud permanent dev eth0"], pid)
        lines.append(f"rule add iif {BRIDGE} from {one} to {other} lookup {DIVERTED}")
    _ip(lines)


def try_ip(line, pid=None):
    """Runs one ip command, and ignores its failure: the object may be missing."""
    try:
        _ip([line], pid)
    except OSError:
        pass
