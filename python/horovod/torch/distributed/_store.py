"""Stores of groups: a wrapper of torch's store, whose operations end when the job fails, and keys in the job's own
store."""

from __future__ import annotations

import datetime
import os
import threading
import time
import urllib.parse
from typing import Any, Callable, List, Optional, Tuple

import torch.distributed as dist

from horovod.runner import _store
from horovod.torch.distributed import _failure

_StoreError: Any = getattr(dist, "DistStoreError", RuntimeError)

# Seconds between two checks of the job; first and last number of seconds between two checks of the store.
_PAUSE = 0.005
_PAUSES_OF_STORE = 0.001, 0.1


class _Store(dist.Store):
    """The common part of the stores below. C++ code calls some functions by other names than Python code."""

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._value(key)

    def wait(self, keys: List[str], timeout: Optional[datetime.timedelta] = None) -> None:
        given = self.timeout if timeout is None else timeout
        _await(lambda: self.check(keys), keys, given.total_seconds())

    def deleteKey(self, key: str) -> bool:
        return bool(self.delete_key(key))

    def getNumKeys(self) -> int:
        return int(self.num_keys())

    def has_extended_api(self) -> bool:
        return False

    def _value(self, key: str) -> bytes:
        raise NotImplementedError


class Watched(_Store):
    """Wraps another store. After the job has failed, operations raise the cause instead of waiting for a rank."""

    # torch 1.13 cannot test whether a key exists.
    is_possible = hasattr(dist.Store, "check")

    def __init__(self, inner: Any, timeout: datetime.timedelta) -> None:
        super().__init__()
        self._inner = inner
        self.set_timeout(timeout)

    def set(self, key: str, value: Any) -> None:
        _failure.check()
        self._inner.set(key, value)

    def _value(self, key: str) -> bytes:
        value: bytes = self._inner.get(key)
        return value

    def add(self, key: str, value: int) -> int:
        _failure.check()
        total: int = self._inner.add(key, value)
        return total

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        _failure.check()
        found: bytes = self._inner.compare_set(key, _bytes(expected).decode(), _bytes(desired).decode())
        return found

    def delete_key(self, key: str) -> bool:
        is_gone: bool = self._inner.delete_key(key)
        return is_gone

    def num_keys(self) -> int:
        count: int = self._inner.num_keys()
        return count

    def check(self, keys: List[str]) -> bool:
        _failure.check()
        are_there: bool = self._inner.check(keys)
        return are_there


class OfJob(_Store):
    """Keys with a prefix in the job's own store, which survives the end of any rank."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def set(self, key: str, value: Any) -> None:
        self._must("PUT", self._target("keys", key), _bytes(value))

    def _value(self, key: str) -> bytes:
        return self._must("GET", self._target("keys", key))

    def add(self, key: str, value: int) -> int:
        known: Optional[bytes] = None
        while True:
            total = int(known or b"0") + value
            is_set, known = self._swap(key, known, b"%d" % total)
            if is_set:
                return total

    def compare_set(self, key: str, expected: Any, desired: Any) -> Any:
        """Sets a key whose value is `expected`, or a missing key if `expected` is empty. Returns the key's value after
        the call, or `expected` if the key is missing."""
        before, after = _bytes(expected), _bytes(desired)
        is_set, found = self._swap(key, before or None, after)
        result = after if is_set else before if found is None else found
        return list(result) if isinstance(desired, list) else result  # torch 1.13

    def delete_key(self, key: str) -> bool:
        was_there = self.check([key])
        self._must("DELETE", self._target("keys", key))
        return was_there

    def num_keys(self) -> int:
        return len(_keys(self._prefix))

    def check(self, keys: List[str]) -> bool:
        return all(_client.ask("GET", self._target("keys", key))[0] == 200 for key in keys)

    def _swap(self, key: str, known: Optional[bytes], new: bytes) -> Tuple[bool, Optional[bytes]]:
        """Replaces the known value; None: the key is missing. Returns whether the value was replaced, and if not,
        the current value."""
        answer = self._must("POST", self._target("swap", key), (known or b"") + new, known)
        return answer[:1] == b"1", None if answer == b"-" else answer[1:]

    def _target(self, kind: str, key: str) -> str:
        return f"/v1/{kind}/{urllib.parse.quote(self._prefix + key, safe='')}"

    def _must(self, *request: Any) -> bytes:
        status, answer = _client.ask(*request)
        if status != 200:
            raise _StoreError(f"horovod: the job's store: {answer.decode(errors='replace')}")
        return answer


def in_job(generation: int, number: int, is_first: bool) -> OfJob:
    """Returns the store of the default group of this number in a generation. `is_first`: this is the first rank, which
    removes the keys of earlier generations."""
    mine = f"{_ALL}{generation}/"
    if is_first:
        for key in _keys(_ALL):
            if not key.startswith(mine):
                _client.ask("DELETE", f"/v1/keys/{urllib.parse.quote(key, safe='')}")
    return OfJob(f"{mine}{number}/")


_ALL = "torch/"


class _Client:
    """The connection of this process to the job's store, for all groups and threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store: Optional[_store.Store] = None
        self._id, self._number = os.urandom(16).hex(), 0

    def ask(self, method: str, target: str, body: bytes = b"", expected: Any = False) -> Tuple[int, bytes]:
        """Makes a request, and returns status and body of the response. `expected`, for a swap: the value at the
        beginning of the body, or None."""
        with self._lock:
            if self._store is None:
                self._store = _store.Store.of_environment()
            if expected is not False:
                self._number += 1
                target += f"?client={self._id}&sequence={self._number}"
                target += "" if expected is None else f"&expected={len(expected)}"
            return self._store.ask(method, target, body)


_client = _Client()


def _keys(prefix: str) -> List[str]:
    found: List[str] = []
    while True:
        after = f"?after={urllib.parse.quote(found[-1], safe='')}" if found else ""
        status, answer = _client.ask("GET", f"/v1/list/{urllib.parse.quote(prefix, safe='')}{after}")
        if status != 200:
            raise _StoreError(f"horovod: the job's store: {answer.decode(errors='replace')}")
        more, *lines = answer.decode().split()
        found += map(urllib.parse.unquote, lines)
        if more != "more":
            return found


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _await(is_done: Callable[[], bool], keys: List[str], seconds: float) -> None:
    until = time.monotonic() + seconds
    pause, most = _PAUSES_OF_STORE
    while not is_done():
        next_look = time.monotonic() + pause
        while True:
            _failure.check()
            now = time.monotonic()
            if now >= until:
                raise _StoreError(
                    f"horovod: Timed out waiting {round(seconds * 1000)}ms for the keys {', '.join(keys)} in the store"
                )
            if now >= next_look:
                break
            time.sleep(min(_PAUSE, next_look - now))
        pause = min(2 * pause, most)
