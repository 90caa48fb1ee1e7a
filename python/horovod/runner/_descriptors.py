"""Pipe and socket ends whose end of file signals that this process has ended."""

from __future__ import annotations

import os
import weakref
from typing import Any

_lifelines: weakref.WeakSet[Any] = weakref.WeakSet()


def keep_from_children(end: Any) -> Any:
    """Returns the open socket or file. A forked child gets /dev/null in its place: with a copy in the child, the peer
    would treat this process as alive until the child ends too."""
    _lifelines.add(end)
    return end


def _leave() -> None:
    numbers = []
    for end in list(_lifelines):
        try:
            numbers.append(end.fileno())
        except ValueError:
            pass  # a closed file
    numbers = [number for number in numbers if number >= 0]  # omits closed sockets
    if numbers:
        null = os.open(os.devnull, os.O_RDWR)
        for number in numbers:
            # The objects remain in the child and close their numbers later, which must then not belong to other files.
            os.dup2(null, number, inheritable=False)
        os.close(null)


os.register_at_fork(after_in_child=_leave)
