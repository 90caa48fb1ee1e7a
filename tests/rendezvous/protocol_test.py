"""A client of the rendezvous server, written from rendezvous/PROTOCOL.md only.

Usage: protocol_test.py /path/to/horovod-rendezvous
"""

import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

SERVER = None
SECRET = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"


def sha256_hex(data):
    return hashlib.sha256(data).hexdigest()


class Connection:
    def __init__(self, port, secret=SECRET, nonce=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=200)
        self.stream = self.socket.makefile("rb")
        client_nonce = nonce or secrets.token_hex(16)
        status, fields, _ = self.raw("GET", "/v1/hello", {"Hvd-Nonce": client_nonce})
        assert status == 200, status
        server_nonce = fields["hvd-nonce"]
        text = f"horovod-rendezvous-1\n{client_nonce}\n{server_nonce}\n"
        self.key = hmac.new(bytes.fromhex(secret), text.encode(), "sha256").digest()
        self.count = 0

    def raw(self, method, target, fields, body=b""):
        self.send(method, target, fields, body)
        return self.receive()

    def send(self, method, target, fields, body=b""):
        lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def receive(self):
        status_line = self.stream.readline()
        if not status_line:
            raise ConnectionError("closed")
        status = int(status_line.split()[1])
        fields = {}
        while True:
            line = self.stream.readline().strip()
            if not line:
                break
            name, _, value = line.decode().partition(":")
            fields[name.lower()] = value.strip()
        return status, fields, self.stream.read(int(fields["content-length"]))

    def proof(self, count, method, target, body):
        digest = sha256_hex(body)
        text = f"request\n{count}\n{method}\n{target}\n{digest}"
        signature = hmac.new(self.key, text.encode(), "sha256").hexdigest()
        return {"Authorization": f"HVD1 {count} {digest} {signature}"}

    def request(self, method, target, body=b""):
        self.start(method, target, body)
        return self.finish()

    def start(self, method, target, body=b""):
        self.count += 1
        self.send(method, target, self.proof(self.count, method, target, body), body)

    def finish(self):
        status, fields, answer = self.receive()
        text = f"response\n{self.count}\n{status}\n{sha256_hex(answer)}"
        wanted = hmac.new(self.key, text.encode(), "sha256").hexdigest()
        if not hmac.compare_digest(wanted, fields.get("hvd-signature", "")):
            raise AssertionError(f"response {status} is not signed: {answer!r}")
        return status, answer

    def close(self):
        self.stream.close()
        self.socket.close()


def key_path(key):
    return "/v1/keys/" + urllib.parse.quote_from_bytes(key, safe="")


class ProtocolTest(unittest.TestCase):
    size = 5

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        token = os.path.join(self.folder.name, "token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(SECRET + "\n")
        self.server = subprocess.Popen(
            [SERVER, "-np", str(self.size), "--listen", "127.0.0.1:0", "--token-file", token],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.server.stdout.readline()
        self.assertIn("listens on tcp:127.0.0.1:", line)
        self.port = int(line.rsplit(":", 1)[1])
        self.connections = []
        self.has_signalled = False

    def tearDown(self):
        for connection in self.connections:
            connection.close()
        self.end_server()
        self.assertEqual(self.server.wait(timeout=200), 0)
        self.server.stdout.close()
        self.folder.cleanup()

    def end_server(self):
        # Only one signal: a second signal may end the server before it has sent its replies.
        if not self.has_signalled:
            self.has_signalled = True
            self.server.send_signal(signal.SIGTERM)

    def connect(self, **arguments):
        self.connections.append(Connection(self.port, **arguments))
        return self.connections[-1]

    def test_values(self):
        a, b = self.connect(), self.connect()
        key = bytes(range(256))
        value = bytes(range(255, -1, -1)) * 1000
        self.assertEqual(a.request("GET", key_path(key))[0], 404)
        self.assertEqual(a.request("PUT", key_path(key), value), (200, b""))
        self.assertEqual(b.request("GET", key_path(key)), (200, value))
        self.assertEqual(b.request("DELETE", key_path(key)), (200, b""))
        self.assertEqual(a.request("GET", key_path(key))[0], 404)
        self.assertEqual(a.request("PUT", "/v1/keys/")[0], 400)
        self.assertEqual(a.request("PUT", "/v1/keys/" + "k" * 4097)[0], 400)
        self.assertEqual(a.request("PUT", "/v1/keys/" + "k" * 4096, b"")[0], 200)
        self.assertEqual(a.request("PATCH", "/v1/keys/k")[0], 405)
        for resource in ("nothing", "add/n?amount=1&client=c&sequence=1", "fence/f?count=1&client=c&sequence=1"):
            self.assertEqual(a.request("POST", f"/v1/{resource}")[0], 404)
        self.assertEqual(a.request("GET", "/v1/keys/%zz")[0], 400)
        self.assertEqual(a.request("GET", "/v1/keys/k?wait=soon")[0], 400)

    def test_waiting(self):
        a, b = self.connect(), self.connect()
        a.start("GET", "/v1/keys/k?wait=20000")
        self.assertEqual(b.request("GET", "/v1/keys/k?wait=10")[0], 504)
        self.assertEqual(b.request("PUT", "/v1/keys/k", b"now"), (200, b""))
        self.assertEqual(a.finish(), (200, b"now"))

    def test_repetition(self):
        a = self.connect()
        swap = "/v1/swap/n?client=me&sequence=1"
        self.assertEqual(a.request("POST", swap, b"5"), (200, b"15"))
        self.assertEqual(self.connect().request("POST", swap, b"5"), (200, b"15"))
        self.assertEqual(a.request("POST", swap.replace("=1", "=2"), b"5"), (200, b"05"))
        self.assertEqual(a.request("POST", swap, b"5")[0], 409)
        put = "/v1/keys/k?client=other&sequence=7"
        self.assertEqual(a.request("PUT", put, b"first")[0], 200)
        self.assertEqual(a.request("PUT", "/v1/keys/k", b"second")[0], 200)
        self.assertEqual(a.request("PUT", put, b"first")[0], 200)
        self.assertEqual(a.request("GET", "/v1/keys/k"), (200, b"second"))

    def test_swap(self):
        a, b = self.connect(), self.connect()

        def swap(connection, sequence, body, expected=None):
            extra = "" if expected is None else f"&expected={len(expected)}"
            target = f"/v1/swap/k?client=s&sequence={sequence}{extra}"
            return connection.request("POST", target, (expected or b"") + body)

        self.assertEqual(swap(a, 1, b"one", b"zero"), (200, b"-"))
        self.assertEqual(swap(a, 2, b"one"), (200, b"1one"))
        self.assertEqual(swap(b, 2, b"one"), (200, b"1one"))
        self.assertEqual(swap(a, 3, b"two"), (200, b"0one"))
        self.assertEqual(swap(a, 4, b"", b"one"), (200, b"1"))
        self.assertEqual(swap(b, 5, b"x", b""), (200, b"1x"))
        self.assertEqual(b.request("GET", "/v1/keys/k"), (200, b"x"))
        self.assertEqual(a.request("POST", "/v1/swap/k?client=s&sequence=6&expected=2", b"x")[0], 400)
        self.assertEqual(a.request("POST", "/v1/swap/k", b"x")[0], 400)

    def test_list_and_watch(self):
        a, b = self.connect(), self.connect()
        self.assertEqual(a.request("GET", "/v1/list"), (200, b"end\n"))
        revision = a.request("GET", "/v1/watch")[1].split()[0].decode()
        for key in (b"p/b", b"p/a\n", b"q", b"p/c"):
            b.request("PUT", key_path(key), b"v")
        self.assertEqual(a.request("GET", "/v1/list/p%2F"), (200, b"end\np%2Fa%0A\np%2Fb\np%2Fc\n"))
        self.assertEqual(a.request("GET", "/v1/list/p%2F?limit=2"), (200, b"more\np%2Fa%0A\np%2Fb\n"))
        self.assertEqual(a.request("GET", "/v1/list/p%2F?limit=2&after=p%2Fb"), (200, b"end\np%2Fc\n"))
        b.request("DELETE", key_path(b"p/b"))
        status, body = a.request("GET", f"/v1/watch/p%2F?after={revision}&wait=0")
        self.assertEqual(status, 200)
        lines = body.decode().splitlines()
        self.assertEqual(lines[1:], ["set p%2Fb", "set p%2Fa%0A", "set p%2Fc", "removed p%2Fb"])
        self.assertEqual(a.request("GET", f"/v1/watch/p?after={lines[0]}&wait=10")[0], 504)
        a.start("GET", f"/v1/watch/p?after={lines[0]}&wait=20000")
        b.request("PUT", key_path(b"p/d"), b"v")
        status, body = a.finish()
        self.assertEqual((status, body.decode().splitlines()[1:]), (200, ["set p%2Fd"]))
        self.assertEqual(a.request("GET", "/v1/watch?after=1000000&wait=0")[0], 409)

    def test_exchange(self):
        parties = [self.connect() for _ in range(3)]

        def target(index, want, wait=20000):
            return f"/v1/exchange/e?count=3&index={index}&wait={wait}{want}"

        parties[0].start("POST", target(0, ""), b"zero")
        self.assertEqual(parties[1].request("POST", target(1, "&want=0-1"), b"one\n"), (200, b"0 4\nzero1 4\none\n"))
        status, sentence = parties[1].request("POST", target(1, "&want=0,2", 10), b"one\n")
        self.assertEqual(status, 504)
        self.assertIn(b"2", sentence)
        self.assertEqual(parties[1].request("POST", target(1, ""), b"other")[0], 409)
        self.assertEqual(parties[2].request("POST", target(2, "&want=2"), b""), (200, b"2 0\n"))
        self.assertEqual(parties[0].finish(), (200, b"0 4\nzero1 4\none\n2 0\n"))
        for wrong in ("&want=3", "&want=1,0", "&want=1-", "&want="):
            self.assertEqual(parties[1].request("POST", target(1, wrong), b"one\n")[0], 400)
        self.assertEqual(parties[1].request("DELETE", "/v1/exchange/e"), (200, b""))
        self.assertEqual(parties[1].request("POST", target(1, "&want=1"), b"anew"), (200, b"1 4\nanew"))

    def test_join(self):
        hosts = ["a", "b", "a", "c", "b"]
        workers = [self.connect() for _ in hosts]
        for i, (worker, host) in enumerate(zip(workers, hosts)):
            worker.start("POST", f"/v1/join?client=w{i}&wait=20000", json.dumps({"host": host}).encode())
            # The first three join in this order; the order of the last two does not matter.
            if i < 3:
                probe = self.connect().request("POST", f"/v1/join?client=w{i}x&wait=0", b'{"host":"probe"}')
                self.assertEqual(probe[0], 504)
        places = [json.loads(worker.finish()[1]) for worker in workers]
        self.assertEqual([place["rank"] for place in places], [0, 2, 1, 4, 3])
        self.assertEqual([place["local_rank"] for place in places], [0, 0, 1, 0, 1])
        self.assertEqual([place["local_size"] for place in places], [2, 2, 2, 1, 2])
        self.assertEqual([place["cross_rank"] for place in places], [0, 1, 0, 2, 1])
        self.assertEqual([place["cross_size"] for place in places], [3, 3, 2, 3, 2])
        self.assertEqual({place["size"] for place in places}, {5})
        again = self.connect().request("POST", "/v1/join?client=w3&wait=0", b'{"host":"c"}')
        self.assertEqual(json.loads(again[1]), places[3])
        surplus = self.connect().request("POST", "/v1/join?client=late&wait=0", b'{"host":"c"}')
        self.assertEqual(surplus[0], 409)

    def test_refusals(self):
        def refused(connection, fields, target="/v1/keys/k", method="GET", body=b""):
            status, answer_fields, sentence = connection.raw(method, target, fields, body)
            self.assertNotIn("hvd-signature", answer_fields)
            self.assertEqual(answer_fields.get("connection"), "close")
            self.assertTrue(sentence)
            self.assertEqual(connection.stream.read(), b"")
            return status

        self.assertEqual(refused(self.connect(), {}), 401)
        self.assertEqual(refused(self.connect(), {"Authorization": "HVD1 1 2 3"}), 401)
        wrong = self.connect(secret="ff" * 16)
        self.assertEqual(refused(wrong, wrong.proof(1, "GET", "/v1/keys/k", b"")), 403)
        other = self.connect()
        self.assertEqual(refused(other, other.proof(1, "GET", "/v1/keys/other", b"")), 403)
        replay = self.connect()
        proof = replay.proof(1, "GET", "/v1/keys/k", b"")
        self.assertEqual(replay.raw("GET", "/v1/keys/k", proof)[0], 404)
        self.assertEqual(refused(replay, proof), 403)
        skip = self.connect()
        self.assertEqual(refused(skip, skip.proof(2, "GET", "/v1/keys/k", b"")), 403)
        # A signature of one connection is not valid on another.
        moved = self.connect()
        self.assertEqual(refused(self.connect(), moved.proof(1, "GET", "/v1/keys/k", b"")), 403)
        tampered = self.connect()
        tampered.count = 1
        tampered.send("PUT", "/v1/keys/k", tampered.proof(1, "PUT", "/v1/keys/k", b"12"), b"21")
        self.assertEqual(tampered.finish()[0], 403)
        self.assertEqual(self.connect().request("GET", "/v1/keys/k")[0], 404)
        chunked = self.connect()
        fields = chunked.proof(1, "PUT", "/v1/keys/k", b"12")
        lines = ["PUT /v1/keys/k HTTP/1.1", "Transfer-Encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        chunked.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n2\r\n12\r\n0\r\n\r\n")
        self.assertEqual(chunked.receive()[0], 411)

    def fetch(self, target, token=None):
        connection = object.__new__(Connection)
        connection.socket = socket.create_connection(("127.0.0.1", self.port), timeout=200)
        connection.stream = connection.socket.makefile("rb")
        self.connections.append(connection)
        fields = {} if token is None else {"Authorization": "Bearer " + token}
        status, _, body = connection.raw("GET", target, fields)
        self.assertEqual(connection.stream.read(), b"")
        return status, body.decode()

    def test_monitor(self):
        token = hmac.new(bytes.fromhex(SECRET), b"horovod-rendezvous-1 monitor\n", "sha256").hexdigest()
        shown = subprocess.run(
            [SERVER, "--show-monitor-token", "--token-file", os.path.join(self.folder.name, "token")],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        self.assertEqual(shown, token + "\n")
        self.assertEqual(self.fetch("/health"), (200, "ok\n"))
        for target in ("/metrics", "/status"):
            self.assertEqual(self.fetch(target)[0], 401)
            self.assertEqual(self.fetch(target, token[:-1] + "x")[0], 401)
        a, b = self.connect(), self.connect()
        a.request("PUT", "/v1/keys/secret", b"12345")
        a.request("GET", "/v1/keys/other")
        a.start("POST", "/v1/join?client=w0&wait=20000", json.dumps({"host": "a"}).encode())
        b.start("GET", "/v1/keys/never?wait=20000")
        status = {}
        while len(status.get("waiting", [])) < 2:
            code, text = self.fetch("/status", token)
            self.assertEqual(code, 200)
            status = json.loads(text)
        self.assertEqual(status["keys"], 1)
        self.assertEqual(status["value_bytes"], 5)
        self.assertEqual(
            {key: status["job"][key] for key in ("size", "complete", "present", "missing")},
            {"size": 5, "complete": False, "present": 1, "missing": 4},
        )
        self.assertEqual(status["job"]["workers"][0]["host"], "a")
        self.assertEqual(
            sorted(entry["request"] for entry in status["waiting"]), ["GET /v1/keys/never", "POST /v1/join"]
        )
        code, text = self.fetch("/metrics", token)
        self.assertEqual(code, 200)
        samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        self.assertEqual(samples['horovod_rendezvous_requests_total{resource="keys",status="200"}'], "1")
        self.assertEqual(samples['horovod_rendezvous_requests_total{resource="keys",status="404"}'], "1")
        # The four requests for /metrics and /status above, without a token or with a wrong token.
        self.assertEqual(samples['horovod_rendezvous_requests_total{resource="refused",status="401"}'], "4")
        self.assertEqual(float(samples["horovod_rendezvous_waiting_requests"]), 2)
        self.assertEqual(float(samples["horovod_rendezvous_workers"]), 1)
        c = self.connect()
        self.assertEqual(c.request("GET", "/health"), (200, b"ok\n"))
        self.assertEqual(json.loads(c.request("GET", "/status")[1])["job"]["size"], 5)

    def test_end(self):
        a = self.connect()
        a.start("GET", "/v1/keys/k?wait=20000")
        self.connect().request("GET", "/v1/keys/k")
        threading.Timer(0.1, self.end_server).start()
        status, sentence = a.finish()
        self.assertEqual(status, 503)
        self.assertIn(b"closing", sentence)

    def test_example(self):
        connection = object.__new__(Connection)
        text = f"horovod-rendezvous-1\n{'1' * 32}\n{'2' * 32}\n"
        secret = bytes.fromhex("00112233445566778899aabbccddeeff")
        connection.key = hmac.new(secret, text.encode(), "sha256").digest()
        folder = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(folder, "../../rendezvous/PROTOCOL.md"), encoding="utf-8") as file:
            document = file.read()
        self.assertIn("K = " + connection.key.hex(), document)
        proof = connection.proof(1, "PUT", "/v1/keys/a%2Fb?client=c&sequence=1", b"hi")
        self.assertIn(proof["Authorization"], document)
        answer = f"response\n1\n200\n{sha256_hex(b'')}"
        self.assertIn(hmac.new(connection.key, answer.encode(), "sha256").hexdigest(), document)


if __name__ == "__main__":
    SERVER = sys.argv.pop(1)
    unittest.main(verbosity=2)
