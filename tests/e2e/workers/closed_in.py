#!/usr/bin/python3 -B
"""Runs a command with one restriction of a small container: closed_in.py WHAT COMMAND...

    shm=SIZE     /dev/shm of that size, for example 64m or 4k
    no-peeking   ptrace, process_vm_readv and similar calls fail with EPERM, by seccomp
    half-a-core  half of a core, by the CPU controller of cgroup v2 or v1
    one-cpu      the last CPU, by a cpuset of cgroup v1

Exits with 77 and a line on standard output if this machine cannot make the restriction.
"""

import ctypes
import os
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "hosts"))
import namespaces as ns

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
EPERM, ALLOW, ERRNO = 1, 0x7FFF0000, 0x00050000
# ptrace, process_vm_readv, process_vm_writev, pidfd_getfd, process_madvise on x86-64
NUMBERS = (101, 310, 311, 438, 440)


def small_shm(size):
    ns.unshare(ns.NEWNS)
    ns.make_private()
    ns.mount("none", "/dev/shm", "tmpfs", 0, f"size={size},mode=1777")


def no_peeking():
    """Installs a seccomp filter in classic BPF: load the number of the call, compare, return a verdict."""
    steps = [(0x20, 0, 0, 0)]
    for index, number in enumerate(NUMBERS):
        steps.append((0x15, len(NUMBERS) - index, 0, number))
    steps += [(0x06, 0, 0, ALLOW), (0x06, 0, 0, ERRNO | EPERM)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    memory = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0
    ):
        raise OSError(ctypes.get_errno(), "seccomp: " + os.strerror(ctypes.get_errno()))
    assert libc.ptrace(0, 0, 0, 0) == -1 and ctypes.get_errno() == EPERM


def one_cpu():
    group = pathlib.Path("/sys/fs/cgroup/cpuset") / os.environ["HVD_TEST_GROUP"]
    group.mkdir()
    (group / "cpuset.mems").write_text((group.parent / "cpuset.mems").read_text())
    (group / "cpuset.cpus").write_text(str(max(os.sched_getaffinity(0))))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def half_a_core():
    """All ranks of a job share one cgroup; the test passes its name."""
    name = os.environ["HVD_TEST_GROUP"]
    two = pathlib.Path("/sys/fs/cgroup/cgroup.controllers")
    root = pathlib.Path("/sys/fs/cgroup" if two.exists() else "/sys/fs/cgroup/cpu")
    group = root / name
    group.mkdir(exist_ok=True)
    if two.exists():
        (group / "cpu.max").write_text("50000 100000")
    else:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("50000")
    (group / "cgroup.procs").write_text(str(os.getpid()))


def main():
    what, *command = sys.argv[1:]
    try:
        if what.startswith("shm="):
            small_shm(what.removeprefix("shm="))
        elif what == "no-peeking":
            no_peeking()
        elif what == "half-a-core":
            half_a_core()
        elif what == "one-cpu":
            one_cpu()
        else:
            sys.exit(f"closed_in.py: {what}?")
    except OSError as error:
        print(f"cannot be closed in: {error}", flush=True)
        sys.exit(77)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
