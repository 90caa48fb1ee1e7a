"""Hosts and the ranks on them, under the name that scripts import."""

from __future__ import annotations

import dataclasses
import re
from typing import Dict, List, Optional, Tuple


@dataclasses.dataclass
class HostInfo:
    """A host and the number of ranks that it takes."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Returns the host of a text such as "a:2". Raises ValueError for another text."""
        found = re.fullmatch(r"([\w.-]+):([0-9]+)", host_string.strip())
        if found is None:
            raise ValueError(f"Invalid host input {host_string!r}: write hostname:slots, such as a:2.")
        return HostInfo(found[1], int(found[2]))


@dataclasses.dataclass
class SlotInfo:
    """A rank's place in a job."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: Optional[int] = None
    local_size: Optional[int] = None
    cross_size: Optional[int] = None

    def to_response_string(self) -> str:
        """Returns the rank, the local and the cross rank, each with its size, joined by commas."""
        return ",".join(
            map(str, (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size))
        )

    @staticmethod
    def from_response_string(response_string: str) -> SlotInfo:
        """Returns the slot of `to_response_string`, without a host name."""
        rank, size, local_rank, local_size, cross_rank, cross_size = map(int, response_string.split(","))
        return SlotInfo("", rank, local_rank, cross_rank, size, local_size, cross_size)


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> List[HostInfo]:
    """Returns the hosts of a text such as "a:2,b:2". Raises ValueError for another text."""
    return [HostInfo.from_string(each) for each in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> Tuple[List[str], Dict[str, int]]:
    """Returns the names of the hosts, and the slots of each name. Raises ValueError as for `parse_hosts`."""
    found = parse_hosts(hosts)
    return [host.hostname for host in found], {host.hostname: host.slots for host in found}


def parse_host_files(filename: str) -> str:
    """Returns the text for `parse_hosts` of a hostfile with lines such as "a slots=2"."""
    hosts = []
    with open(filename, encoding="utf-8") as lines:
        for line in lines:
            words = line.partition("#")[0].split()
            if not words:
                continue
            slots = [word[len("slots=") :] for word in words[1:] if word.startswith("slots=")]
            if len(slots) != 1:
                raise ValueError(f"{filename}: {line.strip()!r} is not a host and its slots=N.")
            hosts.append(f"{words[0]}:{slots[0]}")
    return ",".join(hosts)


def get_host_assignments(
    hosts: List[HostInfo], min_num_proc: int, max_num_proc: Optional[int] = None
) -> List[SlotInfo]:
    """Returns the slots of all ranks: each host in order takes one rank per slot, up to `max_num_proc` ranks. Raises
    ValueError for fewer than `min_num_proc` slots."""
    slots: List[SlotInfo] = []
    for host in hosts:
        for local_rank in range(host.slots):
            if max_num_proc is not None and len(slots) == max_num_proc:
                break
            slots.append(SlotInfo(host.hostname, len(slots), local_rank, 0))
    if len(slots) < min_num_proc:
        raise ValueError(f"Requested more processes ({min_num_proc}) than there are available slots ({len(slots)}).")
    across: Dict[int, List[str]] = {}  # the hosts that have the local rank
    counts: Dict[str, int] = {}
    for slot in slots:
        names = across.setdefault(slot.local_rank, [])
        slot.cross_rank = len(names)
        names.append(slot.hostname)
        counts[slot.hostname] = counts.get(slot.hostname, 0) + 1
    for slot in slots:
        slot.size, slot.cross_size = len(slots), len(across[slot.local_rank])
        slot.local_size = counts[slot.hostname]
    return slots
