"""Faults of a host: a crash, a freeze, a cut link. Runs in the launcher's namespaces, as root."""

import os
import pathlib
import signal
import time

import host
import network


def processes(name):
    """Returns all processes of a host except its first one, as PIDs of the launcher's namespace."""
    first = host.pid_of(name)
    if first is None:
        return []
    mine = os.readlink(f"/proc/{first}/ns/pid")
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == first:
            continue
        try:
            if os.readlink(entry / "ns/pid") == mine:
                found.append(int(entry.name))
        except OSError:
            pass  # the process has just ended
    return found


def said_of(pid, file):
    """Returns the text of a file in /proc/PID; empty once the process has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""


def crash(name):
    """Cuts the host's links first, so that the kernel cannot close connections; then kills all processes."""
    network.unplug(host.spec()["names"].index(name))
    end(name)


def end(name):
    first = running(name)
    os.kill(first, signal.SIGKILL)
    while host.pid_of(name) is not None:
        time.sleep(0.01)


def freeze(name):
    signal_all(name, signal.SIGSTOP)


def thaw(name):
    signal_all(name, signal.SIGCONT)


def signal_all(name, number):
    for pid in processes(name):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # the process has just ended


def cut(name, peer):
    each_way(network.cut, name, peer)


def heal(name, peer):
    each_way(network.heal, name, peer)


def each_way(change, name, peer):
    for one, other in ((name, peer), (peer, name)):
        if one == network.LAUNCHER:
            change(network.BRIDGE, address_of(other))
        else:
            change("eth0", address_of(other), running(one))


def address_of(name):
    if name == network.LAUNCHER:
        return network.LAUNCHER_ADDRESS
    return network.address(host.spec()["names"].index(name))


def running(name):
    pid = host.pid_of(name)
    if pid is None:
        raise OSError(f"host {name} is not running")
    return pid
