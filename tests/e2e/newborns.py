"""Stops the child of a vfork by ptrace before it executes a program, so that a fault can hit a half-done start."""

import ctypes
import os
import pathlib
import time

from harness import Failure

SEIZE, DETACH, CONTINUE, EVENT_MESSAGE = 0x4206, 17, 7, 0x4201
TRACE_VFORK, TRACE_EXEC, VFORK_EVENT, EXEC_EVENT = 1 << 2, 1 << 4, 2, 4
WAIT_ALL = 0x40000000
SECONDS = 200
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def ptrace(request, pid, data=0):
    if LIBC.ptrace(request, pid, None, data) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def wait_for_stop(pid, what):
    """Returns the status of a traced process that stops or ends."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, WAIT_ALL | os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    raise Failure(f"not within {SECONDS} s: {what}")


class Newborns:
    """Stops the children of one process, which waits in vfork for a stopped child. One thread."""

    def __init__(self, parent):
        self.parent, self.child = parent, None
        ptrace(SEIZE, parent, TRACE_VFORK | TRACE_EXEC)

    def hold(self):
        """Waits for the next child and stops it."""
        if self.child is not None:
            ptrace(CONTINUE, self.parent)
        self.child = self.wait_for_event(self.parent, VFORK_EVENT, "a further child of the agent")
        wait_for_stop(self.child, "a stop of the child")

    def execute(self):
        """Releases the child once it has executed its program, and returns the program's command line.

        Reading /proc later would be too early: vfork returns in the parent while the new command line is still
        empty."""
        ptrace(CONTINUE, self.child)
        self.wait_for_event(self.child, EXEC_EVENT, "the program of the child")
        words = pathlib.Path(f"/proc/{self.child}/cmdline").read_text(errors="replace").split("\0")
        ptrace(DETACH, self.child)
        return words[:-1]

    def wait_for_event(self, pid, event, what):
        while True:
            status = wait_for_stop(pid, what)
            if not os.WIFSTOPPED(status):
                raise Failure(f"process {pid} has ended before {what}")
            if status >> 16 == event:
                break
            ptrace(CONTINUE, pid, 0 if status >> 16 else os.WSTOPSIG(status))
        message = ctypes.c_ulong()
        ptrace(EVENT_MESSAGE, pid, ctypes.addressof(message))
        return message.value

    def release(self):
        """Lets the child continue, or reaps a child that was killed meanwhile."""
        try:
            ptrace(DETACH, self.child)
        except ProcessLookupError:
            os.waitpid(self.child, WAIT_ALL)

    def leave_parent(self):
        ptrace(DETACH, self.parent)
