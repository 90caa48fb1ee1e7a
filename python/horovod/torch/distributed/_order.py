"""Groups with ranks in another order, from `new_group(..., sort_ranks=False)`: the runtime sorts the ranks."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from horovod.torch.distributed._calls import Op

_READS_ROWS = (Op.REDUCESCATTER, Op.SCATTER, Op.ALLTOALL)
_WRITES_ROWS = (Op.ALLGATHER, Op.GATHER, Op.ALLTOALL)
_After = Optional[Callable[[], None]]


class Order:
    """The order of a group's ranks. `ranks`: the ranks of the job, by rank of the group."""

    def __init__(self, ranks: Sequence[int]) -> None:
        ascending = sorted(ranks)
        self._by_rank = [ascending.index(rank) for rank in ranks]  # by rank of the group: index among sorted ranks
        self._by_place = [ranks.index(rank) for rank in ascending]

    def arrange(
        self, op: int, source: Optional[torch.Tensor], target: Optional[torch.Tensor], after: _After, arguments: dict
    ) -> Tuple[Optional[torch.Tensor], Optional[torch.Tensor], _After]:
        """Returns dense tensors with their rows (one part per rank) in the runtime's order, and a function that copies
        the results to the target. Reorders the counts of an alltoall in the same way."""
        size = len(self._by_rank)
        counts: Optional[List[int]] = arguments.get("counts")
        sent = counts[:size] if counts else None
        expected: Optional[List[int]] = None
        if counts:
            arguments["counts"] = [counts[at + rank] for at in (0, size) for rank in self._by_place]
            expected = arguments["counts"][size:]
        if op in _READS_ROWS and source is not None:
            rows = _rows(source, sent, size)
            source = torch.empty(source.numel(), dtype=source.dtype)
            _copy([rows[rank] for rank in self._by_place], source)
        if op not in _WRITES_ROWS or target is None:
            return source, target, after
        result, received = target, torch.empty(target.numel(), dtype=target.dtype)

        def finish() -> None:
            rows = _rows(received, expected, size)
            _copy([rows[place] for place in self._by_rank], result)
            if after is not None:
                after()

        return source, received, finish


def of(ranks: Sequence[int]) -> Optional[Order]:
    """Returns the order, or None for sorted ranks."""
    return None if list(ranks) == sorted(ranks) else Order(ranks)


def _rows(tensor: torch.Tensor, counts: Optional[List[int]], size: int) -> Any:
    return tensor.detach().reshape(-1).split(counts or [tensor.numel() // size] * size)


def _copy(rows: Any, target: torch.Tensor) -> None:
    """Copies consecutive rows to a dense tensor."""
    with torch.no_grad():
        for part, row in zip(target.detach().view(-1).split([row.numel() for row in rows]), rows):
            part.copy_(row)
