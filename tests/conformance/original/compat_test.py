"""Horovod's own workers use this project's server, and this project's workers use a server like Horovod's.

Usage: compat_test.py /path/to/horovod-rendezvous /path/to/worker
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import server
import worker

SERVER = WORKER = None
TWO_RANKS = [worker.Place(0, 2, "a", 0, 2, 0, 1), worker.Place(1, 2, "a", 1, 2, 0, 1)]
# Two ranks on a, one on b: scopes of different sizes.
THREE_RANKS = [
    worker.Place(0, 3, "a", 0, 2, 0, 2),
    worker.Place(1, 3, "a", 1, 2, 0, 1),
    worker.Place(2, 3, "b", 0, 1, 1, 2),
]


class OurServer:
    def __init__(self, *arguments):
        self.folder = tempfile.TemporaryDirectory()
        token = os.path.join(self.folder.name, "token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write("00112233445566778899aabbccddeeff")
        self.process = subprocess.Popen(
            [SERVER, *arguments, "--listen", "127.0.0.1:0", "--token-file", token], stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.http = worker.Http("127.0.0.1", self.port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(timeout=200) == 0
        self.process.stdout.close()
        self.folder.cleanup()


class TheirWorkersOurServer(unittest.TestCase):
    def test_a_hundred_cycles_of_two_ranks(self):
        with OurServer("-np", "2", "--insecure-compat") as ours:
            self.assertEqual(worker.run_job("127.0.0.1", ours.port, TWO_RANKS, 100), [])
            self.assertEqual(ours.http("GET", "/global/0"), (404, b""))

    def test_hosts_of_different_size(self):
        with OurServer("--insecure-compat") as ours:
            self.assertEqual(worker.run_job("127.0.0.1", ours.port, THREE_RANKS, 10), [])

    def test_answers(self):
        with OurServer("-np", "2", "--insecure-compat") as ours:
            http = ours.http
            value = bytes(range(256)) * 300
            for method, path, body, answer in [
                ("GET", "/s/k", b"", (404, b"")),
                ("PUT", "/s/k", value, (200, b"")),
                ("GET", "/s/k", b"", (200, value)),
                ("PUT", "/s/k", b"", (200, b"")),
                ("GET", "/s/k", b"", (200, b"")),
                ("PUT", "/s/%2F?a=b", b"raw", (200, b"")),
                ("GET", "/s/%2F?a=b", b"", (200, b"raw")),
                ("GET", "/s//", b"", (400, b"")),
                ("GET", "/s", b"", (400, b"")),
                ("PUT", "/s", b"", (400, b"")),
                ("DELETE", "/s/k", b"", (200, b"")),
                ("GET", "/s/k", b"", (404, b"")),
                ("DELETE", "/nobody/knows", b"", (200, b"")),
                ("POST", "/s/k", b"", (501, b"")),
                # A planned scope keeps its values until both ranks have left.
                ("PUT", "/global/0", b"0", (200, b"")),
                ("DELETE", "/global/0", b"", (200, b"")),
                ("GET", "/global/0", b"", (200, b"0")),
                ("DELETE", "/global/1", b"", (200, b"")),
                ("GET", "/global/0", b"", (404, b"")),
            ]:
                with self.subTest(method=method, path=path):
                    self.assertEqual(http(method, path, body), answer)

    def test_a_connection_stays_only_for_who_asks(self):
        with OurServer("--insecure-compat") as ours:
            with socket.create_connection(("127.0.0.1", ours.port), 20) as kept:
                for _ in range(3):
                    kept.sendall(b"GET /s/k HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n")
                    self.assertEqual(worker.read_answer(kept), (404, b""))
            for request in (b"GET /s/k HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /s/k HTTP/1.0\r\n\r\n"):
                with socket.create_connection(("127.0.0.1", ours.port), 20) as closed:
                    closed.sendall(request)
                    self.assertEqual(worker.read_answer(closed), (404, b""))
                    self.assertEqual(closed.recv(1), b"")

    def test_a_body_that_does_not_come(self):
        with OurServer("--insecure-compat") as ours:
            with socket.create_connection(("127.0.0.1", ours.port), 20) as slow:
                slow.sendall(b"PUT /s/k HTTP/1.1\r\nContent-Length: 3\r\n\r\nab")
                start = time.monotonic()
                self.assertEqual(worker.read_answer(slow), (408, b""))
                self.assertGreater(time.monotonic() - start, 2.5)
            with socket.create_connection(("127.0.0.1", ours.port), 20) as endless:
                endless.sendall(b"PUT /s/k HTTP/1.1\r\n\r\n")
                self.assertEqual(worker.read_answer(endless), (411, b""))

    def test_without_the_flag_nothing_unsigned_is_served(self):
        with OurServer("-np", "2") as ours:
            for method in ("GET", "PUT", "DELETE"):
                status, sentence = ours.http(method, "/s/k", b"")
                self.assertEqual(status, 401)
                self.assertIn(b"--insecure-compat", sentence)

    def test_the_signed_store_stays_closed(self):
        with OurServer("--insecure-compat") as ours:
            self.assertEqual(ours.http("GET", "/v1/keys/k")[0], 401)
            self.assertEqual(ours.http("PUT", "/v1/keys", b"x")[0], 401)


class OurWorkersTheirServer(unittest.TestCase):
    @staticmethod
    def start(their, rank, *command, **more):
        variables = {
            "RANK": rank,
            "SIZE": 2,
            "LOCAL_RANK": rank,
            "LOCAL_SIZE": 2,
            "CROSS_RANK": 0,
            "CROSS_SIZE": 1,
            "HOSTNAME": "localhost",
            "CONTROLLER": "gloo",
            "CPU_OPERATIONS": "gloo",
            "GLOO_IFACE": "lo",
            "GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "GLOO_RENDEZVOUS_PORT": their.port,
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
        environment |= {"HOROVOD_" + name: str(value) for name, value in variables.items()}
        return subprocess.Popen(
            [WORKER, *command], env=environment | more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run_two(self, *command):
        with server.Server({"global": 2, "local_localhost": 2, "cross_0": 1}) as their:
            ranks = [self.start(their, rank, *command) for rank in range(2)]
            for rank in ranks:
                said, _ = rank.communicate(timeout=240)
                self.assertEqual(rank.returncode, 0, said)
                self.assertIn("of 2", said)
            their.shutdown()
            return their.requests

    def test_a_hundred_cycles(self):
        requests = self.run_two("again-and-again", "100")
        self.assertEqual({path.split("/")[1] for _, path in requests}, {"horovod"})

    def test_waiting_is_not_polling_every_ten_milliseconds(self):
        with server.Server({}) as their:
            late = self.start(their, 1, "sum")
            time.sleep(2)
            polls = len(their.requests)
            self.assertLess(polls, 30)
            self.assertGreater(polls, 2)
            ranks = [late, self.start(their, 0, "sum")]
            for rank in ranks:
                said, _ = rank.communicate(timeout=200)
                self.assertEqual(rank.returncode, 0, said)
            their.shutdown()

    def test_a_server_that_is_not_there_gets_a_sentence(self):
        with server.Server({}) as gone:
            gone.shutdown()
        rank = self.start(gone, 1, "sum", HOROVOD_START_TIMEOUT="1")
        said, _ = rank.communicate(timeout=200)
        self.assertEqual(rank.returncode, 1)
        self.assertIn(f"127.0.0.1:{gone.port}", said)
        self.assertIn("HOROVOD_GLOO_RENDEZVOUS_ADDR", said)


if __name__ == "__main__":
    WORKER = sys.argv.pop()
    SERVER = sys.argv.pop()
    unittest.main(verbosity=2)
