"""The common part of `hvd.elastic` of every framework: states that can be saved, restored and
synchronised over all ranks, and the loop around a training function.

The size of a job is fixed in this release. `run` calls the function again after a failure that the job
survives. Hosts never join or leave.
"""

from __future__ import annotations

import copy
import functools
import os
from typing import Any, Callable, Dict, List, Optional

from horovod import _basics, _objects
from horovod.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class State:
    """The state that training needs to continue. Subclasses implement `save`, `restore` and `sync`.

    `bcast_object`: the function that copies rank 0's object to all ranks; None: `hvd.broadcast_object`.
    `get_rank`: the function that returns this process's rank; None: `hvd.rank`. Subclasses find these as
    `_bcast_object` and `_rank`.
    """

    def __init__(self, bcast_object: Optional[Callable[..., Any]] = None,
                 get_rank: Optional[Callable[[], int]] = None) -> None:
        self._bcast_object = bcast_object or _from_rank_0
        self._rank = get_rank or _basics.rank
        self._reset_callbacks: List[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Registers functions to call, in order, after each restart of Horovod."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called after Horovod has restarted."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: Any) -> None:
        """For existing scripts. The hosts of a job do not change."""

    def commit(self) -> None:
        """Saves the state. A failure loses later changes. Also checks for changed hosts, of which there
        are none."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """For existing scripts. The hosts of a job do not change."""

    def save(self) -> None:
        """Keeps a copy of the state in this process's memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Sets the state to the last saved copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Sets the state of every rank to that of rank 0, and saves it. All ranks must call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapts the state to another number of ranks."""


class ObjectState(State):
    """A state whose attributes are the keyword arguments. It keeps copies of them: any picklable
    objects. Subclasses find the copies by name in `_saved_state`."""

    def __init__(self, bcast_object: Optional[Callable[..., Any]] = None,
                 get_rank: Optional[Callable[[], int]] = None, **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state: Dict[str, Any] = dict(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = copy.deepcopy(self._saved_state)

    def save(self) -> None:
        """Keeps copies of the attributes."""
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        """Sets the attributes to the last saved copies."""
        for name, value in list(self._saved_state.items()):
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        """Sets the attributes to those of rank 0. All ranks must call it."""
        if self._saved_state:
            mine = {name: getattr(self, name) for name in self._saved_state}
            self._saved_state = copy.deepcopy(self._bcast_object(mine))
            self.restore()


def _from_rank_0(attributes: Dict[str, Any]) -> Dict[str, Any]:
    return _objects.broadcast_object(attributes, 0, "elastic.state")


def _is_final(error: HorovodInternalError) -> bool:
    # A disagreement or an unimplemented request would happen again after a restart.
    return isinstance(error, (ValueError, NotImplementedError))


def _leave() -> None:
    try:
        _basics.shutdown()
    except HorovodInternalError:
        pass  # that is why


def _reset_limit() -> int:
    given = os.environ.get("HOROVOD_RESET_LIMIT", "").strip()
    if given and not given.isdigit():
        raise ValueError(f"HOROVOD_RESET_LIMIT is {given!r}; give a whole number, 0 or more.")
    return int(given or 1000)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function whose first argument is a state. All ranks must call it.

    Synchronises the state over all ranks, then calls the function. After a HorovodInternalError that is
    not an error of the program, it restores the state of the last `commit`, restarts Horovod and calls
    the function again. It raises the error when the ranks do not all join again within
    HOROVOD_START_TIMEOUT seconds, and when it has restarted HOROVOD_RESET_LIMIT times already (1000 unless
    set). After a HostsUpdatedInterrupt, it restarts Horovod with the state as it is, and does not synchronise the
    state if the interrupt's `skip_sync` is true.
    """
    return run_fn(func, _basics.init)


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """`run`, where `reset()` starts Horovod anew: it calls `hvd.init()`, and what else a program needs."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        resets_left, skip_sync = _reset_limit(), False
        while True:
            try:
                if not skip_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                if _is_final(error) or not resets_left:
                    raise
                cause: RuntimeError = error
                _leave()  # work in flight has failed too, and `restore` would get its error
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                if not resets_left:
                    raise
                cause, skip_sync = interrupt, interrupt.skip_sync
                _leave()
            resets_left -= 1
            try:
                reset()
            except HorovodInternalError as again:
                raise cause from again
            state.on_reset()

    return wrapper
