"""Threads, under the name that scripts import."""

from __future__ import annotations

import threading
from typing import Any, Callable, Iterable, Optional


def in_thread(
    target: Callable[..., Any],
    args: Iterable[Any] = (),
    name: Optional[str] = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a thread that calls `target(*args)`, and returns the thread. `silent`: print no exception
    of the call."""
    arguments = tuple(args)

    def call() -> None:
        try:
            target(*arguments)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread
