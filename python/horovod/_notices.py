"""Notices of changed hosts, for a program's own objects that need them before the next commit."""

from __future__ import annotations

import enum
import functools
import threading
import time
import traceback
from typing import Any, Callable, Dict, Optional, Tuple

from horovod import _basics
from horovod._library import library

_SECONDS = 0.25  # between two reads of a counter in this process's memory


class HostUpdateResult(enum.IntFlag):
    """How the hosts of a job have changed."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3


def _waits(listener: Any) -> bool:
    # States of this package check for changes themselves, at the same step on all ranks.
    return getattr(getattr(listener, "on_hosts_updated", None), "__module__", "") != "horovod._elastic"


class WorkerNotificationManager:
    """Notifies its listeners when the launcher of an elastic job announces changed hosts. Calls their method
    `on_hosts_updated(timestamp, update_res)` on each rank, on a thread that exists while listeners are registered.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: Dict[int, Any] = {}  # the key is the id of a listener, which may be unhashable
        self._is_ready = False
        self._ended: Optional[threading.Event] = None  # ends the thread

    def init(self, *unused: Any, **unused_too: Any) -> None:
        """Begins to watch for changes. Does nothing outside elastic jobs, and when called again. The arguments, an
        address and others, have no effect: the process has a connection to its launcher."""
        self._is_ready = _basics.is_elastic()
        self._start_or_end()

    def register_listener(self, listener: Any) -> None:
        """Adds an object with a method `on_hosts_updated`."""
        with self._lock:
            self._listeners[id(listener)] = listener
        self._start_or_end()

    def remove_listener(self, listener: Any) -> None:
        """Removes the object; does nothing if it is not registered."""
        with self._lock:
            self._listeners.pop(id(listener), None)
        self._start_or_end()

    def handle_hosts_updated(self, timestamp: int, update_res: Any) -> None:
        """Calls all listeners, on this rank. `timestamp`: seconds since 1970; `update_res`: a
        HostUpdateResult. If a listener raises, prints the exception."""
        self._notify(lambda listener: True, timestamp, update_res)

    def _notify(self, wanted: Callable[[Any], bool], timestamp: int, update_res: Any) -> None:
        with self._lock:
            listeners = [listener for listener in self._listeners.values() if wanted(listener)]
        for listener in listeners:
            try:
                listener.on_hosts_updated(timestamp, update_res)
            except Exception:  # the other listeners still get this change, and this listener gets the next change
                traceback.print_exc()

    def _start_or_end(self) -> None:
        with self._lock:
            needed = self._is_ready and any(map(_waits, self._listeners.values()))
            if needed and self._ended is None:
                self._ended = threading.Event()
                threading.Thread(target=self._look, args=(self._ended,), name="hvd-hosts", daemon=True).start()
            elif not needed and self._ended is not None:
                self._ended.set()
                self._ended = None

    def _look(self, ended: threading.Event) -> None:
        notified: Tuple[int, int] = (-1, 0)  # generation and changes
        while not ended.wait(_SECONDS):
            found = (library().hvd_generation(), library().hvd_host_updates())
            if found[0] >= 0 and found[1] and found != notified:
                self._notify(_waits, int(time.time()), HostUpdateResult(found[1]))
            notified = found


notification_manager = WorkerNotificationManager()


def notified(function: Callable[..., Any]) -> Callable[..., Any]:
    """Registers the state, which is the function's first argument, as a listener while the function runs."""

    @functools.wraps(function)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        try:
            return function(state, *args, **kwargs)
        finally:
            notification_manager.remove_listener(state)

    return wrapper
