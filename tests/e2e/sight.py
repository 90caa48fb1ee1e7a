"""Finds the host of a process, and the agents and guardians of a host. harness.py imports it."""

import os
import pathlib

import faults
import host


def in_world():
    return (host.STATE / "spec.json").exists()


def first_processes():
    return [1, *(pid for pid in map(host.pid_of, host.spec()["names"]) if pid)]


def host_of(entry):
    try:
        space = os.readlink(entry / "ns/uts")
        for name in host.spec()["names"]:
            if (pid := host.pid_of(name)) and os.readlink(f"/proc/{pid}/ns/uts") == space:
                return name
    except OSError:
        pass
    return "launcher"


def agents(name):
    """Returns the agents on a host, and the guardians above them. A rank that has not executed its program yet also
    runs the agent's program; its parent is an agent, not a guardian."""
    found = {}
    for pid in faults.processes(name):
        try:
            program = os.readlink(f"/proc/{pid}/exe")
            if "horovod-agent" in pathlib.Path(program).name:
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
                found[pid] = int(stat.rpartition(")")[2].split()[1]), "(hvd-watchdog)" in stat
        except OSError:
            continue
    guardians = [pid for pid, (parent, is_named) in found.items() if is_named and parent not in found]
    return {"agent": [pid for pid, (parent, _) in found.items() if parent in guardians], "guardian": guardians}
