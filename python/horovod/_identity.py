"""The identity of this process: its rank, and the size of the job."""

from __future__ import annotations

import os
from typing import Any, List

from horovod._library import library


def is_initialized() -> bool:
    """True between `init` and `shutdown`."""
    return library().hvd_is_initialized() != 0


def _known(number: int) -> int:
    if number < 0:
        raise ValueError("Horovod has not been initialized; use hvd.init() first.")
    return number


def rank() -> int:
    """The rank of this process in the job, from 0. ValueError before `init`."""
    return _known(library().hvd_rank())


def size() -> int:
    """Number of ranks in the job. ValueError before `init`."""
    return _known(library().hvd_size())


def local_rank() -> int:
    """The rank of this process on its host, from 0. ValueError before `init`."""
    return _known(library().hvd_local_rank())


def local_size() -> int:
    """Number of ranks on this host. ValueError before `init`."""
    return _known(library().hvd_local_size())


def cross_rank() -> int:
    """The index of this host among the hosts that have a rank with this local rank. ValueError before
    `init`."""
    return _known(library().hvd_cross_rank())


def cross_size() -> int:
    """The number of hosts that have a rank with this local rank. ValueError before `init`."""
    return _known(library().hvd_cross_size())


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks. ValueError before `init`."""
    return _known(library().hvd_is_homogeneous()) != 0


def is_elastic() -> bool:
    """Whether this process belongs to a job whose ranks may change, as its launcher says."""
    return "HOROVOD_ELASTIC_PROCESS" in os.environ


def ranks_of_communicator(comm: Any) -> List[int]:
    """Returns the ranks of the job in a communicator of mpi4py, ascending."""
    from mpi4py import MPI  # the program has mpi4py: it made the communicator

    everybody = MPI.COMM_WORLD.Get_group()
    return sorted(MPI.Group.Translate_ranks(comm.Get_group(), list(range(comm.Get_size())), everybody))
