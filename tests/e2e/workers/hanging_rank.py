#!/usr/bin/python3
"""Rank 1 hangs as --kind requests, while other ranks wait in a collective of --library. Each prints "hangs" first."""

import argparse
import atexit
import ctypes
import os
import signal
import threading
import time

from collective_libraries import LIBRARIES, RANK

CLONE_NEWNS, MS_REC_PRIVATE = 0x20000, 0x44000


def skip():
    time.sleep(600)


def lock_twice():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def mount_a_dead_file_system():
    """Mounts a FUSE file system without a server at /mnt, only for this process. Returns False without the rights."""
    libc = ctypes.CDLL(None)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        return False
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    return (
        libc.unshare(CLONE_NEWNS) == 0
        and libc.mount(None, b"/", None, MS_REC_PRIVATE, None) == 0
        and libc.mount(b"dead", b"/mnt", b"fuse", 0, options) == 0
    )


def dead_file():
    """Returns a path whose open() blocks forever; in a dead file system, not even a signal ends it."""
    if mount_a_dead_file_system():
        return "/mnt/shard"
    path = f"/tmp/hanging-{os.getpid()}"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_PATH)
    os.unlink(path)
    return f"/proc/self/fd/{descriptor}"


def read_a_dead_file():
    open(dead)


def wait_at_exit():
    time.sleep(600)


def be_stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


KINDS = {
    "skip": skip,
    "lock": lock_twice,
    "file": read_a_dead_file,
    "stop": be_stopped,
}

parser = argparse.ArgumentParser()
parser.add_argument("--library", required=True, choices=LIBRARIES)
parser.add_argument("--kind", required=True)
options = parser.parse_args()
library = LIBRARIES[options.library]()
if options.kind == "file" and RANK == 1:
    dead = dead_file()
print("hangs", flush=True)
if options.kind == "order":
    library.call_in_other_order()
elif RANK != 1:
    library.reduce()
elif options.kind == "group":
    library.reduce_in_other_group()
elif options.kind == "exit":
    atexit.register(wait_at_exit)
else:
    KINDS[options.kind]()
