"""Open ends of pipes and sockets whose end of file says that this process has ended."""

from __future__ import annotations

import os
import weakref
from typing import Any

_lifelines: weakref.WeakSet[Any] = weakref.WeakSet()


def keep_from_children(end: Any) -> Any:
    """Returns the open socket or file. A child by fork gets /dev/null in its place: with a copy of its own, the other
    end would take this process to be alive until that child ends too."""
    _lifelines.add(end)
    return end


def _leave() -> None:
    numbers = []
    for end in list(_lifelines):
        try:
            numbers.append(end.fileno())
        except ValueError:
            pass  # a closed file
    numbers = [number for number in numbers if number >= 0]  # not of closed sockets
    if numbers:
        null = os.open(os.devnull, os.O_RDWR)
        for number in numbers:
            # The objects stay in the child and close their numbers, which must not be those of other files then.
            os.dup2(null, number, inheritable=False)
        os.close(null)


os.register_at_fork(after_in_child=_leave)
