"""The thread that completes the futures of works (_work.Work)."""

from __future__ import annotations

import atexit
import collections
import os
import queue
import threading
import time
from typing import Any, Deque, List, Optional

NUMBER = 0  # stands for the completer as the owner of a work; not the id of a thread


class Completer:
    """Completes futures, on one thread for all groups. The thread sleeps while no future is open."""

    # The longest wait for one work while other works exist or may arrive.
    _AMONG_OTHERS = 0.0005
    _ALONE = 0.005
    # The time for which the completer leaves a work to the thread of a backward pass.
    _LATE = 0.1
    # The longest wait at exit for a callback that this thread runs.
    _AT_EXIT = 10

    def __init__(self) -> None:
        self._new: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._later: Deque[Any] = collections.deque()  # works added by add_later
        self._has_later = False  # _later has works, or this thread is about to check _later
        self.lock = threading.RLock()  # reentrant, because a signal handler may wait for a work
        self._thread: Optional[threading.Thread] = None
        self._threads: List[threading.Thread] = []  # this thread, and the threads that it replaced
        self._works: List[Any] = []  # the works of this thread

    def add(self, work: Any) -> None:
        self._new.put(work)
        if self._thread is None:
            with self.lock:
                if self._thread is None:
                    self._start()
        self.leave()  # a callback of the future may wait for another future

    def add_later(self, work: Any) -> None:
        """Adds a work that another thread completes if it can; C++ code may wait for the future before that."""
        work._since = time.monotonic()
        self._later.append(work)
        if not self._has_later:
            self._has_later = True
            self.add(None)

    def leave(self) -> None:
        """Lets another thread continue this thread's work if this thread runs a future's callback. Call before a
        wait."""
        if self._is_this_thread():
            self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="hvd-futures", daemon=True)
        self._threads = [thread for thread in self._threads if thread.is_alive()] + [self._thread]
        self._thread.start()

    def end(self) -> None:
        """Ends the threads at exit. Torch releases Python's lock while it completes a future. After the end of
        Python, a thread that requests the lock within torch's C++ code would be ended, which aborts the process."""
        threads, self._thread = self._threads, None
        self._new.put(None)  # a thread may be waiting for a new work
        until = time.monotonic() + self._AT_EXIT
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0))

    def _is_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        while self._is_this_thread():
            works = self._works
            self._take_late()
            if not works:
                try:
                    works.append(self._new.get(timeout=self._LATE if self._has_later else None))
                except queue.Empty:
                    continue
            while not self._new.empty():
                works.append(self._new.get())
            works[:] = [work for work in works if work is not None]
            for work in list(works):
                # Remove the work before its callbacks run: if a callback waits, another thread takes over self._works
                # (leave()).
                if self._is_ready(work):
                    works.remove(work)
                    self._end(work)
                    if not self._is_this_thread():
                        return
            if works:
                self._rest(works)

    def _take_late(self) -> None:
        late = time.monotonic() - self._LATE
        while self._later and (self._later[0]._is_done or self._later[0]._since < late):
            work = self._later.popleft()
            if not work._is_done and work._take(NUMBER):
                self._works.append(work)
        self._has_later = False
        if self._later:  # checked after the assignment, in the reverse order of add_later
            self._has_later = True

    def _is_ready(self, work: Any) -> bool:
        """Returns whether the work is complete, has failed, or has exceeded its time limit."""
        try:
            is_complete = not work._handles or all(map(work._poll, work._handles))
        except Exception:  # the runtime has ended; a wait raises the cause
            return True
        return is_complete or 0 < work._seconds < time.monotonic() - work._since

    def _end(self, work: Any) -> None:
        try:
            is_complete = not work._handles or all(map(work._poll, work._handles))
            work._complete(work._seconds, not is_complete, NUMBER)
        except Exception as error:
            work._end(error)

    def _rest(self, works: List[Any]) -> None:
        """Waits briefly for the first work, and moves it behind the others."""
        seconds = self._AMONG_OTHERS if len(works) > 1 else self._ALONE
        work = works.pop(0)
        try:
            work._wait_some(seconds)
        except TimeoutError:
            pass
        except Exception as error:
            work._end(error)
            return
        # If a callback has waited, another thread has replaced this thread.
        if self._is_this_thread():
            works.append(work)
        else:
            self._new.put(work)


completer = Completer()
# A forked child has none of its parent's threads, but may have a lock that one of them held.
os.register_at_fork(after_in_child=completer.__init__)  # type: ignore[misc]
# Exit handlers of groups are registered later, and therefore run earlier.
atexit.register(completer.end)
