#!/usr/bin/python3 -B
"""Attacks on the link of a rank to the rendezvous server."""

import concurrent.futures
import contextlib
import pathlib
import secrets
import socket
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import *

sys.path.insert(0, str(BUILD / "python"))
from horovod.runner._store import Store, StoreError, connect

from relay import Relay

SERVER = BUILD / "bin" / "horovod-rendezvous"
WORKER = BUILD / "tests" / "runtime_worker"


class Serving:
    """A rendezvous server, and a relay between it and its workers and clients."""

    def __init__(self, *flags):
        self.token = secrets.token_hex(32)
        file = scratch() / "token"
        file.touch(0o600)
        file.write_text(self.token)
        self.processes = []
        server = self.start(SERVER, *flags, "--listen", "127.0.0.1:0", "--token-file", file)
        self.port = int(
            next(found[1] for line in server.stdout if (found := re.search(r"listens on tcp:.*:(\d+)", line)))
        )
        self.relay = Relay(("127.0.0.1", self.port))
        self.address = f"tcp:{self.relay.address}"

    def start(self, *command, **variables):
        self.processes.append(
            subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=clean_environment(**variables),
            )
        )
        return self.processes[-1]

    def worker(self):
        return self.start(
            WORKER,
            "sum",
            HOROVOD_STORE=self.address,
            HOROVOD_JOB_SECRET=self.token,
            HOROVOD_START_TIMEOUT="8",
            HOROVOD_INIT_TIMEOUT="8",
        )

    def client(self, address=""):
        return Store(lambda: connect(address or self.address), self.token, False)

    def end(self):
        for process in self.processes:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def serving(*flags):
    server = Serving(*flags)
    try:
        yield server
        expect(server.processes[0].poll() is None, "an attack has ended the server")
    finally:
        server.end()


def run_of_two(server):
    """Runs two workers. Returns True if the sums are right, False if they end with a message that names the store."""
    workers = [server.worker() for _ in range(2)]
    said = [worker.communicate(timeout=LONG)[0] for worker in workers]
    codes = [worker.returncode for worker in workers]
    expect(server.token not in "".join(said), said)
    if codes == [0, 0]:
        expect({text.strip() for text in said} == {"0 of 2, 0 of 2 here", "1 of 2, 1 of 2 here"}, said)
        return True
    expect(set(codes) <= {0, 1} and "Sanitizer" not in "".join(said), (codes, said))
    expect(
        server.address in "".join(said) or "the network to HOROVOD_STORE" in "".join(said),
        f"{codes}: no worker names the store: {said}",
    )
    return False


def side_by_side(attacks):
    """Runs each attack on a job of two workers. Returns which jobs computed correctly to the end.

    An attack is a function of a direction of the link, the direction's name, and the number of the piece that it
    alters.
    """

    def run(attack):
        name, change, way, skip = attack
        with serving("-np", 2) as server:
            direction = getattr(server.relay, way)
            change(direction, skip)
            try:
                right = run_of_two(server)
            except Failure as failure:
                raise Failure(f"{name} {way} {skip}: {failure}") from None
            expect(direction.attacked, f"{name} {way} {skip}: the link had no such piece")
            return right

    with concurrent.futures.ThreadPoolExecutor(len(attacks)) as threads:
        return list(threads.map(run, attacks))


def test_the_secret_is_not_on_the_way_and_not_in_a_log():
    with serving("-np", 2) as server:
        expect(run_of_two(server), "the relay changed a job")
        recorded = server.relay.recorded
        expect(b"/v1/join" in recorded, "the relay did not see the link")
        expect(
            server.token.encode() not in recorded and bytes.fromhex(server.token) not in recorded,
            "the token is on the way",
        )


ALTERATIONS = {
    "flip": lambda way, skip: way.flip_a_bit(skip=skip),
    "flip in the head": lambda way, skip: way.flip_a_bit(9, skip=skip),
    "reorder": lambda way, skip: way.reorder(skip=skip),
    "loss": lambda way, skip: way.alter(lambda piece: piece[:-1], skip=skip),
    "replay": lambda way, skip: way.alter(lambda piece: bytes(way.recorded), skip=skip),
    "insertion": lambda way, skip: way.alter(lambda piece: bytes(way.recorded[:200]) + piece, skip=skip),
    "noise": lambda way, skip: way.alter(lambda piece: secrets.token_bytes(100) + piece, skip=skip),
}


def test_no_altered_byte_of_a_request_is_acted_upon():
    right = side_by_side([(name, change, "up", skip) for name, change in ALTERATIONS.items() for skip in (0, 2, 5)])
    expect(not all(right), "no attack did anything")


def test_no_altered_byte_of_a_response_is_acted_upon():
    right = side_by_side([(name, change, "down", skip) for name, change in ALTERATIONS.items() for skip in (0, 2, 5)])
    expect(not all(right), "no attack did anything")


def test_a_cut_and_a_delay_change_nothing():
    for skip in 0, 2, 5:
        with serving("-np", 2) as server:

            def cut(piece, relay=server.relay):
                relay.cut()
                relay.heal()
                return piece

            server.relay.up.alter(cut, skip=skip)
            expect(run_of_two(server), f"a cut at request {skip}")
            expect(server.relay.up.attacked, f"the link had no request {skip}")
    for way in "up", "down":
        with serving("-np", 2) as server:
            direction = getattr(server.relay, way)

            def hold(piece, direction=direction):
                threading.Timer(1, direction.passes.set).start()
                direction.passes.clear()
                return piece

            direction.alter(hold, skip=2)
            expect(run_of_two(server), f"a delay {way}")
            expect(direction.attacked and direction.passes.is_set(), f"there was no delay {way}")


def answer_to(server, request, times=1):
    """Returns the server's reply to bytes of the attacker on a separate connection."""
    with socket.create_connection(("127.0.0.1", server.port), 60) as attacker:
        attacker.sendall(request * times)
        attacker.shutdown(socket.SHUT_WR)
        said = b""
        while piece := attacker.recv(65536):
            said += piece
        return said


def test_no_request_of_an_attacker_changes_a_value():
    with serving() as server:
        with contextlib.closing(server.client()) as client:
            client.put("a", b"value-1")
            recorded = bytes(server.relay.up.recorded)
            client.put("a", b"value-2")
            # Replays the request on the client's own connection, and on a new connection.
            server.relay.up.inject(recorded[recorded.index(b"PUT") :])
            said = answer_to(server, recorded)
            expect(said.startswith(b"HTTP/1.1 200 OK\r\nHvd-Nonce") and b"HTTP/1.1 403" in said, said)
        for method, target, body in (
            ("PUT", "keys/a", b"x"),
            ("DELETE", "keys/a", b""),
            ("POST", "swap/a?client=c&sequence=1", b"x"),
            ("GET", "keys/a", b""),
            ("GET", "list", b""),
            ("POST", "exchange/x?count=1048576&index=0", b"x"),
        ):
            said = answer_to(
                server,
                f"{method} /v1/{target} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body,
            )
            expect(said.startswith(b"HTTP/1.1 401") and b"value-1" not in said and b"value-2" not in said, said)
        with contextlib.closing(server.client()) as client:
            expect(client.get("a") == b"value-2", "the attacker has changed a value")


def test_no_response_of_an_attacker_is_believed():
    for status, body in (200, b"forged"), (404, b"no such key"), (504, b"later"), (503, b"closing"):
        forged = (
            f"HTTP/1.1 {status} Forged\r\nContent-Length: {len(body)}\r\nHvd-Signature: {'0' * 64}\r\n\r\n".encode()
            + body
        )
        for piece in forged, forged.replace(b"Hvd-Signature", b"Hvd-Other"):
            with serving() as server, contextlib.closing(server.client()) as client:
                client.put("a", b"value")
                server.relay.down.alter(lambda _, piece=piece: piece)
                try:
                    expect(False, f"{status}: the client believes {client.get('a')}")
                except StoreError as error:
                    expect("not signed with the job's secret" in str(error), error)


if __name__ == "__main__":
    main()
