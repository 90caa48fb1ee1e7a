"""Iterable data sets that record the position of the whole job, from which any number of ranks continues."""

from __future__ import annotations

import collections.abc
import itertools
from typing import Any, Dict, Iterator

import torch

from horovod import _basics

__all__ = ["ElasticIterable"]


class ElasticIterable(torch.utils.data.IterableDataset):
    """Yields this rank's samples of an iterable data set, without samples already consumed in this epoch.

    `source`: an iterable, or a function that gets `seed + epoch` and returns one. The iterable must yield the same
    samples in the same order on all ranks, and after a restart. A restart reads the consumed samples again, to skip
    them, unless the iterable has a method `skip(n)` that returns the rest, as Hugging Face data sets do. The position
    counts samples of all ranks, so that any number of ranks can continue there.

    Rank r of n ranks gets each n-th sample from sample r on. Every rank gets the same number of samples: if the last
    samples do not suffice for all ranks, some are repeated, or dropped with `drop_last`. A DataLoader may have one
    worker at most, without `persistent_workers`: several workers would change the order, and a persistent worker would
    not receive the position. Raises ValueError for more, and for an iterator as `source`.
    """

    _began_in_worker = False

    def __init__(self, source: Any, seed: int = 0, drop_last: bool = False) -> None:
        if isinstance(source, collections.abc.Iterator):
            raise ValueError(
                "ElasticIterable: source is an iterator, which cannot begin again; give a function that "
                "makes one, or an iterable."
            )
        self.source, self.seed, self.drop_last = source, seed, drop_last
        self.epoch = self.consumed = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch without consumed samples. Call it at the end of an epoch, for the next."""
        self.epoch, self.consumed = epoch, 0

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that all ranks have processed a batch of this size."""
        self.consumed += batch_size * self.num_replicas

    def reset(self) -> None:
        """Divides the remaining samples among the current ranks, for iterations that begin later."""
        initialized = _basics.is_initialized()
        self.rank = _basics.rank() if initialized else 0
        self.num_replicas = _basics.size() if initialized else 1

    def state_dict(self) -> Dict[str, int]:
        """Returns the seed, the epoch, and the number of its samples that all ranks together have consumed."""
        return {"seed": self.seed, "epoch": self.epoch, "consumed": self.consumed}

    def load_state_dict(self, state_dict: Dict[str, int]) -> None:
        """Restores a `state_dict`."""
        self.seed, self.epoch = state_dict["seed"], state_dict["epoch"]
        self.consumed = state_dict["consumed"]
        self.reset()

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise ValueError(
                f"ElasticIterable: the DataLoader has {worker.num_workers} workers, which would change "
                "the order of samples; give it num_workers=1, or 0."
            )
        if worker is not None:
            if self._began_in_worker:
                return self._refuse_worker()
            self._began_in_worker = True
        samples = self.source
        if not hasattr(samples, "__iter__"):
            samples = samples(self.seed + self.epoch)
        skip = getattr(samples, "skip", None)
        rest = iter(skip(self.consumed)) if skip else itertools.islice(samples, self.consumed, None)
        return self._mine(rest, self.rank, self.num_replicas)

    def _mine(self, rest: Iterator[Any], rank: int, ranks: int) -> Iterator[Any]:
        while True:
            part = list(itertools.islice(rest, ranks))
            if not part or (self.drop_last and len(part) < ranks):
                return
            yield part[rank % len(part)]

    @staticmethod
    def _refuse_worker() -> Iterator[Any]:
        # Raise the error with the first sample: the DataLoader does not show an earlier error of a persistent worker.
        raise ValueError(
            "ElasticIterable: the DataLoader keeps its worker, which does not learn of the position; "
            "leave out persistent_workers."
        )
        yield
