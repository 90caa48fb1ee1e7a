"""The Python client of the store (horovod/runner/_store.py) returns a value or raises StoreError or OSError,
for any answers. A server that knows the job's secret may sign any answer.

Usage: store_client_fuzz.py CORPUS [SECONDS]

Without SECONDS: runs each file of the corpus, and every cut of it. With SECONDS: runs changed files for that
time, and keeps those that reach new pairs of lines.

A file is a letter for the call (g, p, r or c), then answers, each ended by a line "--". An answer that
begins with "=" is a status, a blank and a body, which the harness signs; all other answers are sent unchanged.
"""

import hashlib
import hmac
import importlib.util
import io
import pathlib
import random
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("store_client", ROOT / "python" / "horovod" / "runner" / "_store.py")
client = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(client)

SECRET = "00" * 32
NONCE = "1" * 32
WORDS = [
    b"=200 ",
    b"=404 ",
    b"=504 ",
    b"\n--\n",
    b"\r\n",
    b"set ",
    b"removed ",
    b"%2F",
    b"%zz",
    b"-1",
    b"0",
    b"2",
    b"\xb2",
    b"\xff",
    b"HTTP/1.1 ",
    b"Content-Length: ",
    b"Hvd-Signature: ",
    b"9" * 30,
    b" ",
    b":",
]


class Wire:
    """The socket of one connection, which returns answers of a store."""

    def __init__(self, answers):
        self.answers, self.received, self.key, self.count = answers, io.BytesIO(), None, 0

    def settimeout(self, _):
        pass

    def close(self):
        pass

    def makefile(self, _):
        return self

    def readline(self, limit):
        return self.received.readline(limit)

    def read(self, size):
        return self.received.read(size)

    def sendall(self, request):
        nonce = re.search(rb"Hvd-Nonce: (.*)\r\n", request)
        if nonce:
            text = b"horovod-rendezvous-1\n%s\n%s\n" % (nonce[1], NONCE.encode())
            self.key = hmac.new(bytes.fromhex(SECRET), text, "sha256").digest()
        else:
            self.count += 1
        answer = next(self.answers, b"")
        rest = self.received.read()
        self.received = io.BytesIO(rest + (self.signed(answer[1:]) if answer[:1] == b"=" else answer))

    def signed(self, answer):
        status, _, body = answer.partition(b" ")
        digest = hashlib.sha256(body).hexdigest().encode()
        text = b"response\n%d\n%s\n%s" % (self.count, status, digest)
        signature = hmac.new(self.key, text, "sha256").hexdigest().encode()
        return b"HTTP/1.1 %s OK\r\nHvd-Nonce: %s\r\nHvd-Signature: %s\r\nContent-Length: %d\r\n\r\n%s" % (
            status,
            NONCE.encode(),
            signature,
            len(body),
            body,
        )


def run(data):
    answers = iter(data[1:].split(b"\n--\n"))
    store = client.Store(lambda: Wire(answers), SECRET, False)
    calls = {b"p": lambda: store.put("k", b"value"), b"r": store.revision, b"c": lambda: store.changes("k", 1)}
    try:
        calls.get(data[:1], lambda: store.get("k"))()
    except (client.StoreError, OSError):
        pass


def lines_of(data):
    """Returns the pairs of consecutive lines of the client that ran for this input."""
    pairs, last = set(), 0

    def trace(frame, _, __):
        nonlocal last
        if frame.f_code.co_filename != client.__file__:
            return None
        pairs.add((last, frame.f_lineno))
        last = frame.f_lineno
        return trace

    sys.settrace(trace)
    try:
        run(data)
    finally:
        sys.settrace(None)
    return pairs


def changed(data, chance):
    data = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        end = min(len(data), at + chance.choice((0, 1, 1, 2, 8)))
        data[at:end] = chance.choice((b"", bytes([chance.randrange(256)]), chance.choice(WORDS)))
    return bytes(data[:4096])


def fuzz(corpus, seconds):
    seed = random.randrange(1 << 32)
    chance, seen, count = random.Random(seed), set(), 0
    for data in corpus:
        seen |= lines_of(data)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = changed(chance.choice(corpus), chance)
        count += 1
        try:
            pairs = lines_of(data)
        except Exception:
            print(f"seed {seed}, input {data!r}")
            raise
        if not pairs <= seen:
            seen |= pairs
            corpus.append(data)
    print(f"{count} inputs, {len(corpus)} kept, {len(seen)} pairs of lines")


def main():
    corpus = [path.read_bytes() for path in sorted(pathlib.Path(sys.argv[1]).iterdir())]
    assert corpus, "no corpus files found"
    if len(sys.argv) > 2:
        return fuzz(corpus, float(sys.argv[2]))
    for data in corpus:
        for size in range(len(data) + 1):
            run(data[:size])
    return print(f"{len(corpus)} corpus files")


if __name__ == "__main__":
    main()
