"""Provides the Python stack of this process, so that the runtime can show it for a rank that delays other ranks.

The runtime runs no Python on its threads. Therefore Python's faulthandler gets an unused signal. The
handler of this signal is pure C, and writes the stack of the thread to which the runtime sends the signal. A program's
own use of faulthandler and of signals stays as it is.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import os
import signal
from typing import Optional

from horovod._library import library


def _free_signal() -> Optional[int]:
    """Returns a real-time signal that this process does not handle, ignore or block; or None."""
    taken = 0
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            name, _, mask = line.partition(":")
            if name in ("SigCgt", "SigIgn", "SigBlk"):
                taken |= int(mask, 16)
    candidates = range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1)
    return next((number for number in candidates if not taken & 1 << number - 1), None)


@functools.lru_cache(maxsize=None)
def offer() -> bool:
    """Provides this process's stack, once. Returns False if that is impossible."""
    try:
        number = _free_signal()
        if number is None:
            return False
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        faulthandler.register(number, file=writer, all_threads=False, chain=False)
        # Announces the stack to this host's agent, which shows it on the launcher's request.
        os.memfd_create(f"horovod-stack:{number}:{reader}")
    except (OSError, RuntimeError, ValueError):
        return False
    error = ctypes.create_string_buffer(1024)
    status: int = library().hvd_offer_stack(number, reader, ctypes.addressof(error), len(error))
    return status == 0
