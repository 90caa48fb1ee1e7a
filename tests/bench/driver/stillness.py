"""Counts the wake-ups and the packets of idle processes."""

import pathlib
import re
import subprocess


def _wakeups(pid):
    """Returns the number of voluntary context switches of a process's threads: each is a wake-up."""
    total = 0
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        total += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status.read_text(), re.M)[1])
    return total


def _packets(pid):
    """Returns the number of segments that the process's TCP connections have sent and received."""
    listing = subprocess.run(
        ["nsenter", "--target", str(pid), "--net", "ss", "-tinpOH"], capture_output=True, text=True, check=True
    ).stdout
    own = [line for line in listing.splitlines() if f"pid={pid}," in line]
    return sum(int(count) for line in own for count in re.findall(r"\bsegs_(?:in|out):(\d+)", line))


def activity(pids):
    """Returns (wake-ups, packets) of all processes since their start."""
    return sum(map(_wakeups, pids)), sum(map(_packets, pids))
