"""Start, end and identity of this process within the job; the same for every framework."""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import signal
import threading
from typing import Any, Optional

from horovod import _ops, _stack
from horovod._library import InitOptions, library
from horovod.exceptions import HorovodInternalError, HorovodUnimplementedError


def init(comm: Optional[Any] = None, process_sets: Optional[Any] = None) -> None:
    """Joins the job that the launcher describes, or makes a world of one without a launcher.

    Blocks until every rank of the job has called it. Does nothing when already initialised.
    `comm`: None, or the list of all ranks. `process_sets`: a list of sets to register at once, the
    same on every rank; "dynamic" is taken for existing scripts, and sets can be added in any case.
    Raises ValueError or NotImplementedError for others, and HorovodInternalError when the
    other ranks do not come within HOROVOD_START_TIMEOUT seconds.
    """
    from horovod import process_sets as sets

    added = [] if process_sets is None or process_sets == "dynamic" else [
        process_set for process_set in process_sets if process_set is not sets.global_process_set]
    if any(one.ranks == other.ranks for one, other in itertools.combinations(added, 2)):
        raise ValueError("init: process_sets has one set twice; each can be registered once.")
    ranks = _ranks_of(comm)
    if not is_initialized():
        _ops.reset()
        sets.forget_all()
        _stack.offer()
        _init_interruptibly([process_set.ranks for process_set in added])
        for number, process_set in enumerate(added, 1):
            sets.note_registered(process_set, number)
        atexit.unregister(_shutdown_at_exit)
        atexit.register(_shutdown_at_exit, os.getpid())
    if ranks is not None and ranks != list(range(size())):
        last = size() - 1
        shutdown()
        raise ValueError(
            f"init: comm={comm} does not list all ranks of the job, 0 to {last}; a job of some of "
            "them needs a launch of its own."
        )


def _ranks_of(comm: Optional[Any]) -> Optional[list[int]]:
    if comm is None:
        return None
    if isinstance(comm, (list, tuple, range)):
        return sorted(int(rank) for rank in comm) or None
    raise HorovodUnimplementedError(
        f"init: comm is a {type(comm).__name__}, and this build of Horovod takes no communicator "
        "of MPI; leave comm out and start with horovodrun."
    )


def _init_interruptibly(sets: list[list[int]]) -> None:
    # Python's handler of Ctrl-C could only run after the call, so let the signal do its default.
    restore = None
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            restore = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        error = ctypes.create_string_buffer(4096)
        members = [rank for ranks in sets for rank in ranks]
        options = InitOptions(
            ctypes.sizeof(InitOptions), 0, len(sets),
            (ctypes.c_uint32 * len(sets))(*map(len, sets)),
            (ctypes.c_int32 * len(members))(*members),
        )
        _ops.check(
            library().hvd_init(ctypes.addressof(options), ctypes.addressof(error), len(error)),
            error,
        )
    finally:
        if restore is not None:
            signal.signal(signal.SIGINT, restore)


def shutdown() -> None:
    """Leaves the job; pending work fails on all ranks. Does nothing when not initialised.

    Afterwards `init` may be called again, by all ranks. Runs by itself at the process's end.
    """
    error = ctypes.create_string_buffer(4096)
    from horovod.process_sets import forget_all

    status = library().hvd_shutdown(ctypes.addressof(error), len(error))
    _ops.reset()
    forget_all()
    _ops.check(status, error)


def _shutdown_at_exit(pid: int) -> None:
    if os.getpid() != pid:
        return  # a forked child's end is not the rank's
    try:
        shutdown()
    except HorovodInternalError:
        pass  # the job has failed already, and whoever waited has been told why


def is_initialized() -> bool:
    """True between `init` and `shutdown`."""
    return library().hvd_is_initialized() != 0


def _known(number: int) -> int:
    if number < 0:
        raise ValueError("Horovod has not been initialized; use hvd.init() first.")
    return number


def rank() -> int:
    """This process's number in the job, from 0. ValueError before `init`."""
    return _known(library().hvd_rank())


def size() -> int:
    """Number of ranks in the job. ValueError before `init`."""
    return _known(library().hvd_size())


def local_rank() -> int:
    """This process's number on its host, from 0. ValueError before `init`."""
    return _known(library().hvd_local_rank())


def local_size() -> int:
    """Number of ranks on this host. ValueError before `init`."""
    return _known(library().hvd_local_size())


def cross_rank() -> int:
    """This host's number among those with a rank of this local rank. ValueError before `init`."""
    return _known(library().hvd_cross_rank())


def cross_size() -> int:
    """Number of hosts with a rank of this local rank. ValueError before `init`."""
    return _known(library().hvd_cross_size())


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks. ValueError before `init`."""
    return _known(library().hvd_is_homogeneous()) != 0


def _works(name: bytes) -> bool:
    return library().hvd_capability(name, None, 0) != 0


def mpi_threads_supported() -> bool:
    """Whether MPI allows calls from several threads; False without MPI."""
    return False


def mpi_enabled() -> bool:
    """Whether this job uses MPI."""
    return _works(b"mpi")


def mpi_built() -> bool:
    """Whether MPI can be used here."""
    return _works(b"mpi")


def gloo_enabled() -> bool:
    """Whether this job uses Gloo."""
    return _works(b"gloo")


def gloo_built() -> bool:
    """Whether Gloo can be used here."""
    return _works(b"gloo")


def nccl_built() -> int:
    """Whether NCCL can be used here: 0 when not."""
    return int(_works(b"nccl"))


def ddl_built() -> bool:
    """Whether IBM's DDL can be used here."""
    return _works(b"ddl")


def ccl_built() -> bool:
    """Whether Intel's oneCCL can be used here."""
    return _works(b"ccl")


def cuda_built() -> bool:
    """Whether tensors in CUDA memory can be used here."""
    return _works(b"cuda")


def rocm_built() -> bool:
    """Whether tensors in ROCm memory can be used here."""
    return _works(b"rocm")
