"""One operation of a group, as torch sees it, and the thread that completes futures."""

from __future__ import annotations

import atexit
import collections
import datetime
import functools
import os
import queue
import threading
import time
import weakref
from typing import Any, Callable, Deque, List, Optional, Sequence

import torch.distributed as dist
from torch.futures import Future

from horovod import _native
from horovod.torch.distributed import _backward, _profiling, _tensor_memory

_Base_init = dist._Work.__init__

_COMPLETER = 0  # the number of no thread: the thread that completes futures


class Work(dist._Work):
    """Waits for handles of the runtime, and then runs `finish`. One thread waits: the caller of `wait`, or, once
    there is a future, the thread that completes futures."""

    # A small allreduce takes a few microseconds: what most works never change is not set for each.
    _future: Any = None
    _is_done = False
    _is_handed_over = False
    _is_given_up = False  # a wait has ended before the work
    _event: Any = None  # of torch's profiler
    _group_works: Any = None  # _open_works.OpenWorks
    _weak_outputs: Any = ()
    _since = 0.0  # the time at which a future was made
    _error: Optional[BaseException] = None
    _owner: Any  # the thread or the coalesced call that completes it, or _COMPLETER
    _giver: object  # the caller that completes the future
    _trigger: Any  # completes the future

    def __init__(
        self, label: Any, handles: Any, outputs: Any, seconds: float, finish: Optional[Callable[[], None]] = None
    ) -> None:
        _Base_init(self)
        self._label = label  # how errors name it: a text, or words
        self._handles: List[Any] = handles
        self._outputs = outputs
        self._seconds = seconds
        self._finish = finish

    def wait(self, timeout: Any = None) -> bool:
        if not self._is_done:
            seconds = timeout.total_seconds() if timeout is not None else 0
            if self._is_of_completer():
                _completer.leave()
            if seconds > 0:
                self._complete(seconds, may_wait_again=True)
            else:
                self._complete(self._seconds)
        if self._group_works is not None:
            self._group_works.forget(self)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def complete(self, seconds: Optional[float] = None) -> None:
        """Waits as `wait`, and raises no error of the work."""
        if not self._is_done:
            if self._is_of_completer():
                _completer.leave()
            self._complete(self._seconds if seconds is None else seconds)

    def _complete(
        self, seconds: float, has_waited: bool = False, owner: Any = None, may_wait_again: bool = False
    ) -> None:
        """Waits, and stores an error. `has_waited`: the time has passed. `may_wait_again`: its end is not that of the
        work, and raises RuntimeError."""
        owner = threading.get_ident() if owner is None else owner
        while self.__dict__.setdefault("_owner", owner) != owner:  # one step, also with several threads
            try:
                self._follow(seconds)
            except TimeoutError:
                raise self._timed_out(seconds) from None
            if self._is_done:
                return
        try:
            while self._handles:
                self._wait_some(0 if has_waited else seconds)
            if self._finish is not None:
                self._finish()
        except TimeoutError:
            if may_wait_again:
                self._give_up()
                raise self._timed_out(seconds) from None
            self._end(self._timed_out(seconds))
            for handle in self._handles:
                self._abandon(handle)
        except Exception as error:
            self._end(error)
            for handle in self._handles[:-1]:
                self._abandon(handle)
        except BaseException:  # of a signal's handler: the caller may wait again
            self._give_up()
            raise
        else:
            self._end(None)

    def _is_of_completer(self) -> bool:
        """Whether the thread that completes futures may complete it. That thread itself must not wait for that."""
        return self._future is not None or self._is_handed_over

    def _give_up(self) -> None:
        """Lets another thread complete the work."""
        self._is_given_up = True
        del self._owner
        if self._future is not None:
            self._hand_over()

    def _hand_over(self) -> None:
        """Lets the thread that completes futures complete the work, unless another thread does."""
        if self._is_first_handed_over():
            self._since = time.monotonic()
            _completer.add(self)

    def _is_first_handed_over(self) -> bool:
        with _completer.lock:
            if self._is_handed_over or self.__dict__.setdefault("_owner", _COMPLETER) != _COMPLETER:
                return False
            self._is_handed_over = True
            return True

    def _follow(self, seconds: float) -> None:
        """Waits for another thread that completes this work, or gives up. Raises TimeoutError after that time."""
        since, pause = time.monotonic(), 0.00002
        while not self._is_done and self.is_awaited():
            if 0 < seconds < time.monotonic() - since:
                raise TimeoutError
            time.sleep(pause)
            pause = min(2 * pause, 0.001)

    def _timed_out(self, seconds: float) -> RuntimeError:
        return RuntimeError(
            f"horovod: Timed out waiting {round(seconds * 1000)}ms for {self._name()}; did every rank of the group "
            "call it?"
        )

    def _wait_some(self, seconds: float) -> None:
        """Waits for one handle. Raises TimeoutError after that time."""
        _native.wait_for(self._handles[-1], seconds)
        self._handles.pop()

    def _poll(self, handle: Any) -> bool:
        return _native.poll(handle)

    def _abandon(self, handle: Any) -> None:
        _native.abandon(handle)

    @property
    def timeout(self) -> datetime.timedelta:
        """The time after which `wait` gives up."""
        return datetime.timedelta(seconds=self._seconds)

    def _get_sequence_number(self) -> int:
        """The number of a collective among those of its group; 0 for a message."""
        return next((word for word in self._label[2:3] if isinstance(word, int)), 0)

    def _name(self) -> str:
        return self._label if isinstance(self._label, str) else " ".join(map(str, self._label))

    def _end(self, error: Optional[BaseException]) -> None:
        self._finish = None
        self._error = error
        self._is_done = True
        if error is not None:
            _tensor_memory.forget()
        if self._group_works is not None:
            self._group_works.ended(self)
        if self._event is not None:
            _profiling.end(self._event)
            self._event = None
        if self._future is not None:
            self._set_future()

    def _set_future(self) -> None:
        me = object()
        if self.__dict__.setdefault("_giver", me) is me:
            self._trigger.set_result(None)

    def _give(self, unused: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self.result()

    def is_completed(self) -> bool:
        """Whether the work is complete, with its results in the outputs."""
        if not self._is_done and not self.is_awaited() and all(map(self._poll, self._handles)):
            self._complete(self._seconds)
        return self._is_done

    def is_awaited(self) -> bool:
        """Whether a thread completes it."""
        return "_owner" in self.__dict__

    def is_success(self) -> bool:
        return self._is_done and self._error is None

    def exception(self) -> Optional[BaseException]:
        return self._error

    def result(self) -> Any:
        if self._outputs is not None:
            return self._outputs
        return [output for output in (one() for one in self._weak_outputs) if output is not None]

    def release(self) -> None:
        """Leaves the outputs of a complete work to others that have them."""
        if self._outputs is not None:
            self._weak_outputs, self._outputs = [weakref.ref(output) for output in self._outputs], None
        self._future = self._trigger = None
        self.__dict__.pop("_giver", None)

    def get_future(self) -> Any:
        if self._future is None:
            # An exception that set_exception stores is a value to DDP's C++, which reads it as tensors: one that
            # a callback raises is an error there too.
            self._trigger = Future()
            self._future = self._trigger.then(self._give)
            if self._is_done:
                self._set_future()
            elif _backward.take(self):
                _completer.add_later(self)
            else:
                self._hand_over()
        return self._future

    # A work of several works calls their methods of these names.
    getFuture = get_future


class Completed(Work):
    """A work without anything to wait for."""

    def __init__(self, outputs: Any) -> None:
        super().__init__("", [], outputs, 0)
        self._is_done = True


class Compared(Work):
    """An operation that starts once a call, by which the ranks compare it, has succeeded."""

    def __init__(
        self, label: Any, call: Any, start: Callable[[], Any], outputs: Any, seconds: float, finish: Callable[[], None]
    ) -> None:
        super().__init__(label, [call], outputs, seconds, finish)
        self._start: Optional[Callable[[], Any]] = start

    def run(self) -> Work:
        """Lets the thread that completes futures start it: other ranks may wait for the operation while this one waits
        for something else."""
        self._hand_over()
        return self

    def _wait_some(self, seconds: float) -> None:
        super()._wait_some(seconds)
        if self._start is not None:
            start, self._start = self._start, None
            self._handles.append(start())

    def _poll(self, handle: Any) -> bool:
        is_complete = super()._poll(handle)
        if not is_complete or self._start is None:
            return is_complete
        try:
            self._wait_some(0)
        except Exception as error:  # of the call
            self._handles, self._finish = [], functools.partial(_raise, error)
        return not self._handles

    def _abandon(self, handle: Any) -> None:
        if self._start is None:
            super()._abandon(handle)
            return
        # The call still takes part, as any call that has timed out: the other ranks then wait for the operation.
        start, self._start = self._start, None
        Compared("", handle, start, [], 0, _nothing).run()


def _nothing() -> None:
    pass


def _raise(error: Exception) -> None:
    raise error


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
        if work._is_of_completer() and self._owner != _COMPLETER:
            _completer.leave()
        while not work._is_done:
            if work.__dict__.setdefault("_owner", self) is self:
                self._advance(work, seconds)
            elif seconds == 0:  # the time has passed
                raise TimeoutError
            else:
                work._follow(seconds)
        if work._error is not None:
            raise work._error
        self._handles.pop()

    def _advance(self, work: Work, seconds: float) -> None:
        try:
            while work._handles:
                work._wait_some(seconds)
        except TimeoutError:
            raise
        except Exception as error:
            work._end(error)
            for handle in work._handles[:-1]:
                work._abandon(handle)
        else:
            work._complete(seconds, owner=self)

    def _give_up(self) -> None:
        for work in self._handles:
            if work.__dict__.get("_owner") is self and not work._is_done:
                work._give_up()
        super()._give_up()

    def _poll(self, handle: Any) -> bool:
        if handle.__dict__.get("_owner") is self:
            return handle._is_done or all(map(handle._poll, handle._handles))
        return bool(handle.is_completed())

    def _abandon(self, handle: Any) -> None:
        if handle.__dict__.get("_owner") is self and not handle._is_done:
            handle._end(self._error)
            for each in handle._handles:
                handle._abandon(each)


class _Completer:
    """Completes futures, on one thread for all groups. It sleeps while there are none."""

    # How long it waits for one work while there are others, or while others may come.
    _AMONG_OTHERS = 0.0005
    _ALONE = 0.005
    # How long it leaves a work to the thread of a backward pass.
    _LATE = 0.1
    # How long the process waits at exit for a callback that this thread runs.
    _AT_EXIT = 10

    def __init__(self) -> None:
        self._new: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._later: Deque[Work] = collections.deque()  # this thread takes them out
        self._has_later = False  # or is about to look
        self.lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._threads: List[threading.Thread] = []  # this one, and those that others went on for
        self._works: List[Work] = []  # of this thread

    def add(self, work: Work) -> None:
        self._new.put(work)
        if self._thread is None:
            with self.lock:
                if self._thread is None:
                    self._start()
        self.leave()  # the callback may wait for the future

    def add_later(self, work: Work) -> None:
        """Adds a work that another thread completes, if it can: code in C++ may wait for the future before."""
        work._since = time.monotonic()
        self._later.append(work)
        if not self._has_later:
            self._has_later = True
            self.add(Completed([]))

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
        self._new.put(Completed([]))  # a thread may wait for a work
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
            if not work._is_done and work._is_first_handed_over():
                self._works.append(work)
        self._has_later = False
        if self._later:  # looked at after the assignment, as add_later does
            self._has_later = True

    def _is_ready(self, work: Work) -> bool:
        """Whether the work is complete, has failed, or has taken too long."""
        try:
            is_complete = not work._handles or all(map(work._poll, work._handles))
        except Exception:  # the runtime has ended: waiting says so
            return True
        return is_complete or 0 < work._seconds < time.monotonic() - work._since

    def _end(self, work: Work) -> None:
        try:
            is_complete = not work._handles or all(map(work._poll, work._handles))
            work._complete(work._seconds, not is_complete, _COMPLETER)
        except Exception as error:
            work._end(error)

    def _rest(self, works: List[Work]) -> None:
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


_completer = _Completer()
# A forked child has none of its parent's threads, and perhaps a lock of one of them.
os.register_at_fork(after_in_child=_completer.__init__)  # type: ignore[misc]
# Groups register what they do at exit later, and it runs before.
atexit.register(_completer.end)
