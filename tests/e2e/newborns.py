"""Stops the child of a vfork by ptrace before it executes a program. A fault at this moment meets a start
that is half done."""
import ctypes
import os

SEIZE, DETACH, CONTINUE, EVENT_MESSAGE = 0x4206, 17, 7, 0x4201
TRACE_VFORK, VFORK_EVENT = 1 << 2, 2
WAIT_ALL = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def ptrace(request, pid, data=0):
    if LIBC.ptrace(request, pid, None, data) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class Newborns:
    """Stops the children of one process, which waits in vfork for a stopped child. One thread."""

    def __init__(self, parent):
        self.parent, self.child = parent, None
        ptrace(SEIZE, parent, TRACE_VFORK)

    def hold(self):
        """Waits for the next child and stops it."""
        if self.child is not None:
            ptrace(CONTINUE, self.parent)
        self.child = self.wait_for_vfork()
        os.waitpid(self.child, WAIT_ALL)

    def wait_for_vfork(self):
        while True:
            _, status = os.waitpid(self.parent, WAIT_ALL)
            if not os.WIFSTOPPED(status):
                raise OSError(f"process {self.parent} has ended")
            if status >> 16 == VFORK_EVENT:
                break
            ptrace(CONTINUE, self.parent, os.WSTOPSIG(status))
        child = ctypes.c_ulong()
        ptrace(EVENT_MESSAGE, self.parent, ctypes.addressof(child))
        return child.value

    def release(self):
        """Lets the child continue, or reaps a child that was killed meanwhile."""
        try:
            ptrace(DETACH, self.child)
        except ProcessLookupError:
            os.waitpid(self.child, WAIT_ALL)

    def leave_parent(self):
        ptrace(DETACH, self.parent)
