"""Jobs whose ranks come and go: not in this release, which says so where a script asks for them."""

from __future__ import annotations

from typing import Any, NoReturn

from horovod.exceptions import HorovodUnimplementedError


def _refuse(what: str, instead: str) -> NoReturn:
    raise HorovodUnimplementedError(
        f"hvd.elastic.{what}: this release of Horovod has no elastic jobs; {instead}"
    )


def run(func: Any) -> NoReturn:
    """NotImplementedError."""
    _refuse("run", "call the function yourself, and start again from a checkpoint after a failure.")


class TorchState:
    """NotImplementedError when it is made."""

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        _refuse("TorchState", "save what it would keep with torch.save on rank 0, and give it to "
                "all ranks with hvd.broadcast_parameters and hvd.broadcast_optimizer_state.")


class ElasticSampler:
    """NotImplementedError when it is made."""

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        _refuse("ElasticSampler", "use torch.utils.data.distributed.DistributedSampler(dataset, "
                "num_replicas=hvd.size(), rank=hvd.rank()).")
