"""The common part of `hvd.elastic` of every framework: states that can be saved, restored and
synchronised over all ranks, and the loop around a training function.

In a job of constant size, `run` calls the function again after a failure that the job survives. In an elastic job
(`horovodrun --min-np`), ranks also join and leave: `run` continues the training with each new generation of ranks.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import os
import queue
from typing import Any, Callable, ContextManager, Dict, List, Optional, Tuple

from horovod import _basics, _objects, _ops
from horovod._library import library
from horovod._notices import HostUpdateResult, notified
from horovod._ops import Dtype, Kind, Tensor
from horovod.exceptions import HorovodInternalError, HostsUpdatedInterrupt


_source = 0
_has_synced = False  # whether this process has received the training state since it started
_depth = 0  # nesting depth of calls of `run`


def source_rank() -> int:
    """Returns the rank whose state all ranks receive in `State.sync`: the lowest rank with the newest commit among the
    ranks with the state. Rank 0 before the first commit, and for states with their own `sync`."""
    return _source


def leave_seconds() -> Optional[int]:
    """Returns the number of seconds until the host of this process leaves the job, for example after SIGTERM to its
    agent; None if the host stays. The ranks of the host leave at their next `commit`, which must happen before that
    time."""
    seconds = library().hvd_leave_seconds()
    return seconds if seconds >= 0 else None


class State:
    """The state that training needs to continue. Subclasses implement `save`, `restore` and `sync`.

    `bcast_object`: the function that copies rank 0's object to all ranks; None: `hvd.broadcast_object`.
    `get_rank`: the function that returns this process's rank; None: `hvd.rank`. Subclasses find these as
    `_bcast_object` and `_rank`.
    """

    _bcast_object: Any = None
    _commits = -1  # number of commits since the beginning of the job; -1: none yet
    _lost: Optional[str] = None  # why this rank cannot provide its state to the other ranks; None: it can

    def __init__(
        self, bcast_object: Optional[Callable[..., Any]] = None, get_rank: Optional[Callable[[], int]] = None
    ) -> None:
        self._bcast_object = bcast_object or _from_source
        self._rank = get_rank or _basics.rank
        self._reset_callbacks: List[Callable[[], None]] = []
        self._host_messages: queue.Queue[Tuple[Any, Any]] = queue.Queue()
        self._last_updated_timestamp = 0

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Registers functions to call, in order, after each restart of Horovod."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called after Horovod has restarted."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: Any) -> None:
        """Notifies the state of changed hosts, for `check_host_updates`. Changes that the launcher announces need no
        such call. `timestamp`: any value; `update_res`: a HostUpdateResult."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state, then calls `check_host_updates`. A failure discards later changes. All ranks must call it
        equally often.

        A commit is valid once `save` has returned: the reductions that produced the state have then ended without
        error. After a failure all ranks return to the newest commit that any rank has."""
        _ops.check_results()
        self.save()
        self._commits = max(self._commits, 0) + 1
        self._on_commit()
        if _basics.is_elastic() and _basics.is_initialized():
            library().hvd_state_committed()
        self.check_host_updates()

    def _on_commit(self) -> None:
        """Called by `commit` when `save` has returned."""

    def _on_sync(self) -> None:
        """Called by the run loop when this rank has received the source's state."""

    def _on_interrupt(self) -> None:
        """Called by the run loop when the ranks are about to change and the state stays the same."""

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt when hosts have joined or are about to leave: on all ranks in the
        same call. All ranks of an elastic job must call it equally often. Does nothing in other jobs, unless
        `on_hosts_updated` was called."""
        updates = HostUpdateResult.no_update
        while not self._host_messages.empty():
            updates |= HostUpdateResult(self._host_messages.get()[1])
        if _basics.is_elastic() and _basics.is_initialized():
            updates = _updates_of_all(updates | HostUpdateResult(library().hvd_host_updates()))
        if updates:
            raise HostsUpdatedInterrupt(updates == HostUpdateResult.removed)

    def save(self) -> None:
        """Keeps a copy of the state in this process's memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Sets the state to the last saved copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Sets the state of every rank to that of rank 0, or of `source_rank()`, and saves it. All ranks must
        call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapts the state to another number of ranks."""


class ObjectState(State):
    """A state whose attributes are the keyword arguments. Keeps copies of the attributes, which can be any picklable
    objects. Subclasses find the copies by name in `_saved_state`."""

    def __init__(
        self,
        bcast_object: Optional[Callable[..., Any]] = None,
        get_rank: Optional[Callable[[], int]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state: Dict[str, Any] = dict(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = self._copied(self._saved_state)

    def save(self) -> None:
        """Keeps copies of the attributes."""
        _ops.check_results()
        self._saved_state = self._copied(self._attributes())

    def restore(self) -> None:
        """Sets the attributes to the last saved copies."""
        self._set_attributes()

    def sync(self) -> None:
        """Sets the attributes to those of rank 0, or of `source_rank()`. All ranks must call it."""
        if self._saved_state:
            self._saved_state = self._copied(self._bcast_object(self._attributes()))
            self._set_attributes()

    def _attributes(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self._saved_state}

    def _set_attributes(self) -> None:
        for name, value in self._copied(self._saved_state).items():
            setattr(self, name, value)

    def _copied(self, attributes: Dict[str, Any]) -> Dict[str, Any]:
        """Returns copies that stay the same when the attributes change."""
        return copy.deepcopy(attributes)


def _from_source(attributes: Dict[str, Any]) -> Dict[str, Any]:
    return _objects.broadcast_object(attributes, _source, "elastic.state")


def _updates_of_all(mine: HostUpdateResult) -> HostUpdateResult:
    """Returns the union of the host changes that the ranks know. All ranks must call it."""
    if _basics.size() == 1:
        return mine
    known = (ctypes.c_int32 * 2)(bool(mine & HostUpdateResult.removed), bool(mine & HostUpdateResult.added))
    address = ctypes.addressof(known)
    _ops.run(
        _ops.submit(
            Kind.ALLREDUCE,
            "elastic.check_host_updates",
            [Tensor(address, address, Dtype.INT32, (2,))],
            keep=known,
            finish=lambda handle: None,
            reduce_op=_ops.Max,
        )
    )
    return HostUpdateResult(known[0] + 2 * known[1])


def is_ours(part: Any) -> bool:
    """Returns whether the `sync` of a state or handler is defined by this package."""
    return any(
        getattr(what, "__module__", "").split(".")[0] == "horovod"
        for what in (type(part), getattr(type(part), "sync", None))
    )


def follows_source(state: State) -> bool:
    """Returns whether `sync` takes the values of `source_rank()`; a `sync` of the program takes those of rank 0."""
    return all(map(is_ours, [state, *getattr(state, "_handlers", {}).values()])) and state._bcast_object is _from_source


def _choose_source(state: State, must_sync: bool) -> Optional[int]:
    """Finds the rank whose state all ranks take. Returns its number of commits, or None when no rank must synchronise
    its state. All ranks must call it. Raises RuntimeError on all ranks if no rank can provide the training state,
    because its owners are lost or cannot return to a commit."""
    global _source
    _source = 0
    if not must_sync and _basics.all_keep_state():
        return None
    lost = state._lost
    if lost is None and not (not _basics.is_elastic() or _has_synced or _basics.was_there_from_the_start()):
        lost = ""  # this rank is new
    mine = (state._commits if follows_source(state) else None, lost, must_sync)
    known = [mine] if _basics.size() == 1 else _objects.allgather_object(mine, "elastic.commits")
    # A failure may reach some ranks while other ranks only receive a notice of changed hosts, and a new rank always
    # needs the state. Therefore all ranks compare.
    if not any(must for _, _, must in known):
        return None
    able = {rank: commits for rank, (commits, lost, _) in enumerate(known) if lost is None}
    if not able:
        why = next((f" {lost}" for _, lost, _ in known if lost), "")
        raise RuntimeError(f"hvd.elastic.run: no remaining rank has the training state.{why}")
    if all(commits is not None for commits, _, _ in known):
        newest = max(able.values())
        _source = min(rank for rank, commits in able.items() if commits == newest)
        return newest
    if 0 not in able:
        cause = known[0][1]
        raise RuntimeError(
            "hvd.elastic.run: the state copies that of rank 0, which "
            + (
                f"cannot return to its last commit: {cause}"
                if cause
                else "is new and does not have the state of the training."
            )
        )
    return state._commits


def _is_final(error: HorovodInternalError) -> bool:
    # A restart would repeat a disagreement, or a request for a missing feature.
    return isinstance(error, (ValueError, NotImplementedError))


def _leave() -> None:
    try:
        with _basics.restart():
            _basics.shutdown()
    except HorovodInternalError:
        pass  # the failure of the job is the reason for this call


def _reset_limit() -> int:
    given = os.environ.get("HOROVOD_RESET_LIMIT", "").strip()
    if given and not given.isdigit():
        raise ValueError(f"HOROVOD_RESET_LIMIT is {given!r}; give a whole number, 0 or more.")
    return int(given or 1000)


def _noted(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Notifies the launcher of an elastic job when the outermost call begins and ends. A process that exits within the
    call has failed, even by sys.exit(0)."""

    @functools.wraps(wrapper)
    def noted(*args: Any, **kwargs: Any) -> Any:
        global _depth
        if not _basics.is_elastic():
            return wrapper(*args, **kwargs)
        _depth += 1
        if _depth == 1:
            library().hvd_elastic_run_entered()
        leave = None
        try:
            result = wrapper(*args, **kwargs)
            leave = library().hvd_elastic_run_returned
            return result
        except SystemExit:
            raise
        except BaseException:
            leave = library().hvd_elastic_run_raised
            raise
        finally:
            _depth -= 1
            if _depth == 0 and leave is not None:
                leave()

    return noted


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function whose first argument is a state. All ranks must call it.

    Synchronises the state over all ranks, then calls the function. After a HorovodInternalError that the program did
    not cause, restores the state of the last `commit`, restarts Horovod and calls the function again. Raises the
    error when the ranks do not all join again within HOROVOD_INIT_TIMEOUT seconds, and when Horovod has restarted
    HOROVOD_RESET_LIMIT times already (1000 unless set). After a HostsUpdatedInterrupt, restarts Horovod with the
    state as it is, and does not synchronise the state if the interrupt's `skip_sync` is true on all ranks and no rank
    is new.

    In an elastic job the launcher limits the restarts (--reset-limit), and a process that exits before the function
    returns has failed, even with exit code 0: the other ranks continue without it. A rank that calls a decorated
    function for the first time receives the state of the other ranks.
    """
    return run_fn(func, _basics.init)


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """Does what `run` does; `reset()` restarts Horovod: it calls `hvd.init()`, and whatever the program adds."""
    return run_with(func, reset, contextlib.nullcontext)


def run_with(
    func: Callable[..., Any], reset: Callable[[], Any], errors: Callable[[], ContextManager[None]]
) -> Callable[..., Any]:
    """Does what `run_fn` does; within `errors()`, a framework's errors of collectives become HorovodInternalError."""

    @notified
    @_noted
    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        global _has_synced
        resets_left, skip_sync, is_reset, is_first = _reset_limit(), False, False, True
        if _basics.is_elastic():
            library().hvd_host_updates()  # notifies the launcher that this program survives a change of the ranks
        while True:
            try:
                with errors(), _ops.surviving():
                    if is_first:
                        is_first = False
                        is_reset = _basics.complete_init()
                    if is_reset:
                        state.on_reset()
                    commits = _choose_source(state, not skip_sync)
                    if commits is not None:
                        state.sync()
                        # Set these after `sync` only: until here, a failure returns this rank to its own commit.
                        state._commits, state._lost, _has_synced = commits, None, True
                        state._on_sync()
                    result = func(state, *args, **kwargs)
                    _ops.check_results()
                    return result
            except HorovodInternalError as error:
                if _is_final(error) or not resets_left:
                    raise
                cause: RuntimeError = error
                _leave()  # pending work has failed too, and `restore` would receive its error
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                if not resets_left:
                    raise
                cause, skip_sync = interrupt, interrupt.skip_sync
                state._on_interrupt()
                _leave()
            resets_left -= not _basics.is_elastic()  # in an elastic job, the launcher counts the resets
            try:
                with _basics.restart(keeps_state=skip_sync):
                    reset()
            except HorovodInternalError as again:
                raise cause from again
            del cause  # also frees the objects in its traceback, such as a module of DDP with its hooks
            is_reset = True

    return wrapper
