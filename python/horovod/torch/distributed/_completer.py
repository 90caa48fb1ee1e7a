"""The thread that completes the futures of works (_work.Work)."""

from __future__ import annotations

import atexit
import collections
import os
import queue
import threading
import time
from typing import Any, Deque, List, Optional

NUMBER = 0  # of this thread, as the owner of a work: that of no thread


class Completer:
    """Completes futures, on one thread for all groups. It sleeps while there are none."""

    # How long it waits for one work while there are others, or while others may come.
    _AMONG_OTHERS = 0.0005
    _ALONE = 0.005
    # How long it leaves a work to the thread of a backward pass.
    _LATE = 0.1
    # How long the process waits at exit for a callback that this thread runs.
    _AT_EXIT = 10

    def __init__(self) -> None:
        self._new: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._later: Deque[Any] = collections.deque()  # this thread takes them out
        self._has_later = False  # or is about to look
        self.lock = threading.RLock()  # a signal's handler may wait for a work
        self._thread: Optional[threading.Thread] = None
        self._threads: List[threading.Thread] = []  # this one, and those that others went on for
        self._works: List[Any] = []  # of this thread

    def add(self, work: Any) -> None:
        self._new.put(work)
        if self._thread is None:
            with self.lock:
                if self._thread is None:
                    self._start()
        self.leave()  # the callback may wait for the future

    def add_later(self, work: Any) -> None:
        """Adds a work that another thread completes, if it can: code in C++ may wait for the future before."""
        work._since = time.monotonic()
        self._later.append(work)
        if not self._has_later:
            self._has_later = True
            self.add(None)

    def leave(self) -> None:
        """Called before a wait. In a callback of a future, which this thread runs, another thread goes on."""
        if self._is_this_thread():
            self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="hvd-futures", daemon=True)
        self._threads = [thread for thread in self._threads if thread.is_alive()] + [self._thread]
        self._thread.start()

    def end(self) -> None:
        """Ends the threads at exit. Torch releases Python's lock while it completes a future. A thread that asks for it
        again after Python has ended would be ended within torch's C++, which aborts the process."""
        threads, self._thread = self._threads, None
        self._new.put(None)  # a thread may wait for a work
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
                # Removed before its callbacks run, which another thread may have to go on beside.
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
        if self._later:  # looked at after the assignment, as add_later does
            self._has_later = True

    def _is_ready(self, work: Any) -> bool:
        """Whether the work is complete, has failed, or has taken too long."""
        try:
            is_complete = not work._handles or all(map(work._poll, work._handles))
        except Exception:  # the runtime has ended: waiting says so
            return True
        return is_complete or 0 < work._seconds < time.monotonic() - work._since

    def _end(self, work: Any) -> None:
        try:
            is_complete = not work._handles or all(map(work._poll, work._handles))
            work._complete(work._seconds, not is_complete, NUMBER)
        except Exception as error:
            work._end(error)

    def _rest(self, works: List[Any]) -> None:
        """Waits a while for the first work, and puts it behind the others."""
        seconds = self._AMONG_OTHERS if len(works) > 1 else self._ALONE
        work = works.pop(0)
        try:
            work._wait_some(seconds)
        except TimeoutError:
            pass
        except Exception as error:
            work._end(error)
            return
        # A callback that waits has let another thread go on.
        if self._is_this_thread():
            works.append(work)
        else:
            self._new.put(work)


completer = Completer()
# A forked child has none of its parent's threads, and perhaps a lock of one of them.
os.register_at_fork(after_in_child=completer.__init__)  # type: ignore[misc]
# Groups register what they do at exit later, and it runs before.
atexit.register(completer.end)
