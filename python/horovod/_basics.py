"""Starts and ends Horovod in this process (init, shutdown). All frameworks share these functions."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import os
import re
import signal
import sys
import threading
import warnings
import zlib
from typing import Any, Callable, Iterator, List, Optional

from horovod import _communicator, _objects, _ops, _stack, _tested
from horovod import process_sets as _sets
from horovod._identity import (
    check_communicator,
    cross_rank,
    cross_size,
    is_elastic,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    ranks_of_communicator,
    set_ranks_of_job,
    size,
)
from horovod._library import InitOptions, Share, library
from horovod.exceptions import HorovodInternalError

__all__ = [
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
]


def init(comm: Optional[Any] = None, process_sets: Optional[Any] = None) -> None:
    """Joins the job that the launcher describes, or makes a job of one rank without a launcher.

    Blocks until every rank of the job calls `init`. In an elastic job whose ranks train already, `init` does not wait
    for these ranks: `rank` and `size` give the future place of this process, and the process joins the other ranks in
    `hvd.elastic.run`, or in its first collective. Does nothing when already initialised. `comm`: None for all ranks of
    the job. Otherwise a list of ranks that contains this rank, or a communicator of mpi4py: these ranks form a separate
    job, which numbers them from 0 in this order. Only they call `init`; but with a list under torchrun and `mpiexec` of
    MPICH, all ranks call it, each with its own list. `process_sets`: a list of sets to add during the start, the same
    on every rank. "dynamic" is accepted for existing scripts; sets can be added later in any case. Raises ValueError
    for other values, and HorovodInternalError when the other ranks do not call it within HOROVOD_INIT_TIMEOUT seconds
    (600).
    """
    added = (
        []
        if process_sets is None or process_sets == "dynamic"
        else [process_set for process_set in process_sets if process_set is not _sets.global_process_set]
    )
    if any(one.ranks == other.ranks for one, other in itertools.combinations(added, 2)):
        raise ValueError("init: process_sets has one set twice; each can be registered once.")
    ranks = _ranks_of(comm)
    global _was_asked_for
    if not is_initialized():
        _begin()
        if _communicator.finds_ranks(comm, ranks):
            _meet(_communicator.CommunicatorRendezvous(comm, ranks))
            _restore_sets(added, are_kept=False)
        else:
            _join(added, ranks)
        _has_begun()
        set_ranks_of_job(ranks)
        if hasattr(comm, "Get_group"):
            _check(comm)
    elif added:  # A process group has already started the runtime.
        for process_set in added:
            _sets.add_process_set(process_set)
    _was_asked_for = True


def _check(comm: Any) -> None:
    try:
        check_communicator(comm)
    except ValueError:
        shutdown()
        raise


_was_asked_for = False


def was_asked_for() -> bool:
    """Returns whether the program has called `init` since the last shutdown."""
    return _was_asked_for


def start_for_group(rendezvous: Optional[Any]) -> None:
    """Starts Horovod as `init` does, for a process group of torch. `rendezvous`: an object by which the ranks find each
    other (rank, size and copy(text), which returns rank 0's text on all ranks), or None: as in `init`."""
    _begin()
    if rendezvous is None:
        _join([], [])
    else:
        _meet(rendezvous)
    _has_begun()


def _begin() -> None:
    _ops.reset()
    _sets.forget_all(_keeps_sets())
    _stack.offer()


def _has_begun() -> None:
    atexit.unregister(_shutdown_at_exit)
    atexit.register(_shutdown_at_exit, os.getpid())
    if rank() == 0:
        _tested.note_once()
    if "HOROVOD_METRICS_FILE" in os.environ or "HOROVOD_METRICS_PORT" in os.environ:
        from horovod import _metrics_export

        _metrics_export.start(after_shutdown)


def _meet(rendezvous: Any) -> None:
    failures: List[BaseException] = []

    def share(_: Any, text: Any, length: Any, room: int) -> int:
        try:
            mine = ctypes.string_at(text, length.contents.value) if rendezvous.rank == 0 else None
            found = rendezvous.copy(mine)
            length.contents.value = len(found)
            if len(found) > room:
                raise ValueError("the text is too long")
            ctypes.memmove(text, found, len(found))
            return 0
        except BaseException as failure:  # an exception cannot pass through the library's C++ frames
            failures.append(failure)
            return 1

    function = Share(share)
    options = InitOptions(
        struct_size=ctypes.sizeof(InitOptions), rank=rendezvous.rank, size=rendezvous.size, share=function
    )
    try:
        _call_init(options, negotiated=False)
    except HorovodInternalError:
        if failures:
            raise failures[0] from None
        raise


# The number of consecutive attempts to form a generation that may fail in an elastic job.
_ATTEMPTS = 5

_is_restart = False
_keeps_state = False  # in a restart: this rank keeps its own state
_all_keep_state = False  # at the last `init`, all ranks kept their states
_first_generation: Optional[int] = None  # the first generation that included this process
_given = os.environ.get("HOROVOD_GENERATION", "")
_generation_of_launch = int(_given) if _given.isdigit() else 0  # the value at the launch; hvd.init changes the variable


@contextlib.contextmanager
def restart(keeps_state: bool = False) -> Iterator[None]:
    """Within the block, `shutdown` keeps the process sets and `init` registers them again. `keeps_state`: this rank
    keeps its own state if all ranks do."""
    global _is_restart, _keeps_state
    _is_restart, _keeps_state = True, keeps_state
    try:
        yield
    finally:
        _is_restart = _keeps_state = False


def is_restart() -> bool:
    """Returns whether the program is within `restart`."""
    return _is_restart


def generation() -> int:
    """Returns the generation number of an elastic job."""
    number: int = library().hvd_generation()
    return number


def all_keep_state() -> bool:
    """Returns whether all ranks were in `restart(keeps_state=True)` at the last `init`: equal on all ranks."""
    return _all_keep_state


def was_there_from_the_start() -> bool:
    """Returns whether this process was in the first generation since the elastic job was started or restarted."""
    return _first_generation is not None and _first_generation <= _generation_of_launch


def _keeps_sets() -> bool:
    # In an elastic job of horovodrun, a new process joins ranks that restart and register their process sets again.
    return _is_restart or is_elastic() or os.environ.get("HOROVOD_ELASTIC") == "1"


def _join(added: List[_sets.ProcessSet], ranks: List[int]) -> None:
    global _all_keep_state, _sets_to_add
    _all_keep_state, _sets_to_add = False, added
    if not _keeps_sets():
        _init_interruptibly([process_set.ranks or [] for process_set in added], ranks)
        for number, process_set in enumerate(added, 1):
            _sets.note_registered(process_set, number)
        return
    if not is_elastic():
        _init_interruptibly([], ranks)
        _restore_sets(added)
        return
    for left in reversed(range(_ATTEMPTS)):
        try:
            _init_interruptibly([], ranks)
            if not library().hvd_is_provisional():
                _restore_sets(added, library().hvd_generation() > _generation_of_launch and not ranks)
            break
        except HorovodInternalError as error:  # a rank was lost: the next generation excludes that rank
            if is_initialized():
                with contextlib.suppress(HorovodInternalError):
                    _leave()
            if not left or isinstance(error, (ValueError, NotImplementedError)):
                raise
    global _first_generation
    if _first_generation is None:  # each failed attempt had its own generation number
        _first_generation = library().hvd_generation() - (_ATTEMPTS - 1 - left)
    _set_environment()


def _set_environment() -> None:
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"):
        os.environ[f"HOROVOD_{name}"] = str(getattr(library(), f"hvd_{name.lower()}")())
    os.environ["HOROVOD_GENERATION"] = str(library().hvd_generation())


_sets_to_add: List[_sets.ProcessSet] = []
_join_error: Optional[Exception] = None
_raises_join_error = False  # True while `complete_init` waits and raises the error itself


@ctypes.CFUNCTYPE(None)
def _joined() -> None:
    # The other ranks do the same in their `init`. The exception cannot pass through the library's C++ frames.
    global _join_error
    try:
        _restore_sets(_sets_to_add)
        _set_environment()
    except Exception as error:
        _join_error = error
        if not _raises_join_error:
            warnings.warn(f"This process has joined the ranks, without their process sets: {error}", stacklevel=2)


def complete_init() -> bool:
    """Waits until the ranks in training have admitted this process. Returns whether the final place differs from the
    place that `init` returned."""
    global _join_error, _raises_join_error
    if not library().hvd_is_provisional():
        return False
    functions = (rank, size, local_rank, local_size, cross_rank, cross_size)
    before = [function() for function in functions]
    _join_error, _raises_join_error = None, True
    try:
        with _interruptible():
            _ops.complete_init(True)
    finally:
        _raises_join_error = False
    if _join_error is not None:
        raise _join_error
    return before != [function() for function in functions]


def _restore_sets(added: List[_sets.ProcessSet], are_kept: bool = True) -> None:
    if are_kept:
        _sets.restore(_sets_of_rank_0)
    for process_set in added:  # rank 0 may have registered this set already
        _sets.add_process_set(process_set)


def _sets_of_rank_0(mine: Any) -> Any:
    # One collective compares the sets, which are nearly always equal on all ranks. All ranks run this collective, even
    # if they left the previous generation at different points.
    if _agrees_with_all(mine):
        return mine
    return _objects.broadcast_object(mine, 0, "elastic.process_sets")


def _agrees_with_all(sets: Any) -> bool:
    """Returns whether all ranks have these sets. Also records whether all ranks keep their states."""
    global _all_keep_state
    number = zlib.crc32(repr(sets).encode()) & 0x7FFFFFFF
    known = (ctypes.c_int32 * 3)(number, -number, not _keeps_state)
    if size() > 1:
        address = ctypes.addressof(known)
        _ops.run(
            _ops.submit(
                _ops.Kind.ALLREDUCE,
                "elastic.agreement",
                [_ops.Tensor(address, address, _ops.Dtype.INT32, (3,))],
                keep=known,
                finish=lambda handle: None,
                reduce_op=_ops.Max,
            )
        )
    _all_keep_state = not known[2]
    return known[0] == -known[1]


def _ranks_of(comm: Optional[Any]) -> List[int]:
    """Returns the ranks of the job that `comm` names, in its order; empty for all ranks."""
    if comm is None:
        return []
    if isinstance(comm, (list, tuple, range)):
        return [int(rank) for rank in comm]
    if not hasattr(comm, "Get_group"):
        raise ValueError(f"init: comm is a {type(comm).__name__}; give a list of ranks or a communicator of mpi4py.")
    members = ranks_of_communicator(comm)
    from mpi4py import MPI

    return [] if members == list(range(MPI.COMM_WORLD.Get_size())) else members


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    # Python's handler of Ctrl-C would run only after the call, so restore the signal's default action.
    restore = None
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            restore = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if restore is not None:
            signal.signal(signal.SIGINT, restore)


def _init_interruptibly(sets: List[List[int]], ranks: List[int]) -> None:
    members = [rank for ranks in sets for rank in ranks]
    options = InitOptions(
        ctypes.sizeof(InitOptions),
        0,
        len(sets),
        (ctypes.c_uint32 * len(sets))(*map(len, sets)),
        (ctypes.c_int32 * len(members))(*members),
        len(ranks),
        (ctypes.c_int32 * len(ranks))(*ranks),
        _joined,
    )
    # Without process sets, each rank validates only its own environment.
    _call_init(options, negotiated=bool(sets))


def _call_init(options: InitOptions, negotiated: bool) -> None:
    error = ctypes.create_string_buffer(4096)
    with _interruptible():
        status = library().hvd_init(ctypes.addressof(options), ctypes.addressof(error), len(error))
        if status == _ops.LEFT:
            sys.exit(0)
        _ops.check(status, error, negotiated=negotiated)


def shutdown() -> None:
    """Leaves the job. Ends the process sets that contain this rank, including the set of all ranks: their pending work
    fails on all ranks. Waits for the other process sets, each of which ends when one of its members leaves. Does
    nothing when not initialised.

    Afterwards all ranks may call `init` again. Called automatically when the process ends. When an exception ends the
    process, the process sets without this rank fail, too.
    """
    _ops.complete_delayed(_stall_seconds())
    _leave()


def _stall_seconds() -> Optional[float]:
    """Returns the seconds after which the runtime reports work that other ranks have not submitted; None: never."""
    if os.environ.get("HOROVOD_STALL_CHECK_DISABLE", "").strip().lower() in ("1", "true", "yes", "on"):
        return None
    try:
        seconds = float(os.environ.get("HOROVOD_STALL_CHECK_TIME_SECONDS", "").strip() or 60)
    except ValueError:
        return None
    return seconds or None


def _leave(has_failed: bool = False) -> None:
    global _was_asked_for
    _was_asked_for = False
    error = ctypes.create_string_buffer(4096)
    leave = library().hvd_shutdown_failed if has_failed else library().hvd_shutdown
    with _interruptible():  # the wait for other process sets has no limit
        status = leave(ctypes.addressof(error), len(error))
    _ops.reset()
    _sets.forget_all(_keeps_sets())
    while _at_end:
        _at_end.pop()()
    _ops.check(status, error)


# Functions that the next shutdown calls, the last one first.
_at_end: List[Callable[[], None]] = []


def after_shutdown(function: Callable[[], None]) -> None:
    """Registers `function`, which is called once, after the next `shutdown`, and must not raise."""
    _at_end.append(function)


def _shutdown_at_exit(pid: int) -> None:
    if os.getpid() != pid:
        return  # the exit of a forked child does not end its rank
    try:
        if hasattr(sys, "last_type"):  # an exception ends the program: other ranks may never match its work
            _leave(has_failed=True)
        else:
            shutdown()
    except HorovodInternalError:
        pass  # the job has already failed, and the callers that waited have received the cause


def _works(name: bytes) -> bool:
    return library().hvd_capability(name, None, 0) != 0


def mpi_threads_supported() -> bool:
    """Returns whether the job uses MPI (`mpi_enabled`) and MPI was initialised with MPI_THREAD_MULTIPLE, on all ranks.
    False before `init`, and without MPI."""
    return _works(b"mpi-threads")


def _chosen(variable: str = "HOROVOD_CPU_OPERATIONS") -> str:
    """Returns the backend that a setting selects for tensors in host memory; empty for the built-in backend."""
    return os.environ.get(variable, "").strip().lower()


def mpi_enabled() -> bool:
    """Returns whether this job uses MPI: HOROVOD_CONTROLLER=mpi, for messages between ranks, or
    HOROVOD_CPU_OPERATIONS=mpi, for tensors in host memory, where MPI works."""
    return "mpi" in (_chosen(), _chosen("HOROVOD_CONTROLLER")) and mpi_built()


def mpi_built() -> bool:
    """Returns whether the MPI library can be opened on this machine."""
    return _works(b"mpi")


def gloo_enabled() -> bool:
    """Returns whether this job sends tensors in host memory without MPI, where the original Horovod would use Gloo."""
    return _chosen() != "mpi" and gloo_built()


def gloo_built() -> bool:
    """Returns whether jobs without MPI work on this machine."""
    return _works(b"gloo")


def nccl_built() -> int:
    """Returns the version of NCCL on this machine, such as 21805 for 2.18.5; 0 when NCCL does not work."""
    return _nccl_version() if _works(b"nccl") else 0


def _nccl_version() -> int:
    """Returns the version of the library that the runtime has opened; 1 if the version is unknown."""
    path = os.environ.get("HOROVOD_NCCL_LIBRARY", "").strip()
    if not path:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            text = maps.read()
        path = "libnccl.so.2"
        for name in ("libtorch_cuda", "lib[nr]ccl"):  # libtorch_cuda may contain NCCL
            found = re.findall(rf"(/.*/{name}\.so[^/\n]*)$", text, re.MULTILINE)
            path = found[0] if found else path
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 1
    return version.value if failed == 0 and version.value > 0 else 1


def ddl_built() -> bool:
    """Returns whether IBM's DDL works on this machine."""
    return _works(b"ddl")


def ccl_built() -> bool:
    """Returns whether Intel's oneCCL works on this machine."""
    return _works(b"ccl")


def cuda_built() -> bool:
    """Returns whether tensors in CUDA memory work on this machine."""
    return _works(b"cuda")


def rocm_built() -> bool:
    """Returns whether tensors in ROCm memory work on this machine."""
    return _works(b"rocm")
