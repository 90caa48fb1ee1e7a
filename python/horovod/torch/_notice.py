"""A notice from one rank to all ranks, which travels with the gradients."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set

import torch

from horovod import _objects
from horovod._ops import Average, Sum
from horovod.process_sets import id_of
from horovod.torch._allreduce import allreduce_async_
from horovod.torch._buckets import PackedBucket, Pending


class Notice:
    """A finding of this rank at the end of a step, before its last gradients are submitted: a gradient written during
    its reduction, unfrozen parameters, gradients that no longer fit into their slots, or a clipping function that found
    no gradients.

    The notice is an element of a bucket that the ranks reduce anyway, or a separate request. The ranks exchange more
    only if one of them has a notice.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drops the notice."""
        self._written: Optional[str] = None
        self._unfrozen: List[str] = []
        self._changed: Dict[str, str] = {}  # kinds of gradients that do not fit, by parameter
        self._missing: Set[str] = set()  # parameters whose gradient this rank lacks
        self._has_read_none = False  # a clipping function found no gradients, and this rank still has none
        self.carrier: Optional[PackedBucket] = None  # the bucket that carries the notice
        self._flag: Any = None  # the tensor in reduction, if no bucket carries the notice
        self.works: List[Pending] = []  # the works of that request

    def find(self, reducer: Any) -> None:
        """Looks for gradients that the program has written and for unfrozen parameters of this rank."""
        self.forget()
        for bucket in reducer.buckets:
            index = bucket.states.first_written()
            bucket.states.forget()
            if index is not None and self._written is None and reducer.process_set.size() > 1:
                self._written = reducer.names[id(bucket.params[index])]
        self._unfrozen = [reducer.names[id(param)] for param in reducer.unfrozen()]
        self._has_read_none = reducer.has_read_none()

    def add_missing(self, name: str) -> None:
        """Notes a gradient that this rank lacks."""
        self._missing.add(name)

    def add_changed(self, name: str, grad: torch.Tensor) -> None:
        """Notes a gradient that does not fit into its slot: its parameter has changed since the slot was made."""
        self._changed[name] = f"{grad.dtype} of shape {list(grad.shape)}{', sparse' if grad.is_sparse else ''}"

    def choose_carrier(self, reducer: Any) -> Optional[PackedBucket]:
        """Returns the bucket that carries the notice, or None. All ranks choose the same bucket, and submit this
        bucket last, because the submission of other buckets may add to the notice."""
        self.carrier = _carrier(reducer)
        return self.carrier

    def write(self) -> None:
        """Writes the notice to its bucket before the bucket's submission."""
        if self.carrier is not None:
            self.carrier.gradients.set_notice(self._exists())

    def send(self, reducer: Any) -> None:
        """Sends the notice as a separate request, if no bucket carries it."""
        if self.carrier is None and self._flag is None and reducer.is_needed():
            self._flag = torch.tensor([float(self._exists())], dtype=torch.float32, device="cpu")
            name = f"notice.{next(iter(reducer.names.values()))}"
            self.works = [allreduce_async_(self._flag, None, name, Sum, process_set=reducer.process_set)]

    def _exists(self) -> bool:
        return self._written is not None or bool(self._unfrozen) or bool(self._changed) or self._has_read_none

    def is_sent(self) -> bool:
        """Returns whether a rank has sent a notice in the completed reduction."""
        if self.carrier is not None:
            return self.carrier.gradients.has_notice()
        return self._flag is not None and bool(self._flag.item())

    def share(self, reducer: Any) -> Set[str]:
        """Returns the names of the parameters that all ranks have unfrozen or changed. Raises AssertionError on all
        ranks if a rank has written a gradient, if the ranks have unfrozen or changed different parameters, or if some
        ranks have clipped before the reduction."""
        rows = _objects.allgather_object(
            (self._written, self._unfrozen, self._changed, self._missing, self._has_read_none),
            f"notice.{next(iter(reducer.names.values()))}",
            id_of(reducer.process_set),
        )
        ranks, (written, unfrozen, changed, missing, have_read_none) = reducer.process_set.ranks, zip(*rows)
        for rank, written_name in zip(ranks, written):
            if written_name is not None:
                raise AssertionError(_description(written_name, rank))
        if len(set(have_read_none)) > 1:
            raise AssertionError(
                f"Rank {ranks[have_read_none.index(True)]} had no gradients when it called GradScaler or a function "
                "that clips, which therefore did not wait for those of other ranks: call optimizer.zero_grad() in "
                "place of model.zero_grad(), on all ranks."
            )
        everywhere = set.intersection(*map(set, unfrozen))
        for rank, names in zip(ranks, unfrozen):
            some = [name for name in names if name not in everywhere]
            if some:
                raise AssertionError(
                    f"Rank {rank} has set requires_grad of {some[0]} since "
                    "hvd.DistributedOptimizer was given it, and another rank has not: set it on all "
                    "ranks before the same step."
                )
        # A rank without a gradient contributes zeros.
        for rank, kinds in zip(ranks, changed):
            for name, kind in kinds.items():
                others = [
                    other
                    for other, its_changed, its_missing in zip(ranks, changed, missing)
                    if name not in its_changed and name not in its_missing
                ]
                if others:
                    raise AssertionError(
                        f"The gradient of {name} is {kind} on rank {rank} and has another type or size on rank "
                        f"{others[0]}: a parameter that has changed since hvd.DistributedOptimizer was given it, as by "
                        "model.half(), must change on all ranks before the same step."
                    )
        return everywhere.union(*changed)


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
