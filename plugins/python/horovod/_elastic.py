"""The shared part of every framework's `hvd.elastic`: states that can be saved, restored and made equal
on all ranks, and the loop around a training function.

This release's jobs keep their size: `run` starts the function again after a failure that the job
survives, and never sees hosts come or go.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Dict, List, Optional

from horovod import _basics, _objects
from horovod.exceptions import HorovodInternalError


class State:
    """The state that training needs to continue. Subclasses implement `save`, `restore` and `sync`.

    `bcast_object` and `get_rank` are accepted for existing scripts.
    """

    def __init__(self, bcast_object: Optional[Callable[..., Any]] = None,
                 get_rank: Optional[Callable[[], int]] = None) -> None:
        self._reset_callbacks: List[Callable[[], None]] = []
        self._commits = 0

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Calls these, in order, each time that Horovod has started anew."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Horovod has started anew."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: Any) -> None:
        """For existing scripts; hosts do not change."""

    def commit(self) -> None:
        """Saves, and looks for changes of hosts. A failure loses later changes."""
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """For existing scripts; hosts do not change."""

    def save(self) -> None:
        """Keeps the state in this process's memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives every rank the state of rank 0, and saves it; all ranks must call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapts to another number of ranks."""


class ObjectState(State):
    """Keyword arguments become attributes, which are kept as copies: anything that can be pickled.

    `bcast_object`: how rank 0's become those of all ranks, as `hvd.broadcast_object` where it is None.
    `get_rank` is accepted for existing scripts.
    """

    def __init__(self, bcast_object: Optional[Callable[..., Any]] = None,
                 get_rank: Optional[Callable[[], int]] = None, **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._bcast_object = bcast_object or _from_rank_0
        self._saved: Dict[str, Any] = dict(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved = copy.deepcopy(self._saved)

    def save(self) -> None:
        """Keeps copies of the attributes."""
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self) -> None:
        """The attributes become what was saved last."""
        for name, value in self._saved.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        """The attributes become those of rank 0; all ranks must call it."""
        if self._saved:
            mine = {name: getattr(self, name) for name in self._saved}
            self._saved = copy.deepcopy(self._bcast_object(mine))
            self.restore()


def _from_rank_0(attributes: Dict[str, Any]) -> Dict[str, Any]:
    return _objects.broadcast_object(attributes, 0, "elastic.state")


def _is_final(error: HorovodInternalError) -> bool:
    # Ranks that disagree, or ask for what there is not, would do so again.
    return isinstance(error, (ValueError, NotImplementedError))


def _leave() -> None:
    try:
        _basics.shutdown()
    except HorovodInternalError:
        pass  # that is why


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function whose first argument is a state; all ranks must call it.

    The state is made equal on all ranks, and the function runs. After a HorovodInternalError that is
    no mistake of the program's, the state goes back to its last `commit`, Horovod starts anew, and the
    function runs again from there. The error is raised where the ranks do not come together again
    within HOROVOD_START_TIMEOUT seconds, and where nothing was committed since the failure before.
    """
    return run_fn(func, _basics.init)


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """`run`, where `reset()` starts Horovod anew: it calls `hvd.init()`, and what else a program needs."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        commits_before = -1
        while True:
            state.sync()
            try:
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                if _is_final(error) or state._commits == commits_before:
                    raise
                commits_before = state._commits
                _leave()  # what is in flight has failed as well, and would say so to `restore`
                state.restore()
                try:
                    reset()
                except HorovodInternalError as again:
                    raise error from again
                state.on_reset()

    return wrapper
