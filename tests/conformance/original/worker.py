"""A worker that behaves toward a rendezvous server like Horovod's own: sends the same HTTP requests, and builds meshes
from the replies. Written from the known protocol only.

As a rank of horovodrun --insecure-compat, configured by its environment:
worker.py CYCLES
"""

import fcntl
import os
import socket
import struct
import sys
import threading
import time

BLOB = 136  # a socket address of 128 bytes and a number of 8
POLL = 0.01


class Http:
    """Sends one request per connection; the connection's end, or Content-Length, ends the reply."""

    def __init__(self, address, port):
        self.where = (address, port)

    def __call__(self, method, path, body=b""):
        host = self.where[0]
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(self.where, timeout=200) as connection:
            connection.sendall(head.encode() + body)
            return read_answer(connection)


def read_answer(connection):
    data = b""
    while True:
        chunk = connection.recv(65536)
        data += chunk
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            lines = head.decode().split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:])
            size = int(fields.get("content-length", -1))
            if len(body) == size or not chunk:
                assert len(body) == size or size < 0, (len(body), size)
                return int(lines[0].split()[1]), body
        elif not chunk:
            raise ConnectionError(f"the server closed after {data!r}")


def blob_of(listener):
    address, port = listener.getsockname()
    packed = struct.pack("=HH", socket.AF_INET, socket.htons(port)) + socket.inet_aton(address)
    return packed.ljust(128, b"\0") + struct.pack("=q", -1)


def address_in(blob):
    family, port = struct.unpack("=HH", blob[:4])
    assert family == socket.AF_INET and len(blob) == BLOB
    return socket.inet_ntoa(blob[4:8]), socket.ntohs(port)


class Scope:
    """One rendezvous of `size` members; afterwards each member has a socket to every other member."""

    def __init__(self, http, name, rank, size, address="127.0.0.1", seconds=200):
        self.http, self.name, self.rank = http, name, rank
        self.deadline = time.monotonic() + seconds
        self.expect(http("PUT", f"/{name}/rank_{rank}", b"host"), 200)
        for other in range(rank):
            status, _ = http("GET", f"/{name}/rank_{other}")
            assert status in (200, 404), status
        others = [other for other in range(size) if other != rank]
        listeners = {}
        for other in others:
            listeners[other] = socket.create_server((address, 0))
            listeners[other].settimeout(seconds)
        blobs = b"".join(blob_of(listeners[other]) for other in others)
        self.expect(http("PUT", f"/{name}/{rank}", blobs), 200)
        self.links = {other: self.connect(other, size, listeners[other]) for other in others}
        for listener in listeners.values():
            listener.close()
        self.barrier()

    @staticmethod
    def expect(answer, status):
        assert answer == (status, b""), answer

    def wait(self, path):
        while True:
            status, _ = self.http("GET", path)
            if status == 200:
                return self.http("GET", path)[1]
            assert status == 404, status
            assert time.monotonic() < self.deadline, f"{path} does not come"
            time.sleep(POLL)

    def connect(self, other, size, listener):
        blobs = self.wait(f"/{self.name}/{other}")
        assert len(blobs) == (size - 1) * BLOB, len(blobs)
        index = self.rank - 1 if self.rank > other else self.rank
        theirs = address_in(blobs[index * BLOB : (index + 1) * BLOB])
        ours = listener.getsockname()
        link = listener.accept()[0] if ours < theirs else socket.create_connection(theirs, 20)
        link.settimeout(200)
        hello = f"{self.name} {min(self.rank, other)} {max(self.rank, other)}".encode()
        link.sendall(hello)
        heard = b""
        while len(heard) < len(hello) and (chunk := link.recv(len(hello) - len(heard))):
            heard += chunk
        assert heard == hello, (heard, hello)
        return link

    def barrier(self):
        for link in self.links.values():
            link.sendall(b"!")
        for link in self.links.values():
            assert link.recv(1) == b"!"

    def finish(self):
        for link in self.links.values():
            link.close()
        self.expect(self.http("DELETE", f"/{self.name}/{self.rank}"), 200)


class Place:
    address = "127.0.0.1"  # the address of its links

    def __init__(self, rank, size, host, local_rank, local_size, cross_rank, cross_size):
        self.rank, self.size, self.host = rank, size, host
        self.local_rank, self.local_size = local_rank, local_size
        self.cross_rank, self.cross_size = cross_rank, cross_size

    @classmethod
    def of_environment(cls, variables):
        names = "RANK SIZE HOSTNAME LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE".split()
        values = [variables["HOROVOD_" + name] for name in names]
        return cls(*(value if name == "HOSTNAME" else int(value) for name, value in zip(names, values)))


def cycle(http, place):
    """init and shutdown: three scopes, and three more for the set of all ranks."""
    scopes = []
    for tail in ("", "_process_set_hash_7d48533536350577"):
        for name, rank, size in [
            ("global", place.rank, place.size),
            (f"local_{place.host}", place.local_rank, place.local_size),
            (f"cross_{place.local_rank}", place.cross_rank, place.cross_size),
        ]:
            scopes.append(Scope(http, name + tail, rank, size, place.address))
    for scope in scopes:
        scope.finish()


def run_job(address, port, places, cycles, http=Http):
    """Runs every rank on a thread; raises the first failure."""
    failures = []

    def run(place):
        try:
            for _ in range(cycles):
                cycle(http(address, port), place)
        except Exception as failure:  # pylint: disable=broad-except
            failures.append(f"rank {place.rank}: {failure!r}")

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def address_of(interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("256s", interface.encode())
        return socket.inet_ntoa(fcntl.ioctl(any_socket, 0x8915, request)[20:24])  # SIOCGIFADDR


def main(cycles):
    place = Place.of_environment(os.environ)
    place.address = address_of(os.environ["HOROVOD_GLOO_IFACE"])
    assert os.environ["HOROVOD_CONTROLLER"] == os.environ["HOROVOD_CPU_OPERATIONS"] == "gloo"
    assert os.environ["NCCL_SOCKET_IFNAME"] and os.environ["PYTHONUNBUFFERED"] == "1"
    http = Http(os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]))
    for _ in range(cycles):
        cycle(http, place)
    print(f"rank {place.rank} of {place.size} met all over {place.address} by {http.where[0]}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
