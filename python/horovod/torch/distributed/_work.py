"""One operation of a group, as torch sees it."""

from __future__ import annotations

import datetime
import functools
import threading
import time
import weakref
from typing import Any, Callable, List, Optional, Sequence

import torch.distributed as dist
from torch.futures import Future

from horovod import _native
from horovod.torch.distributed import _backward, _completer, _profiling, _tensor_memory
from horovod.torch.distributed._completer import completer

_Base_init = dist._Work.__init__


class Work(dist._Work):
    """Waits for handles of the runtime, and then runs `finish`. Only the owner of a work waits and completes it:

        open ---- _take(owner) ----> owned ---- _end ----> done
          ^                            |
          +------- _give_up -----------+    a wait has ended before the work

    The owner is the thread of a caller of `wait`; a coalesced call; or, once there is a future, the thread that
    completes futures. Other threads wait for the owner."""

    # Class attributes hold the defaults, which most works never change. Setting each attribute in __init__ would slow a
    # small allreduce, which takes only a few microseconds.
    _future: Any = None
    _owner: Any = None  # the number of a thread, a Several, or _completer.NUMBER
    _is_done = False
    _is_given_up = False  # a wait ended earlier than the work
    _event: Any = None  # event of torch's profiler
    _group_works: Any = None  # _open_works.OpenWorks
    _weak_outputs: Any = ()
    _since = 0.0  # the time at which the completer got the work
    _error: Optional[BaseException] = None
    _trigger: Any = None  # an object that completes the future, once

    def __init__(
        self, label: Any, handles: Any, outputs: Any, seconds: float, finish: Optional[Callable[[], None]] = None
    ) -> None:
        _Base_init(self)
        self._label = label  # the work's name in errors: a text, or words
        self._handles: List[Any] = handles
        self._outputs = outputs
        self._seconds = seconds
        self._finish = finish

    def wait(self, timeout: Any = None) -> bool:
        if not self._is_done:
            seconds = timeout.total_seconds() if timeout is not None else 0
            if self._is_of_completer():
                completer.leave()
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
        """Waits as `wait` does, but ignores the work's error."""
        if not self._is_done:
            if self._is_of_completer():
                completer.leave()
            self._complete(self._seconds if seconds is None else seconds)

    def _complete(
        self, seconds: float, has_waited: bool = False, owner: Any = None, may_wait_again: bool = False
    ) -> None:
        """Waits, and stores an error. `has_waited`: the time has already passed. `may_wait_again`: a timeout does not
        end the work, and raises RuntimeError."""
        owner = threading.get_ident() if owner is None else owner
        while self._owner != owner and not self._take(owner):
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
        except BaseException:  # a signal handler has raised: the caller may wait again
            self._give_up()
            raise
        else:
            self._end(None)

    def _is_of_completer(self) -> bool:
        """Returns whether the completer thread may complete the work. That thread itself must not wait for the work."""
        return self._future is not None or self._owner == _completer.NUMBER

    def _give_up(self) -> None:
        """Lets another thread complete the work."""
        self._is_given_up, self._owner = True, None
        if self._future is not None:
            self._hand_over()

    def _hand_over(self) -> None:
        """Lets the completer thread complete the work, unless another thread does."""
        if self._take(_completer.NUMBER):
            self._since = time.monotonic()
            completer.add(self)

    def _take(self, owner: Any) -> bool:
        """Makes `owner` the owner of an open work. Returns whether the work was open."""
        with completer.lock:
            is_open = self._owner is None
            if is_open:
                self._owner = owner
        return is_open

    def _follow(self, seconds: float) -> None:
        """Waits until another thread completes this work or gives up. Raises TimeoutError after `seconds`."""
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
        """Waits for one handle. Raises TimeoutError after `seconds`."""
        _native.wait_for(self._handles[-1], seconds)
        self._handles.pop()

    def _poll(self, handle: Any) -> bool:
        return _native.poll(handle)

    def _abandon(self, handle: Any) -> None:
        _native.abandon(handle)

    @property
    def timeout(self) -> datetime.timedelta:
        """Returns the time limit of `wait`."""
        return datetime.timedelta(seconds=self._seconds)

    def _get_sequence_number(self) -> int:
        """Returns the number of a collective within its group; 0 for a message."""
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
        with completer.lock:
            trigger, self._trigger = self._trigger, None
        if trigger is not None:
            trigger.set_result(None)

    def _give(self, unused: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self.result()

    def is_completed(self) -> bool:
        """Returns whether the work is complete, with its results in the outputs."""
        if not self._is_done and not self.is_awaited() and all(map(self._poll, self._handles)):
            self._complete(self._seconds)
        return self._is_done

    def is_awaited(self) -> bool:
        """Returns whether a thread is completing the work."""
        return self._owner is not None

    def is_success(self) -> bool:
        return self._is_done and self._error is None

    def exception(self) -> Optional[BaseException]:
        return self._error

    def result(self) -> Any:
        if self._outputs is not None:
            return self._outputs
        return [output for output in (one() for one in self._weak_outputs) if output is not None]

    def release(self) -> None:
        """Drops the references to the outputs of a complete work, which other objects may hold."""
        if self._outputs is not None:
            self._weak_outputs, self._outputs = [weakref.ref(output) for output in self._outputs], None
        self._future = self._trigger = None

    def get_future(self) -> Any:
        if self._future is None:
            # The C++ code of DDP would treat an exception from set_exception as a value, and read it as tensors. It
            # recognises an exception that a callback of a future raises.
            self._trigger = Future()
            self._future = self._trigger.then(self._give)
            if self._is_done:
                self._set_future()
            elif _backward.take(self):
                completer.add_later(self)
            else:
                self._hand_over()
        return self._future

    # Several calls these methods of its works, by both names.
    getFuture = get_future


class Completed(Work):
    """A work that is already complete."""

    def __init__(self, outputs: Any) -> None:
        super().__init__("", [], outputs, 0)
        self._is_done = True


class Compared(Work):
    """An operation that starts once its comparing call has succeeded. The ranks compare the operation by this call."""

    def __init__(
        self, label: Any, call: Any, start: Callable[[], Any], outputs: Any, seconds: float, finish: Callable[[], None]
    ) -> None:
        super().__init__(label, [call], outputs, seconds, finish)
        self._start: Optional[Callable[[], Any]] = start

    def run(self) -> Work:
        """Lets the completer thread start the operation: other ranks may wait for it while this rank waits for
        something else."""
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
        except Exception as error:  # the comparing call has raised an error
            self._handles, self._finish = [], functools.partial(_raise, error)
        return not self._handles

    def _abandon(self, handle: Any) -> None:
        if self._start is None:
            super()._abandon(handle)
            return
        # The completer still starts the operation after the call: otherwise the other ranks would wait for it.
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
        if work._is_of_completer() and self._owner != _completer.NUMBER:
            completer.leave()
        while not work._is_done:
            if work._owner is self or work._take(self):
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
            if work._owner is self and not work._is_done:
                work._give_up()
        super()._give_up()

    def _poll(self, handle: Any) -> bool:
        if handle._owner is self:
            return handle._is_done or all(map(handle._poll, handle._handles))
        return bool(handle.is_completed())

    def _abandon(self, handle: Any) -> None:
        if handle._owner is self and not handle._is_done:
            handle._end(self._error)
            for each in handle._handles:
                handle._abandon(each)
