"""One operation of a group, as torch sees it, and the thread that completes futures."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, List, Optional, Sequence

import torch.distributed as dist
from torch.futures import Future

from horovod import _native
from horovod.torch.distributed import _profiling

_Base_init = dist._Work.__init__


class Work(dist._Work):
    """Waits for handles of the runtime, and then runs `finish`. One thread waits: the caller of `wait`, or, once
    there is a future, the thread that completes futures."""

    # A small allreduce takes a few microseconds: what most works never change is not set for each.
    _future: Any = None
    _is_done = False
    _is_waited_for = False
    _event: Any = None  # of torch's profiler
    _since = 0.0  # the time at which a future was made
    _error: Optional[BaseException] = None

    def __init__(
        self, label: Any, handles: List[Any], outputs: Any, seconds: float, finish: Optional[Callable[[], None]] = None
    ) -> None:
        _Base_init(self)
        self._label = label  # how errors name it: a text, or words
        self._handles = handles
        self._outputs = outputs
        self._seconds = seconds
        self._finish = finish

    def wait(self, timeout: Any = None) -> bool:
        if not self._is_done:
            if self._future is not None:
                self._future.wait()
                return True
            seconds = timeout.total_seconds() if timeout is not None else 0
            self._complete(seconds if seconds > 0 else self._seconds)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def _complete(self, seconds: float, has_waited: bool = False) -> None:
        """Waits, and stores an error. `has_waited`: the time has passed."""
        self._is_waited_for = True
        try:
            while self._handles:
                self._wait_some(0 if has_waited else seconds)
            if self._finish is not None:
                self._finish()
        except TimeoutError:
            self._end(
                RuntimeError(
                    f"horovod: Timed out waiting {round(seconds * 1000)}ms for {self._name()}; did "
                    "every rank of the group call it?"
                )
            )
            for handle in self._handles:
                self._abandon(handle)
        except Exception as error:
            self._end(error)
            for handle in self._handles[:-1]:
                self._abandon(handle)
        except BaseException:  # of a signal's handler: the caller may wait again
            self._is_waited_for = False
            raise
        else:
            self._end(None)

    def _wait_some(self, seconds: float) -> None:
        """Waits for one handle. Raises TimeoutError after that time."""
        _native.wait_for(self._handles[-1], seconds)
        self._handles.pop()

    def _poll(self, handle: Any) -> bool:
        return _native.poll(handle)

    def _abandon(self, handle: Any) -> None:
        _native.abandon(handle)

    def _name(self) -> str:
        return self._label if isinstance(self._label, str) else " ".join(map(str, self._label))

    def _end(self, error: Optional[BaseException]) -> None:
        self._finish = None
        self._error = error
        self._is_done = True
        if self._event is not None:
            _profiling.end(self._event)
            self._event = None
        if self._future is not None and self._is_waited_for:
            self._set_future()

    def _set_future(self) -> None:
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._outputs)

    def is_completed(self) -> bool:
        """Whether `wait` returns at once."""
        if self._is_done:
            return True
        return self._future is None and not self._is_waited_for and all(map(self._poll, self._handles))

    def is_success(self) -> bool:
        return self._is_done and self._error is None

    def exception(self) -> Optional[BaseException]:
        return self._error

    def result(self) -> Any:
        return self._outputs

    def get_future(self) -> Any:
        if self._future is None:
            self._future = Future()
            if self._is_done:
                self._set_future()
            elif not self._is_waited_for:
                self._since = time.monotonic()
                _completer.add(self)
        return self._future

    # A work of several works calls their methods of these names.
    getFuture = get_future


class Completed(Work):
    """A work without anything to wait for."""

    def __init__(self, outputs: Any) -> None:
        super().__init__("", [], outputs, 0)
        self._is_done = True


class Several(Work):
    """The works of a coalesced call."""

    def __init__(self, works: Sequence[Work]) -> None:
        super().__init__(
            "",
            list(reversed(works)),
            [output for work in works for output in work.result()],
            max((work._seconds for work in works), default=0),
        )

    def _wait_some(self, seconds: float) -> None:
        work = self._handles[-1]
        if work._future is None and work._handles and not work._is_done:
            work._wait_some(seconds)
        if not work._handles or work._future is not None:
            work.wait()
            self._handles.pop()

    def _poll(self, handle: Any) -> bool:
        return bool(handle.is_completed())

    def _abandon(self, handle: Any) -> None:
        pass


class _Completer:
    """Completes futures, on one thread for all groups. It sleeps while there are none."""

    # How long it waits for one work while there are others, or while others may come.
    _AMONG_OTHERS = 0.0005
    _ALONE = 0.005

    def __init__(self) -> None:
        self._new: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None

    def add(self, work: Work) -> None:
        self._new.put(work)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="hvd-futures", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        works: List[Work] = []
        while True:
            if not works:
                works.append(self._new.get())
            while not self._new.empty():
                works.append(self._new.get())
            works = [work for work in works if not self._completes(work)]
            if works:
                self._rest(works)

    def _completes(self, work: Work) -> bool:
        try:
            if not work._handles or all(map(work._poll, work._handles)):
                work._complete(work._seconds)
                return True
            if 0 < work._seconds < time.monotonic() - work._since:
                work._complete(work._seconds, has_waited=True)
                return True
        except Exception as error:  # the runtime has ended
            work._is_waited_for = True
            work._end(error)
            return True
        return False

    def _rest(self, works: List[Work]) -> None:
        """Waits a while for the oldest work, and ends those that have waited for too long."""
        work = works[0]
        seconds = self._AMONG_OTHERS if len(works) > 1 else self._ALONE
        try:
            work._wait_some(seconds)
        except TimeoutError:
            pass
        except Exception as error:
            work._is_waited_for = True
            work._end(error)
            works.remove(work)


_completer = _Completer()
