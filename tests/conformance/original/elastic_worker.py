"""A worker of an elastic job as Horovod's own one looks to its launcher: it asks for its next place, and
tells where it can be told of changed hosts. Written from what is known of its protocol alone.

As a rank of horovodrun --insecure-compat: elastic_worker.py STEPS [--slow SECONDS] [--kill HOST:SLOT@STEP]
[--import SECONDS]

Its training sums ones over the ranks. Prints "NAME begins RANK/SIZE at STEP" when a generation begins, and "NAME
ends with SUM", where NAME is the host and the local rank at the start of the process. --kill: the process ends by
SIGKILL after a step. --import: a process that joins later sleeps for so long before its first request.
"""
import argparse
import base64
import hashlib
import hmac
import os
import pickle
import signal
import socket
import struct
import threading
import time

import worker

MESSAGE = struct.Struct("=qqq")  # step, sum, and what rank 0 knows of changed hosts
UPDATE = (b"\x80\x02chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81}(X\x09\0\0\0timestampJ",
          b"X\x03\0\0\0resK", b"ub.")


class Lost(Exception):
    """A link to another rank has broken."""


class Changed(Exception):
    """Hosts have changed."""


class Notices:
    """The service that the launcher tells of changed hosts."""

    def __init__(self, http, name, address):
        self.key, self.last, self.flags = os.urandom(32), 0, 0
        self.listener = socket.create_server((address, 0))
        where = ({"eth0": [(address, self.listener.getsockname()[1])]}, self.key)
        body = base64.b64encode(pickle.dumps(where, protocol=4))
        assert http("PUT", f"/worker_addresses/{name}", body) == (200, b"")
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            with connection:
                connection.settimeout(10)
                head = read(connection, 36)
                body = read(connection, struct.unpack("=i", head[32:])[0])
                assert hmac.new(self.key, body, hashlib.sha256).digest() == head[:32]
                stamp = struct.unpack("<i", body[len(UPDATE[0]):len(UPDATE[0]) + 4])[0]
                flags = body[len(body) - len(UPDATE[2]) - 1]
                assert body == UPDATE[0] + struct.pack("<i", stamp) + UPDATE[1] + bytes([flags]) + UPDATE[2]
                if stamp > self.last:
                    self.last, self.flags = stamp, self.flags | flags
                reply = b"\x80\x02chorovod.runner.common.util.network\nAckResponse\n)\x81."
                connection.sendall(hmac.new(self.key, reply, hashlib.sha256).digest() +
                                   struct.pack("=i", len(reply)) + reply)


def read(connection, size):
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise Lost
        data += chunk
    return data


class Rank:
    def __init__(self, http, address):
        self.http, self.address = http, address
        self.place = worker.Place.of_environment(os.environ)
        self.scopes = []

    def meet(self):
        place, self.scopes = self.place, []
        for tail in ("", "_process_set_hash_7d48533536350577"):
            for name, rank, size in [("global", place.rank, place.size),
                                     (f"local_{place.host}", place.local_rank, place.local_size),
                                     (f"cross_{place.local_rank}", place.cross_rank, place.cross_size)]:
                self.scopes.append(worker.Scope(self.http, name + tail, rank, size, self.address))

    def leave(self):
        for scope in self.scopes:
            scope.finish()

    def ask(self):
        """Blocks until the launcher says the next place; a process without one aborts, as there."""
        path = f"/rank_and_size/{self.place.host}:{self.place.local_rank}"
        with socket.create_connection(self.http.where) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {self.http.where[0]}\r\n"
                               "Content-Length: 0\r\n\r\n".encode())
            status, answer = worker.read_answer(connection)
        assert status == 200, (status, answer)
        numbers = [int(word) for word in answer.split(b",")]
        if numbers[0] < 0:
            print(f"{self.place.host}:{self.place.local_rank} is removed", flush=True)
            signal.signal(signal.SIGABRT, signal.SIG_DFL)
            os.abort()
        rank, size, local_rank, local_size, cross_rank, cross_size = numbers
        self.place = worker.Place(rank, size, self.place.host, local_rank, local_size, cross_rank, cross_size)

    def exchange(self, message):
        """Returns the messages of all ranks, by rank."""
        links = self.scopes[0].links
        try:
            for link in links.values():
                link.sendall(MESSAGE.pack(*message))
            others = {rank: MESSAGE.unpack(read(link, MESSAGE.size)) for rank, link in links.items()}
        except OSError:
            raise Lost from None
        return {**others, self.place.rank: message}


def train(options, rank, name, notices, saved):
    """Returns when the last step is done. `saved`: the step and the sum at the last commit."""
    saved[:] = rank.exchange((saved[0], saved[1], 0))[0][:2]
    step, total = saved
    print(f"{name} begins {rank.place.rank}/{rank.place.size} at {step}", flush=True)
    while step < options.steps:
        messages = rank.exchange((step, total, notices.flags))
        assert {message[0] for message in messages.values()} == {step}, messages
        step, total = step + 1, total + len(messages)
        saved[:] = step, total
        if options.kill == f"{name}@{step}":
            os.kill(os.getpid(), signal.SIGKILL)
        if messages[0][2]:
            raise Changed
        time.sleep(options.slow)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("--slow", type=float, default=0.1)
    parser.add_argument("--kill", default="")
    parser.add_argument("--import", type=float, default=0, dest="imports")
    options = parser.parse_args()
    assert os.environ["HOROVOD_ELASTIC"] == "1"
    if options.imports and os.environ["HOROVOD_ELASTIC_PROCESS"] != "0":
        time.sleep(options.imports)
    http = worker.Http(os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"],
                       int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]))
    address = worker.address_of(os.environ["HOROVOD_GLOO_IFACE"])
    rank = Rank(http, address)
    name = f"{rank.place.host}:{rank.place.local_rank}"
    rank.meet()
    notices = Notices(http, name, address)
    saved = [0, 0]
    while True:
        try:
            train(options, rank, name, notices, saved)
            break
        except (Lost, Changed):
            rank.leave()
            rank.ask()
            rank.meet()
            notices.flags = 0
    print(f"{name} ends with {saved[1]}", flush=True)
    rank.leave()


if __name__ == "__main__":
    main()
