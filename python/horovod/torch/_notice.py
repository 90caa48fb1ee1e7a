"""A notice of one rank to all, which travels with the gradients."""

from __future__ import annotations

from typing import Any, List, Optional

import torch

from horovod import _objects, _ops
from horovod._ops import Average, Sum
from horovod.process_sets import id_of
from horovod.torch._allreduce import allreduce_async_
from horovod.torch._buckets import PackedBucket


class Notice:
    """A finding of this rank at the end of a step, before its last gradients are submitted: a gradient that
    was written while it is being reduced, or parameters that were unfrozen.

    The notice itself is an element of a bucket that is reduced anyway, or a request of its own. The ranks
    exchange more only if one of them has a notice.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drops the notice."""
        self._written: Optional[str] = None
        self._unfrozen: List[str] = []
        self._carrier: Optional[PackedBucket] = None
        self._flag: Any = None  # a tensor that is being reduced, if no bucket carries the notice
        self._handle: Optional[int] = None

    def find(self, reducer: Any) -> None:
        """Looks for written gradients and unfrozen parameters of this rank."""
        self.forget()
        for bucket in reducer.buckets:
            index = bucket.states.first_written()
            bucket.states.forget()
            if index is not None and self._written is None and reducer.process_set.size() > 1:
                self._written = reducer.names[id(bucket.params[index])]
        self._unfrozen = [reducer.names[id(param)] for param in reducer.unfrozen()]

    def send(self, reducer: Any) -> None:
        """Sends the notice with the next bucket. All ranks choose the same bucket."""
        has_notice = self._written is not None or bool(self._unfrozen)
        self._carrier = _carrier(reducer)
        if self._carrier is not None:
            self._carrier.gradients.set_notice(has_notice)
        elif self._flag is None and reducer.is_needed():
            self._flag = torch.tensor([float(has_notice)])
            self._handle = allreduce_async_(
                self._flag, None, f"notice.{next(iter(reducer.names.values()))}", Sum, process_set=reducer.process_set
            )

    def wait(self) -> None:
        """Waits for the notice's own request, if there is one."""
        if self._handle is not None:
            _ops.wait(self._handle)
            self._handle = None

    def is_sent(self) -> bool:
        """Returns whether a rank has sent a notice in the reduction that is complete."""
        if self._carrier is not None:
            return self._carrier.gradients.has_notice()
        return self._flag is not None and bool(self._flag.item())

    def share(self, reducer: Any) -> List[str]:
        """Returns the names of the parameters that all ranks have unfrozen. Raises AssertionError on all
        ranks if a rank has written a gradient, or if the ranks have unfrozen different parameters."""
        name = f"notice.{next(iter(reducer.names.values()))}"
        rows = _objects.allgather_object((self._written, self._unfrozen), name, id_of(reducer.process_set))
        for rank, (written, _) in enumerate(rows):
            if written is not None:
                raise AssertionError(_description(written, reducer.process_set.ranks[rank]))
        everywhere = set.intersection(*(set(names) for _, names in rows))
        for rank, (_, names) in enumerate(rows):
            some = [name for name in names if name not in everywhere]
            if some:
                raise AssertionError(
                    f"Rank {reducer.process_set.ranks[rank]} has set requires_grad of {some[0]} since "
                    "hvd.DistributedOptimizer was given it, and another rank has not: set it on all "
                    "ranks before the same step."
                )
        return self._unfrozen


def _carrier(reducer: Any) -> Optional[PackedBucket]:
    if reducer.op in (Average, Sum):
        for bucket in reducer.buckets:
            if (
                isinstance(bucket, PackedBucket)
                and bucket.gradients.carries_notices
                and bucket.is_agreed
                and not bucket.works
                and bucket.is_wanted()
            ):
                return bucket
    return None


def _description(name: str, rank: int) -> str:
    return (
        f"The gradient of {name} was written on rank {rank} between backward() and step(), where it is "
        "being reduced: the weights of the ranks would differ. Call optimizer.synchronize() after "
        "backward(), then change gradients, then call optimizer.step() inside 'with "
        "optimizer.skip_synchronize():'."
    )
