"""Samplers that know what of an epoch has been processed."""

from __future__ import annotations

import random
from typing import Any, Dict, Iterator, List

import torch

from horovod import _basics

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler):
    """This rank's part of a data set, without what has been processed in this epoch already.

    `shuffle`: in an order that all ranks know, of `seed` and the epoch. Every rank gets equally many
    samples; the last ones are some of the first again where numbers do not divide evenly.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: nothing of it has been processed. Call it at its end, for the next."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """All ranks have processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def reset(self) -> None:
        """Shares what remains of the epoch among the ranks that there are."""
        initialized = _basics.is_initialized()
        self.rank = _basics.rank() if initialized else 0
        self.num_replicas = _basics.size() if initialized else 1
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        remaining = order[self.processed_num :]
        self.num_samples = -(-len(remaining) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        while remaining and len(remaining) < self.total_size:
            remaining += remaining[: self.total_size - len(remaining)]
        self.remaining_indices: List[int] = remaining

    def state_dict(self) -> Dict[str, int]:
        """Epoch, and how many samples of it all ranks together have processed."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Goes on where a `state_dict` was taken."""
        self.epoch, self.processed_num = state["epoch"], state["processed_num"]
        self.reset()

    def __iter__(self) -> Iterator[int]:
        return iter(self.remaining_indices[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
