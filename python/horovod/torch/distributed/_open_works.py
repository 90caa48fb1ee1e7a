"""The incomplete works of a group, which a program need not keep."""

from __future__ import annotations

import contextlib
import re
import sys
import weakref
from typing import Any, Dict, List

import torch
import torch.distributed as dist

# Before torch 2.9, C++ keeps a work but not its Python object, which has the methods. C++ may still wait for a work
# that another thread has completed. Therefore the object stays, without its outputs, until that wait, or until _KEPT
# newer objects exist.
_FORGETS = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < (2, 9)
_KEPT = 240
# With more works than this, each add() checks whether older works are complete, since a program may have dropped them.
_FEW = 4


class OpenWorks:
    """Keeps works until they are complete. Any thread."""

    def __init__(self) -> None:
        self._works: Dict[int, Any] = {}
        self._ended: Dict[int, Any] = {}
        self._released: Dict[int, Any] = {}  # complete works without their outputs

    def add(self, work: Any) -> None:
        if len(self._works) > _FEW:
            for _ in range(1 + len(self._works) // 64):
                self._complete_one()
        if self._ended:
            for _ in range(2 + len(self._ended) // 16):
                self._release_one()
        work._group_works = self
        self._works[id(work)] = work

    def all(self) -> List[Any]:
        """Returns the works, the oldest first, except that `add` moves the incomplete works it has checked to the
        end."""
        return list(self._works.values())

    def ended(self, work: Any) -> None:
        """Removes a complete work, which calls this method."""
        if self._works.pop(id(work), None) is not None and _FORGETS:
            self._ended[id(work)] = work

    def forget(self, work: Any) -> None:
        """Drops a work after a wait for the work, because C++ waits once."""
        self._ended.pop(id(work), None)
        self._released.pop(id(work), None)

    def _complete_one(self) -> None:
        with contextlib.suppress(Exception):  # no work is left, another thread has removed it, or the runtime has ended
            work = next(iter(self._works.values()))
            # The thread that completes futures completes a work with a future.
            if not work._is_done and (work._future is not None or not work.is_completed()):
                self._works[id(work)] = self._works.pop(id(work))  # moves the work behind the other works
            if work._is_done:
                self.ended(work)

    def _release_one(self) -> None:
        with contextlib.suppress(Exception):
            number = next(iter(self._ended))
            work = self._ended.pop(number)
            if sys.getrefcount(work) == 2:  # this variable and the argument: the program holds no reference
                work.release()
                self._released[number] = work
            elif len(self._ended) < _KEPT:
                self._ended[number] = work  # moves the work behind the other works
            if len(self._released) > _KEPT:
                del self._released[next(iter(self._released))]


# The last work that DistributedDataParallel passed to its C++ reducer, which waits for it in the next backward pass
# without a reference to its Python object. With torch's Join, it gives the number of ranks that still have data.
_of_reducers: Any = weakref.WeakKeyDictionary()


def keep_those_of_reducers() -> None:
    """Makes each of torch's reducers keep the Python object of the last work that it got."""
    give = dist.Reducer._set_forward_pass_work_handle
    if hasattr(give, "_hvd_original"):  # this package may be imported again
        return

    def keep(reducer: Any, work: Any, *more: Any) -> None:
        _of_reducers[reducer] = work
        give(reducer, work, *more)

    keep._hvd_original = give  # type: ignore[attr-defined]
    dist.Reducer._set_forward_pass_work_handle = keep
