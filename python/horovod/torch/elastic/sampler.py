"""Samplers that record which samples of an epoch have been processed."""

from __future__ import annotations

import random
from typing import Any, Dict, Iterator, List, Set

import torch

from horovod import _basics
from horovod._basics import rank as rank, size as size

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler):
    """Yields this rank's sample indices of a data set, without samples already processed in this epoch.

    `shuffle`: permutes the samples by `seed` and the epoch, equally on all ranks. Every rank gets the
    same number of samples: the last part is filled with the first samples when the numbers do not
    divide evenly.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch without processed samples. Call it at the end of an epoch, for the next."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that all ranks have processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def reset(self) -> None:
        """Divides the remaining samples of the epoch among the current ranks."""
        initialized = _basics.is_initialized()
        self.rank = _basics.rank() if initialized else 0
        self.num_replicas = _basics.size() if initialized else 1
        remaining = self._order()[self.processed_num :]
        self.num_samples = -(-len(remaining) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        while remaining and len(remaining) < self.total_size:
            remaining += remaining[: self.total_size - len(remaining)]
        self.remaining_indices: List[int] = remaining

    def _order(self) -> List[int]:
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        return order

    @property
    def indices(self) -> List[int]:
        """The samples that this rank gets."""
        return self.remaining_indices[self.rank :: self.num_replicas]

    @property
    def processed_indices(self) -> Set[int]:
        """The samples of this epoch that all ranks together have processed."""
        return set(self._order()[: self.processed_num])

    def state_dict(self) -> Dict[str, int]:
        """Returns the epoch, and the number of its samples that all ranks together have processed."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Dict[str, int]) -> None:
        """Restores a `state_dict`."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
