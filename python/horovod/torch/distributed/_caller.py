"""Submits the collectives of a group to the runtime: each call has a number, a time limit and a `Work` object."""

from __future__ import annotations

import datetime
import itertools
from typing import Any, Callable, List, Optional

import torch

from horovod.torch.distributed import _calls, _open_works, _order, _postponed, _profiling, _ranks
from horovod.torch.distributed._calls import Op
from horovod.torch.distributed._work import Completed, Work

_NO_TIME = datetime.timedelta(0)


class Caller:
    """Submits the collectives of one group. The n-th call is the same operation on all ranks."""

    def __init__(self, place: _ranks.Place, rank: int, size: int, timeout: datetime.timedelta, backend: str) -> None:
        self.place, self.rank, self.size = place, rank, size
        self.name = place.name  # torch's name
        self.backend = backend  # the backend's name, for the profiler
        self.seconds = timeout.total_seconds()
        self.numbers = itertools.count(1)  # numbers of calls, as the runtime counts them
        self.works = _open_works.OpenWorks()  # works of collectives
        self.postponed = _postponed.Calls()
        self.coalesced: Optional[List[Work]] = None
        self.nothing_to_wait_for = Completed([])
        self._order = _order.of(place.ranks)

    def time(self, opts: Any) -> float:
        timeout = getattr(opts, "timeout", None)
        if timeout is None or timeout <= _NO_TIME:
            return self.seconds
        seconds: float = timeout.total_seconds()
        return seconds

    def call(
        self,
        what: str,
        op: Op,
        source: Optional[torch.Tensor],
        target: Optional[torch.Tensor],
        outputs: Any,
        opts: Any,
        after: Optional[Callable[[], None]] = None,
        inputs: Any = None,
        like: Optional[torch.Tensor] = None,
        elements: Optional[int] = None,
        **arguments: Any,
    ) -> Work:
        """Submits a collective with the arguments of _calls.submit. `like` defaults to the source, and
        `elements` to the number of the source's elements. `after` runs once the collective is complete."""
        if like is None:
            like = source
        if elements is None:
            elements = 0 if like is None else like.numel()
        if self.postponed.waiting:
            self.postponed.start()
        if self._order is not None:
            source, target, after = self._order.arrange(op, source, target, after, arguments)
        seconds = self.time(opts)
        handle = _calls.submit(self.place.group, op, like, elements, source, target, seconds, **arguments)
        return self.record(next(self.numbers), what, [handle], outputs, opts, after, inputs)

    def record(
        self,
        number: int,
        what: str,
        handles: List[Any],
        outputs: Any,
        opts: Any,
        after: Optional[Callable[[], None]] = None,
        inputs: Any = None,
    ) -> Work:
        work = Work((what, "as call", number, "of group", self.place.label), handles, outputs, self.time(opts), after)
        return self.note(work, what, outputs if inputs is None else inputs)

    def note(self, work: Work, what: str, inputs: Any) -> Work:
        self.works.add(work)
        return self.note_running(work, what, inputs)

    def note_running(self, work: Work, what: str, inputs: Any) -> Work:
        if _profiling.is_on():
            work._event = _profiling.begin(self.backend, what, inputs)
        if self.coalesced is not None:
            self.coalesced.append(work)
        return work
