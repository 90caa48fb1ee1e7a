"""BaseDataLoader, which subclasses implement, and a mixin that prepares batches in a thread."""

from __future__ import annotations

import atexit
import os
import queue
import threading
from typing import Any, Iterator, List, Optional, Tuple


class BaseDataLoader:
    """A loader of batches: subclasses implement the number of batches and their creation."""

    def __len__(self) -> int:
        """Returns the number of batches of an iteration. A subclass must implement it."""
        raise NotImplementedError(f"{type(self).__name__} does not define __len__.")

    def _iterate(self) -> Iterator[Any]:
        """Yields the batches of one iteration. A subclass must implement it."""
        raise NotImplementedError(f"{type(self).__name__} does not define _iterate.")

    def _process_batch(self, batch: Any) -> Any:
        """Processes each batch in the iterating thread; subclasses may override it. Returns the batch."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the batches once."""
        return (self._process_batch(batch) for batch in self._iterate())


class _Preparation:
    """One iteration that prepares a limited number of batches ahead, in its own thread."""

    # Seconds to wait at exit until the thread ends, which may still be preparing a batch.
    _AT_EXIT = 10

    def __init__(self, batches: Iterator[Any], ahead: int) -> None:
        self._ready: queue.Queue[Tuple[str, Any]] = queue.Queue(ahead)
        self._ended = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._fill, args=(batches,), daemon=True, name="horovod-data")
        # If a thread returns from a framework's C++ code during exit, Python ends the thread while C++ frames are
        # active, which aborts the process. Therefore end the thread first.
        atexit.register(self._end, self._AT_EXIT)
        self._thread.start()

    def _fill(self, batches: Iterator[Any]) -> None:
        try:
            for batch in batches:
                if not self._offer("batch", batch):
                    return
            self._offer("end", None)
        except BaseException as error:  # the iterating thread raises the error
            self._offer("error", error)

    def _offer(self, kind: str, value: Any) -> bool:
        while not self._ended.is_set():
            try:
                self._ready.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def __iter__(self) -> Iterator[Any]:
        try:
            while not self._ended.is_set():
                if os.getpid() != self._process:
                    raise RuntimeError(
                        "horovod.data: this process is a child by fork, which does not have the thread that makes the "
                        "batches; begin the iteration in the child."
                    )
                try:
                    kind, value = self._ready.get(timeout=0.1)
                except queue.Empty:
                    continue
                if kind == "error":
                    raise value
                if kind == "end":
                    return
                yield value
        finally:
            self.close()

    def close(self) -> None:
        """Ends the thread after the batch that it is making."""
        self._end()
        atexit.unregister(self._end)

    def _end(self, seconds: Optional[float] = None) -> None:
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)


class AsyncDataLoaderMixin:
    """A mixin to put before a BaseDataLoader in a class's list of bases: a thread makes batches, while the training
    uses the previous batches.

        class Loader(AsyncDataLoaderMixin, MyLoader): ...
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        """`async_loader_queue_size`: the number of batches made ahead; 0 starts no thread. `debug_data_loader`: for
        existing scripts; has no effect. The other arguments are the loader's."""
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._preparations: List[_Preparation] = []
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the batches once; raises the errors of the thread that makes them."""
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        ahead = _Preparation(self._iterate(), self.async_loader_queue_size)  # type: ignore[attr-defined]
        self._preparations.append(ahead)
        try:
            for batch in ahead:
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            ahead.close()
            if ahead in self._preparations:
                self._preparations.remove(ahead)

    def close_async_loader(self) -> None:
        """Ends the threads of unfinished iterations, and these iterations."""
        for preparation in list(self._preparations):
            preparation.close()
