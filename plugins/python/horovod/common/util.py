"""Checks of available features and small helpers, under the module name that scripts import."""

from __future__ import annotations

from typing import Any, List, Sequence

from horovod import _basics

__all__ = [
    "ccl_built", "cuda_built", "ddl_built", "gloo_built", "is_iterable", "mpi_built", "nccl_built",
    "num_rank_is_power_2", "rocm_built", "split_list",
]


def mpi_built(verbose: bool = False) -> bool:
    """Whether the MPI library can be opened on this machine. All these functions accept `verbose` for
    existing scripts."""
    return _basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """Whether jobs without MPI work on this machine."""
    return _basics.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    """Whether NCCL works on this machine."""
    return bool(_basics.nccl_built())


def ddl_built(verbose: bool = False) -> bool:
    """Whether IBM's DDL works on this machine."""
    return _basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """Whether Intel's oneCCL works on this machine."""
    return _basics.ccl_built()


def cuda_built(verbose: bool = False) -> bool:
    """Whether tensors in CUDA memory work on this machine."""
    return _basics.cuda_built()


def rocm_built(verbose: bool = False) -> bool:
    """Whether tensors in ROCm memory work on this machine."""
    return _basics.rocm_built()


def is_iterable(x: Any) -> bool:
    """Whether the object is iterable."""
    return hasattr(x, "__iter__")


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether a number of ranks is 1, 2, 4 and so on."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence[Any], num_parts: int) -> List[Sequence[Any]]:
    """`items` in `num_parts` parts of about equal length, the longer ones first, none of them empty."""
    short, longer = divmod(len(items), num_parts)
    starts = [part * short + min(part, longer) for part in range(num_parts + 1)]
    return [items[a:b] for a, b in zip(starts, starts[1:]) if a < b]
