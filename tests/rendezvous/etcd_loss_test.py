"""A job loses nothing when its server or its etcd is killed and restarted under load.

Usage: etcd_loss_test.py /path/to/horovod-rendezvous /path/to/worker

Clients are processes that know only rendezvous/PROTOCOL.md (protocol_test.py) and repeat each request without a reply,
and ranks that run the library.
"""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from protocol_test import SECRET, Connection, key_path

SERVER = WORKER = None
ETCD = "/usr/bin/etcd"
WORKERS = 6
ROUNDS = 60
TIMEOUT = 200


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Client:
    """Repeats a request on new connections until a reply arrives."""

    def __init__(self, port, name):
        self.port, self.name, self.sequence, self.connection = port, name, 0, None

    def ask(self, method, target, body=b""):
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                if self.connection is None:
                    self.connection = Connection(self.port)
                    self.connection.socket.settimeout(TIMEOUT)
                return self.connection.request(method, target, body)
            except (OSError, ValueError, KeyError):
                self.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def call(self, method, target, body=b""):
        self.sequence += 1
        joint = "&" if "?" in target else "?"
        return self.ask(method, f"{target}{joint}client={self.name}&sequence={self.sequence}", body)


def work(port, worker):
    client = Client(port, f"worker{worker}")
    for turn in range(ROUNDS):
        expected = None
        while True:
            known = b"" if expected is None else expected
            query = "" if expected is None else f"?expected={len(expected)}"
            new = b"%d" % (1 if expected is None else int(expected) + 1)
            status, answer = client.call("POST", f"/v1/swap/count{query}", known + new)
            assert status == 200, answer
            if answer[:1] == b"1":
                break
            expected = answer[1:]
        value = b"%d:%d" % (worker, turn)
        assert client.call("PUT", key_path(b"own%d" % worker), value)[0] == 200
        assert client.ask("GET", key_path(b"own%d" % worker)) == (200, value)
        if turn % 20 == 0:
            target = f"/v1/exchange/{turn}?count={WORKERS}&index={worker}&wait=60000"
            assert client.ask("POST", target, b"%d" % worker)[0] == 200
    # Waits until the test sets the key "over", also while servers are lost.
    assert client.ask("GET", "/v1/keys/over?wait=60000") == (200, b"yes")


class EtcdLossTest(unittest.TestCase):
    scheme = "http"

    def setUp(self):
        if not os.path.exists(ETCD):
            print("SKIP: there is no /usr/bin/etcd (Debian: etcd-server)")
            sys.exit(77)
        self.folder = tempfile.mkdtemp(prefix="horovod-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.token = os.path.join(self.folder, "token")
        with open(os.open(self.token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(SECRET)
        self.etcd_port, self.peer_port, self.port = free_port(), free_port(), free_port()
        self.processes = {}
        self.addCleanup(lambda: [self.kill(name) for name in list(self.processes)])
        self.start_etcd()

    def start(self, name, command):
        with open(os.path.join(self.folder, name + ".log"), "a") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name, number=signal.SIGKILL):
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(timeout=TIMEOUT)

    def etcd_flags(self):
        return []

    def start_etcd(self):
        client, peer = f"{self.scheme}://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        self.start(
            "etcd",
            [
                ETCD,
                "--data-dir",
                os.path.join(self.folder, "data"),
                "--listen-client-urls",
                client,
                "--advertise-client-urls",
                client,
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"default={peer}",
                *self.etcd_flags(),
            ],
        )

    def start_server(self, name="server", port=None, *more):
        self.start(
            name,
            [
                SERVER,
                "-np",
                "2",
                "--listen",
                f"127.0.0.1:{port or self.port}",
                "--token-file",
                self.token,
                "--backend",
                f"etcd://127.0.0.1:{self.etcd_port}",
                *more,
            ],
        )

    def client(self, name, port=None):
        client = Client(port or self.port, name)
        self.addCleanup(client.close)
        return client

    def log(self, name):
        with open(os.path.join(self.folder, name + ".log")) as file:
            return file.read()

    def run_job(self, disturb):
        self.start_server()
        workers = [multiprocessing.Process(target=work, args=(self.port, worker)) for worker in range(WORKERS)]
        for worker in workers:
            worker.start()
        client = self.client("test")
        total = WORKERS * ROUNDS
        for step in range(1, 10, 2):
            # Each reply waits for etcd's confirmation, so this loop does not occupy a core.
            while int(client.ask("GET", "/v1/keys/count?wait=60000")[1]) < total * step // 10:
                pass
            disturb()
        while int(client.ask("GET", "/v1/keys/count")[1]) < total:
            pass
        for worker in range(WORKERS):
            last = b"%d:%d" % (worker, ROUNDS - 1)
            while client.ask("GET", key_path(b"own%d" % worker))[1] != last:
                pass
        self.assertEqual(client.call("PUT", "/v1/keys/over", b"yes")[0], 200)
        for worker in workers:
            worker.join(TIMEOUT)
            self.assertEqual(worker.exitcode, 0)
        self.assertEqual(client.ask("GET", "/v1/keys/count"), (200, b"%d" % total))
        return client

    def test_a_killed_server(self):
        def disturb():
            self.kill("server")
            self.start_server()

        client = self.run_job(disturb)
        self.assertEqual(self.kill("server", signal.SIGTERM), 0)
        self.start_server()
        self.assertEqual(client.ask("GET", "/v1/keys/over"), (200, b"yes"))
        self.assertEqual(self.kill("server", signal.SIGINT), 0)
        self.start_server()
        self.assertEqual(client.ask("GET", "/v1/keys/over")[0], 404)

    def test_a_killed_etcd(self):
        def disturb():
            self.kill("etcd")
            self.start_etcd()

        self.run_job(disturb)

    def test_places_and_large_values_survive(self):
        self.start_server()
        a, b, c = (self.client(name) for name in "abc")
        join = multiprocessing.Process(
            target=Client(self.port, "b").ask, args=("POST", "/v1/join?client=b&wait=30000", b'{"host":"hb"}')
        )
        join.start()
        place = a.ask("POST", "/v1/join?client=a&wait=30000", b'{"host":"ha"}')
        self.assertEqual(place[0], 200)
        join.join()
        large = bytes(range(256)) * 12_000
        key = bytes(range(256))
        self.assertEqual(a.call("PUT", key_path(key), large[1:])[0], 200)
        self.assertEqual(a.call("PUT", key_path(key), large)[0], 200)
        self.kill("server")
        self.start_server()
        self.assertEqual(a.ask("POST", "/v1/join?client=a&wait=0", b'{"host":"ha"}'), place)
        self.assertNotEqual(
            json.loads(b.ask("POST", "/v1/join?client=b&wait=0", b'{"host":"hb"}')[1])["rank"],
            json.loads(place[1])["rank"],
        )
        self.assertEqual(c.ask("POST", "/v1/join?client=c&wait=0", b'{"host":"hc"}')[0], 409)
        self.assertEqual(a.ask("GET", key_path(key)), (200, large))

    def test_ranks_continue_at_the_next_server(self):
        """Checks docs/rendezvous.md: no rank restarts when the server's machine is lost."""
        starts, losses = 60, 3
        self.start_server()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
        environment |= {"HOROVOD_STORE": f"tcp:127.0.0.1:{self.port}", "HOROVOD_JOB_SECRET": SECRET}
        # At each start in these processes, the library requests its place and connects to the other rank.
        ranks = [
            subprocess.Popen(
                [WORKER, "again-and-again", str(starts)], env=environment, stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        self.addCleanup(lambda: [(rank.kill(), rank.wait(), rank.stdout.close()) for rank in ranks])
        lines = []
        for loss in range(1, losses + 1):
            while len(lines) < loss * starts // (losses + 1):
                lines.append(ranks[0].stdout.readline())
                self.assertIn(" of 2, ", lines[-1])
            self.kill("server")
            self.start_server()
        lines += ranks[0].stdout.readlines()
        others = ranks[1].stdout.readlines()
        self.assertEqual([rank.wait(TIMEOUT) for rank in ranks], [0, 0])
        self.assertEqual((len(lines), len(others)), (starts, starts))
        # Each process has its earlier rank.
        self.assertEqual(sorted({*lines, *others}), ["0 of 2, 0 of 2 here\n", "1 of 2, 1 of 2 here\n"])
        self.assertEqual((len(set(lines)), len(set(others))), (1, 1))

    def test_the_later_of_two_servers_has_the_job(self):
        self.start_server()
        first = self.client("a")
        self.assertEqual(first.call("PUT", "/v1/keys/k", b"1")[0], 200)
        later_port = free_port()
        self.start_server("later", later_port)
        later = self.client("b", later_port)
        self.assertEqual(later.ask("GET", "/v1/keys/k"), (200, b"1"))
        # The first server notices the second server without a request.
        self.assertEqual(self.processes["server"].wait(timeout=TIMEOUT), 1)
        self.assertIn("another rendezvous server has taken over the job", self.log("server"))
        self.assertEqual(later.call("PUT", "/v1/keys/k", b"2")[0], 200)


if __name__ == "__main__":
    SERVER, WORKER = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main(verbosity=2)
