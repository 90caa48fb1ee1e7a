"""Linux namespaces and mounts from Python's standard library: unshare, mount, cover.

Independent of hosts. Every failure is an OSError whose text names the call and its target.
"""

import ctypes
import os
import signal

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x8, 0x20, 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags):
    _check(_libc.unshare(flags), "unshare")


def die_with_parent():
    """Makes the kernel kill this process when its parent ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def mount(source, target, kind=None, flags=0, options=None):
    def encode(text):
        return os.fsencode(text) if text is not None else None

    _check(
        _libc.mount(encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(options)),
        f"mount on {target}",
    )


def make_private():
    """Separates mounts: mounts of this process stay invisible outside, and outside mounts invisible here."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def bind(source, target):
    mount(source, target, None, MS_BIND | MS_REC)


def is_below(path, folder):
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def cover(folder, keep=(), mode=0o755, owner=None, flags=0, options=""):
    """Mounts an empty folder over `folder`; the folders in `keep` below it stay visible."""
    kept = [path for path in keep if is_below(path, folder)]
    # An earlier descriptor still reaches a covered path.
    handles = [(path, os.open(path, os.O_PATH)) for path in kept]
    mount("tmpfs", folder, "tmpfs", flags, f"mode={mode:o}{options}")
    if owner:
        os.chown(folder, *owner)
    for path, handle in handles:
        os.makedirs(path, exist_ok=True)
        bind(f"/proc/self/fd/{handle}", path)
        os.close(handle)


def renew_sys():
    """Mounts a /sys that shows the network interfaces of this namespace and the original cgroups."""
    handle = os.open("/sys/fs/cgroup", os.O_PATH) if os.path.ismount("/sys/fs/cgroup") else None
    mount("sysfs", "/sys", "sysfs")
    if handle is not None:
        bind(f"/proc/self/fd/{handle}", "/sys/fs/cgroup")
        os.close(handle)


def start_time(pid):
    """Returns the start time of a living process, to detect a reused PID."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
