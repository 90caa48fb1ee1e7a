"""The identity of this process: its rank, and the size of the job."""

from __future__ import annotations

import os
from typing import Any, List

from horovod._library import library


def is_initialized() -> bool:
    """Returns True between `init` and `shutdown`."""
    return library().hvd_is_initialized() != 0


def _known(number: int) -> int:
    if number < 0:
        raise ValueError("Horovod has not been initialized; use hvd.init() first.")
    return number


def rank() -> int:
    """Returns the rank of this process in the job, from 0. Raises ValueError before `init`."""
    return _known(library().hvd_rank())


def size() -> int:
    """Returns the number of ranks in the job. Raises ValueError before `init`."""
    return _known(library().hvd_size())


def local_rank() -> int:
    """Returns the rank of this process on its host, from 0. Raises ValueError before `init`."""
    return _known(library().hvd_local_rank())


def local_size() -> int:
    """Returns the number of ranks on this host. Raises ValueError before `init`."""
    return _known(library().hvd_local_size())


def cross_rank() -> int:
    """Returns the index of this host among the hosts that have a rank with this local rank. Raises ValueError before
    `init`."""
    return _known(library().hvd_cross_rank())


def cross_size() -> int:
    """Returns the number of hosts that have a rank with this local rank. Raises ValueError before `init`."""
    return _known(library().hvd_cross_size())


def is_homogeneous() -> bool:
    """Returns whether every host has the same number of ranks. Raises ValueError before `init`."""
    return _known(library().hvd_is_homogeneous()) != 0


def is_elastic() -> bool:
    """Returns whether the launcher started this process in a job whose ranks may change."""
    return "HOROVOD_ELASTIC_PROCESS" in os.environ


def ranks_of_communicator(comm: Any) -> List[int]:
    """Returns the ranks of MPI.COMM_WORLD in a communicator of mpi4py, in its order."""
    from mpi4py import MPI  # mpi4py is installed, because the program's communicator comes from it

    if comm == MPI.COMM_NULL:
        raise ValueError(
            "The communicator is MPI.COMM_NULL: this process is in none of the group, so it must not name it here; "
            "for a process set, name the ranks by their numbers on all ranks."
        )
    everybody = MPI.COMM_WORLD.Get_group()
    return list(MPI.Group.Translate_ranks(comm.Get_group(), list(range(comm.Get_size())), everybody))


_ranks_of_job: List[int] = []


def set_ranks_of_job(ranks: List[int]) -> None:
    """Sets the launcher's number of each rank of this job; an empty list means that the job has all ranks."""
    global _ranks_of_job
    _ranks_of_job = ranks


def places_of_communicator(comm: Any) -> List[int]:
    """Returns the ranks of this job in a communicator of mpi4py, in its order. Raises ValueError if the communicator
    has other ranks, or if the processes of MPI are not the ranks of the job."""
    from mpi4py import MPI

    found = ranks_of_communicator(comm)
    if not is_initialized():
        return found
    if not _ranks_of_job and MPI.COMM_WORLD.Get_size() != size():
        raise _other_mpi(MPI.COMM_WORLD.Get_size())
    if _ranks_of_job and not set(found) <= set(_ranks_of_job):
        raise ValueError(
            f"The communicator has the ranks {found} of MPI.COMM_WORLD, and this job of Horovod has {_ranks_of_job}."
        )
    return [_ranks_of_job.index(each) for each in found] if _ranks_of_job else found


def check_communicator(comm: Any) -> None:
    """Compares the communicator of mpi4py passed to `init` with the job. Raises ValueError if their sizes differ."""
    from mpi4py import MPI

    # If MPI does not find the other processes, COMM_WORLD has size 1, but the program still means all of them.
    is_alone = comm.Get_size() == 1 and MPI.Comm.Compare(comm, MPI.COMM_WORLD) == MPI.IDENT
    if comm.Get_size() != size() and not is_alone:
        raise _other_mpi(comm.Get_size())


def _other_mpi(number: int) -> ValueError:
    return ValueError(
        f"mpi4py's communicator has {number} {'process' if number == 1 else 'processes'}, and Horovod's job has "
        f"{size()} ranks: the MPI of mpi4py is not that of the launcher, or does not find the other processes. Start "
        "the program by the launcher of mpi4py's MPI, or name the ranks by their numbers."
    )
