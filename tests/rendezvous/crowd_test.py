"""The rendezvous server with many clients that are idle, slow, or end in the middle of a request.

Usage: crowd_test.py /path/to/horovod-rendezvous
"""

import contextlib
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import os

from protocol_test import SECRET, Connection

sys.path.append(os.path.join(os.path.dirname(__file__), "../hosts"))
from idle import idle

SERVER = None
IDLE = 10_000
SLOW = 1_000


def raise_limit(wanted):
    """Raises the limit of descriptors for this process and its server. Returns False if the system refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return True
    if hard != resource.RLIM_INFINITY and hard < wanted:
        with contextlib.suppress(ValueError, PermissionError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return True


def is_built_with(symbol):
    with open(SERVER, "rb") as file:
        return symbol in file.read()


class CrowdTest(unittest.TestCase):
    def start(self, **more):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        token = os.path.join(folder.name, "token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(SECRET)
        self.server = subprocess.Popen(
            [SERVER, "--listen", "127.0.0.1:0", "--token-file", token, "--open-monitor"],
            stdout=subprocess.PIPE,
            text=True,
            **more,
        )
        self.addCleanup(self.end)
        self.port = int(self.server.stdout.readline().rsplit(":", 1)[1])
        self.good = Connection(self.port)
        self.addCleanup(self.good.close)
        self.good.request("GET", "/health")  # a signed request: the connection may now be idle

    def end(self):
        self.server.terminate()
        self.assertEqual(self.server.wait(timeout=200), 0)
        self.server.stdout.close()

    def open(self, count):
        """Holds connections that the end of the test closes."""
        found = []
        for _ in range(count):
            found.append(socket.create_connection(("127.0.0.1", self.port), timeout=200))
            self.addCleanup(found[-1].close)
        return found

    def metric(self, name):
        _, body = self.good.request("GET", "/metrics")
        return float(dict(line.rsplit(" ", 1) for line in body.decode().splitlines())["horovod_rendezvous_" + name])

    def await_connections(self, count, seconds):
        deadline = time.monotonic() + seconds
        while (now := self.metric("connections")) > count:
            self.assertLess(time.monotonic(), deadline, f"{now} connections are left")
            time.sleep(0.05)

    def slowest(self, requests=200):
        """Returns the idle-machine seconds of a normal client's slowest request. Without the measures that these cases
        test, the request waits for the limits of other clients: 10 s and more."""
        times = []
        for i in range(requests):
            start = idle()
            self.assertEqual(self.good.request("PUT", "/v1/keys/k", b"%d" % i)[0], 200)
            times.append(idle() - start)
        return max(times)

    def memory(self):
        with open(f"/proc/{self.server.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024

    def processor_time(self):
        with open(f"/proc/{self.server.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_ten_thousand_idle_connections(self):
        if not raise_limit(IDLE + 1000):
            self.skipTest(f"the limit of descriptors cannot be raised to {IDLE + 1000}")
        self.start()
        before = self.memory()
        idle = []
        self.addCleanup(lambda: [each.close() for each in idle])
        for _ in range(IDLE):
            idle.append(Connection(self.port))
            self.assertEqual(idle[-1].request("GET", "/v1/keys/none")[0], 404)
        self.assertEqual(self.metric("connections"), IDLE + 1)
        if not is_built_with(b"__tsan_init") and not is_built_with(b"__asan_init"):
            self.assertLess((self.memory() - before) / IDLE, 24 * 1024)
        spent = self.processor_time()
        time.sleep(1)
        self.assertLess(self.processor_time() - spent, 0.05)
        self.assertLess(self.slowest(), 8)
        # An idle connection stays open, and the server answers its next request.
        for each in idle[::1000]:
            self.assertEqual(each.request("GET", "/v1/keys/k")[0], 200)
        for each in idle:
            each.close()
        self.await_connections(1, 200)

    def test_a_thousand_slow_and_half_open_connections(self):
        if not raise_limit(2 * SLOW + 100):
            self.skipTest(f"the limit of descriptors cannot be raised to {2 * SLOW + 100}")
        self.start()
        start = time.monotonic()
        silent = self.open(SLOW)
        slow = self.open(SLOW)
        head = b"GET /v1/hello HTTP/1.1\r\n"
        sent = 0
        while time.monotonic() - start < 4:
            for each in slow:
                # On a slow machine a round may take longer than the time limit for these connections.
                with contextlib.suppress(ConnectionError):
                    each.send(head[sent % len(head) :][:1])
            sent += 1
            self.assertLess(self.slowest(20), 8)
        # The server closes a connection without a signed request after 10 s, also one that sends bytes.
        self.await_connections(1, 200)
        for each in (silent[0], slow[0]):
            with contextlib.suppress(ConnectionError):
                self.assertEqual(each.recv(1), b"")

    def test_clients_that_die_in_the_middle_of_a_request(self):
        self.start()
        for i, each in enumerate(self.open(300)):
            each.sendall(
                (
                    b"GET /v1/hello HT",
                    b"GET /v1/hello HTTP/1.1\r\nHvd-Nonce: "
                    + b"1" * 32
                    + b"\r\n\r\nPUT /v1/keys/k HTTP/1.1\r\nContent-Len",
                    b"",
                )[i % 3]
            )
            # With this option, close() resets the connection, like a host that went down.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        waiting = [Connection(self.port) for _ in range(100)]
        for each in waiting:
            each.start("GET", "/v1/keys/never?wait=100000")
        while self.metric("waiting_requests") < 100:
            time.sleep(0.01)
        for each in waiting:
            each.close()
        self.await_connections(1, 200)
        self.assertEqual(self.metric("waiting_requests"), 0)

    def test_slow_readers_share_what_they_do_not_take(self):
        self.start()
        size = 8 << 20
        self.assertEqual(self.good.request("PUT", "/v1/keys/large", bytes(size))[0], 200)
        before = self.memory()
        readers = [Connection(self.port) for _ in range(50)]
        self.addCleanup(lambda: [each.close() for each in readers])
        for each in readers:
            each.start("GET", "/v1/keys/large")
        self.assertLess(self.slowest(), 8)
        self.assertLess(self.memory() - before, 4 * size)
        status, value = readers[0].finish()
        self.assertEqual((status, len(value)), (200, size))

    def test_a_server_without_descriptors_goes_on_when_some_are_free(self):
        if is_built_with(b"__ubsan_handle"):
            # The sanitizer checks objects through a pipe, and reports an error if it cannot open one.
            self.skipTest("UndefinedBehaviorSanitizer needs descriptors itself")

        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        self.start(preexec_fn=few, stderr=subprocess.DEVNULL)
        crowd = self.open(200)
        self.assertLess(self.slowest(), 8)
        for each in crowd:
            each.close()
        late = Connection(self.port)
        self.assertEqual(late.request("GET", "/v1/keys/k")[0], 200)
        late.close()


if __name__ == "__main__":
    SERVER = sys.argv.pop(1)
    unittest.main(verbosity=2)
