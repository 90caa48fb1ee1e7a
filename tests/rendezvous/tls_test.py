"""TLS of the rendezvous server, from both sides of it, with certificates made on the spot.

Usage: tls_test.py /path/to/horovod-rendezvous /path/to/worker
"""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

SERVER = WORKER = None
SECRET = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"


def make_certificate(folder, name, subject="DNS:localhost,IP:127.0.0.1"):
    """A key and a certificate that is its own authority."""
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=" + name,
            "-addext",
            "subjectAltName=" + subject,
            "-keyout",
            f"{folder}/{name}.key",
            "-out",
            f"{folder}/{name}.pem",
        ],
        check=True,
        capture_output=True,
    )
    return f"{folder}/{name}.pem", f"{folder}/{name}.key"


class TlsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.token = os.path.join(self.folder, "token")
        with open(os.open(self.token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(SECRET)
        self.ca, self.key = make_certificate(self.folder, "server")

    def start(self, certificate=None, key=None):
        self.server = server = subprocess.Popen(
            [
                SERVER,
                "-np",
                "2",
                "--listen",
                "127.0.0.1:0",
                "--token-file",
                self.token,
                "--tls-cert",
                certificate or self.ca,
                "--tls-key",
                key or self.key,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

        def end():
            server.terminate()
            self.assertEqual(server.wait(timeout=200), 0)
            server.stdout.close()

        line = server.stdout.readline()
        if "listens on" not in line:
            self.assertEqual(server.wait(timeout=200), 2)
            server.stdout.close()
            return line
        self.addCleanup(end)
        self.port = int(line.rsplit(":", 1)[1])
        return line

    def worker(self, host="localhost", ca=None, address=None, **more):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
        environment |= {
            "HOROVOD_STORE": address or f"https://{host}:{self.port}",
            "HOROVOD_JOB_SECRET": SECRET,
            "HOROVOD_START_TIMEOUT": "20",
            **more,
        }
        if ca:
            environment["HOROVOD_STORE_CA"] = ca
        return subprocess.Popen(
            [WORKER, "sum"], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def outcome(self, worker, code):
        said, _ = worker.communicate(timeout=200)
        self.assertEqual(worker.returncode, code, said)
        return said

    def test_workers_meet_by_tls(self):
        self.start()
        workers = [self.worker("localhost", self.ca), self.worker("127.0.0.1", self.ca)]
        said = "".join(self.outcome(worker, 0) for worker in workers)
        self.assertIn("0 of 2", said)
        self.assertIn("1 of 2", said)

    def test_a_wrong_certificate_is_one_sentence(self):
        self.start()
        other, _ = make_certificate(self.folder, "other")
        for ca in (other, None):
            said = self.outcome(self.worker("localhost", ca), 1)
            self.assertEqual(said.count("\n"), 1, said)
            self.assertIn("does not prove that it is localhost", said)
            self.assertIn("HOROVOD_STORE_CA", said)

    def test_a_certificate_for_another_host_is_one_sentence(self):
        elsewhere, key = make_certificate(self.folder, "elsewhere", "DNS:elsewhere.example")
        self.start(elsewhere, key)
        said = self.outcome(self.worker("localhost", elsewhere), 1)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("mismatch", said)

    def test_files_that_are_no_certificates(self):
        self.assertIn("--tls-cert: ", self.start(certificate=self.token))
        self.assertIn("--tls-cert: /none", self.start(certificate="/none"))
        _, another = make_certificate(self.folder, "other")
        self.assertIn("--tls-key: ", self.start(key=another))
        locked = f"{self.folder}/locked.key"
        subprocess.run(
            ["openssl", "pkey", "-in", self.key, "-aes256", "-passout", "pass:word", "-out", locked],
            check=True,
            capture_output=True,
        )
        self.assertIn("--tls-key: ", self.start(key=locked))
        self.start()
        said = self.outcome(self.worker("localhost", "/none"), 1)
        self.assertIn("/none", said)

    def test_a_client_without_tls_gets_a_sentence(self):
        self.start()
        plain = f"tcp:127.0.0.1:{self.port}"
        said = self.outcome(self.worker(address=plain), 1)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("accepts only TLS: use https://", said)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.port = silent.getsockname()[1]
            worker = self.worker("127.0.0.1", self.ca, HOROVOD_START_TIMEOUT="2")
            connection, _ = silent.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                self.assertIn("does not speak TLS", self.outcome(worker, 1))

    def test_health_by_tls_with_large_and_slow_clients(self):
        self.start()
        context = ssl.create_default_context(cafile=self.ca)

        def connect():
            return context.wrap_socket(
                socket.create_connection(("127.0.0.1", self.port), 200), server_hostname="localhost"
            )

        half_open = [socket.create_connection(("127.0.0.1", self.port), 200) for _ in range(200)]
        with connect() as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertIn(b"200 OK", client.recv(4096))
        with connect() as client:
            client.sendall(b"GET /v1/hello HTTP/1.1\r\nA: " + b"a" * 20_000)
            self.assertIn(b"431", client.recv(4096))
        deadline = time.monotonic() + 200
        for each in half_open:
            with each, contextlib.suppress(ConnectionError):
                each.settimeout(max(0.1, deadline - time.monotonic()))
                self.assertEqual(each.recv(1), b"")

    def test_unfinished_handshakes_are_bounded_and_the_newest_one_goes_on(self):
        self.start()
        with contextlib.ExitStack() as clients:
            for _ in range(1500):
                client = clients.enter_context(socket.create_connection(("127.0.0.1", self.port), 200))
                client.sendall(b"\x16")  # the first byte of a handshake
            workers = [self.worker("localhost", self.ca) for _ in range(2)]
            said = [worker.communicate(timeout=200)[0] for worker in workers]
            self.assertEqual([worker.returncode for worker in workers], [0, 0], said)
            held = len(os.listdir(f"/proc/{self.server.pid}/fd"))
            self.assertLess(held, 1024 + 50)


if __name__ == "__main__":
    WORKER = sys.argv.pop()
    SERVER = sys.argv.pop()
    unittest.main(verbosity=2)
