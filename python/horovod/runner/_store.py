"""A client of the job's store (rendezvous/PROTOCOL.md). `horovod.run` passes its function and results through the
store, and `horovod.torch.distributed` uses the store for process groups.

Client and server prove with each request that they know the job's secret, so the values come from the job. Imports no
framework and does not need the library.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
import ssl
import time
import urllib.parse
from typing import Any, Callable, Dict, List, Optional, Tuple

# The server accepts bodies of up to 64 MiB.
_CHUNK = 32 << 20
# The limits of a response: the length of a header line, and the number of header lines.
_LINE = 65536
_LINES = 100
_WAIT_SECONDS = 20.0
# The time limit to restore a broken connection, and the longest pause between two attempts.
_TIMEOUT_SECONDS = 60.0
_PAUSE_SECONDS = 1.0


class StoreError(RuntimeError):
    """The store refused a request, or belongs to another job."""


def connect(place: str, timeout: float = 30.0) -> Any:
    """Returns a socket connected to the address in HOROVOD_STORE. Raises ValueError for an invalid
    address."""
    kind, _, rest = place.partition(":")
    if kind in ("unix", "agent") and rest:
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(timeout)
        found.connect("\0" + rest[1:] if rest.startswith("@") else rest)
        return found
    split = urllib.parse.urlsplit(place if "//" in place else f"{kind}://{rest}")
    if kind not in ("tcp", "https") or not split.hostname or not split.port:
        raise ValueError(f"HOROVOD_STORE={place} names no store; see docs/settings.md for its forms.")
    found = socket.create_connection((split.hostname, split.port), timeout)
    if kind == "tcp":
        return found
    context = ssl.create_default_context(cafile=os.environ.get("HOROVOD_STORE_CA") or None)
    return context.wrap_socket(found, server_hostname=split.hostname)


class _Connection:
    """One connection to the store: signs requests, and accepts only signed responses."""

    def __init__(self, opened: Any, secret: bytes, limited: bool) -> None:
        self._socket, self._limited = opened, limited
        self._stream = opened.makefile("rb")
        nonce = os.urandom(16).hex()
        self._send("GET", "/v1/hello", {"Hvd-Nonce": nonce}, b"")
        status, fields, _ = self._receive(_WAIT_SECONDS)
        if status != 200:
            raise StoreError(f"the store answers hello with status {status}")
        text = f"horovod-rendezvous-1\n{nonce}\n{fields.get('hvd-nonce', '')}\n"
        self._key = hmac.new(secret, text.encode(), "sha256").digest()
        self._count = 0

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def request(self, method: str, target: str, body: bytes, timeout: float) -> Tuple[int, bytes]:
        self._count += 1
        digest = hashlib.sha256(body).hexdigest()
        proof = self._sign(f"request\n{self._count}\n{method}\n{target}\n{digest}")
        self._send(method, target, {"Authorization": f"HVD1 {self._count} {digest} {proof}"}, body)
        status, fields, answer = self._receive(timeout)
        digest = hashlib.sha256(answer).hexdigest()
        wanted = self._sign(f"response\n{self._count}\n{status}\n{digest}")
        if not hmac.compare_digest(wanted.encode(), fields.get("hvd-signature", "").encode()):
            raise StoreError(
                f"a response of status {status} to {method} {target} is not signed with "
                "the job's secret; it is not believed"
            )
        return status, answer

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()

    def _send(self, method: str, target: str, fields: Dict[str, str], body: bytes) -> None:
        lines = [f"{method} {target} HTTP/1.1", "Host: rendezvous", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        self._socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def _receive(self, timeout: float) -> Tuple[int, Dict[str, str], bytes]:
        self._socket.settimeout(timeout + _WAIT_SECONDS if self._limited else None)
        words = self._line().split(" ", 2)
        status = _number(words[1]) if len(words) > 1 and words[0].startswith("HTTP/1.") else None
        if status is None:
            raise StoreError("the program that answers at the store's place speaks no HTTP")
        fields: Dict[str, str] = {}
        for _ in range(_LINES):
            line = self._line()
            if not line:
                break
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip()
        else:
            raise StoreError(f"the store's response has more than {_LINES} header fields")
        size = _number(fields.get("content-length", ""))
        if size is None or size > 2 * _CHUNK + _LINE:
            raise StoreError(
                f"the store's response has a Content-Length of {fields.get('content-length', '')[:40] or 'nothing'}"
            )
        body = self._stream.read(size)
        if len(body) != size:
            raise ConnectionError("the store closed the connection inside a response")
        return status, fields, body

    def _line(self) -> str:
        line = self._stream.readline(_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionError("the store closed the connection")
        return line.strip().decode("latin-1")


class Store:
    """The keys of a job. One thread at a time."""

    def __init__(self, open_socket: Callable[[], Any], secret: str, reconnects: bool, limited: bool = True) -> None:
        """`secret`: in hexadecimal digits. `reconnects`: restore a broken connection. `limited`: give responses a time
        limit; a server on this host closes the connection when it ends, but may be suspended for any time."""
        self._open, self._secret, self._reconnects = open_socket, bytes.fromhex(secret), reconnects
        self._limited = limited
        self._connection: Optional[_Connection] = None

    @classmethod
    def of_environment(cls) -> Store:
        """Returns the store of this rank's job. Raises RuntimeError if this process is not a rank."""
        place, secret = os.environ.get("HOROVOD_STORE"), os.environ.get("HOROVOD_JOB_SECRET")
        if not place or not secret:
            raise RuntimeError(
                "This process is no rank of horovodrun: HOROVOD_STORE and HOROVOD_JOB_SECRET are not both set."
            )
        return cls(lambda: connect(place), secret, True)

    def close(self) -> None:
        """Closes the connection, if it is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def put(self, key: str, value: bytes) -> None:
        """Sets a value of any size. `get` finds the value once it is complete."""
        parts = [value[at : at + _CHUNK] for at in range(0, len(value), _CHUNK)] or [b""]
        for index, part in enumerate(parts):
            self._must("PUT", _target(f"{key}/part/{index}"), part)
        self._must("PUT", _target(key), str(len(parts)).encode())

    def get(self, key: str) -> bytes:
        """Waits without a limit until the key has a value; returns the value, which is empty if `put` did not set
        it."""
        count = _number(self._wait(_target(key)).decode("latin-1")) or 0
        return b"".join(self._wait(_target(f"{key}/part/{index}")) for index in range(count))

    def revision(self) -> int:
        """Returns the current revision, from which `changes` can start."""
        return _must_be_number(self._must("GET", "/v1/watch/").split(b"\n", 1)[0])

    def changes(self, prefix: str, revision: int) -> Tuple[int, List[str]]:
        """Waits until keys are set after `revision`; returns the next revision and these keys."""
        target = f"/v1/watch/{_quote(prefix)}?after={revision}"
        lines = self._wait(target, "&").split(b"\n")
        return _must_be_number(lines[0]), [
            urllib.parse.unquote(line[4:].decode("latin-1")) for line in lines[1:] if line.startswith(b"set ")
        ]

    def ask(self, method: str, target: str, body: bytes = b"") -> Tuple[int, bytes]:
        """Makes a protocol request that does not wait; returns status and body of the response."""
        return self._ask(method, target, body, _WAIT_SECONDS + len(body) / 262144)

    def _wait(self, target: str, joined_by: str = "?") -> bytes:
        while True:
            status, answer = self._ask(
                "GET", f"{target}{joined_by}wait={int(_WAIT_SECONDS * 1000)}", b"", _WAIT_SECONDS
            )
            if status == 200:
                return answer
            if status != 504:
                raise StoreError(answer.decode(errors="replace"))

    def _must(self, method: str, target: str, body: bytes = b"") -> bytes:
        status, answer = self.ask(method, target, body)
        if status != 200:
            raise StoreError(answer.decode(errors="replace"))
        return answer

    def _ask(self, method: str, target: str, body: bytes, timeout: float) -> Tuple[int, bytes]:
        deadline, pause = time.monotonic() + _TIMEOUT_SECONDS, 0.01
        while True:
            try:
                if self._connection is None:
                    self._connection = _Connection(self._open(), self._secret, self._limited)
                return self._connection.request(method, target, body, timeout)
            except OSError:
                self.close()
                if not self._reconnects or time.monotonic() > deadline:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS)


def _number(text: str) -> Optional[int]:
    """Returns a number of decimal digits without a sign, or None. str.isdigit() also accepts digits that int()
    rejects."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def _must_be_number(text: bytes) -> int:
    number = _number(text.decode("latin-1"))
    if number is None:
        raise StoreError("the store holds something else than a number where the job keeps one")
    return number


def _quote(key: str) -> str:
    return urllib.parse.quote(key, safe="")


def _target(key: str) -> str:
    return f"/v1/keys/{_quote(key)}"
