#!/usr/bin/python3 -B
"""Attacks on the links between ranks on different hosts, by a machine on the path between the hosts."""

import pathlib
import pickle
import secrets
import socket
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import *

from other_user_test import RANK, secrets_of_ranks
from relay import PathRelay

WORKER = BUILD / "tests" / "runtime_worker"
PORTS = "24000-24009"
HELLO = b"HVDL"
HELLO_SIZE, PROOF_SIZE = 88, 32


def path():
    first, last = map(int, PORTS.split("-"))
    return PathRelay("a", "b", range(first, last + 1))


def start(*command, flags=()):
    return Job("-np", 2, "-H", "a:1,b:1", "--port-range", PORTS, "--no-pmix", *flags, *command)


def summing(*flags):
    job = start(PYTHON, "-c", RANK, flags=flags)
    job.wait_for("sums", 2)
    return job


def is_right(job):
    job.signal(signal.SIGUSR1)
    job.ends_with(0)
    expect(job.out.count("right to the end") == 2, job.describe())
    job.leaves_nothing()


LINK = r"(connection to|cannot reach|connection between) rank [01] on host [ab]|10\.77\.0\.[12]"
ALTERED = r"the connection between rank 0 on host a and rank 1 on host b carried an encrypted record that was changed"


def names_the_link(job, sentence=LINK):
    """Expects that the job failed without a crash or a wrong sum, and that a message names the link."""
    expect(job.wait() != 0, job.describe())
    expect("AssertionError" not in job.err and "killed by signal" not in job.err, job.describe())
    expect(re.search(sentence, job.err), job.describe())
    job.leaves_nothing()


def everything(connection, sent):
    """Returns the reply of a connection's target to an attacker who sends these bytes."""
    with socket.create_connection(connection.target, 20) as attacker:
        said = b""
        try:
            for piece in sent:
                attacker.sendall(piece(said) if callable(piece) else piece)
                while len(said) < HELLO_SIZE + PROOF_SIZE and (more := attacker.recv(65536)):
                    said += more
            while more := attacker.recv(65536):
                said += more
        except (ConnectionError, TimeoutError):
            pass
        return said


@world("a b", "--no-decoys")
def test_no_recorded_handshake_makes_a_peer():
    relay = path()
    job = summing()
    for secret in secrets_of_ranks():
        expect(
            secret.encode() not in relay.recorded and bytes.fromhex(secret) not in relay.recorded,
            "the secret crossed the network",
        )
    links = [
        found
        for found in relay.links
        if found.up.startswith(HELLO) and found.down.startswith(HELLO) and len(found.up) >= HELLO_SIZE + PROOF_SIZE
    ]
    expect(links, "the relay saw no link of ranks")
    for link in links:
        hello, proof = bytes(link.up[:HELLO_SIZE]), link.up[HELLO_SIZE : HELLO_SIZE + PROOF_SIZE]
        # A stream number that the ranks do not use; with a valid proof, the receiver would open the stream.
        other = hello[:16] + struct.pack("<Q", 1 << 40) + hello[24:]
        for name, sent in (
            ("replay", (hello, proof)),
            ("replay for another stream", (other, proof)),
            ("reflection", (other, lambda said: said[HELLO_SIZE:])),
            ("noise", (other, secrets.token_bytes(PROOF_SIZE))),
        ):
            said = everything(link, sent)
            expect(said.startswith(HELLO), f"{name}: no rank answers: {said}")
            expect(len(said) == HELLO_SIZE + PROOF_SIZE, f"{name}: a rank took the attacker for a peer: {said}")
    is_right(job)


def after_a_hello(attack):
    """Makes an attack on the piece after a hello: a proof, or the confirmation."""

    def arm(direction):
        def wait(piece):
            attack(direction)
            return piece

        direction.alter(wait, holds=HELLO)

    return arm


def replays(direction):
    """Replaces the second hello by the first."""
    first = []

    def keep(piece):
        first.append(piece)
        direction.alter(lambda _: first[0], holds=HELLO)
        return piece

    direction.alter(keep, holds=HELLO)


ON_HANDSHAKES = {
    "flip in the hello": lambda way: way.flip_a_bit(20, holds=HELLO),
    "flip at its end": lambda way: way.flip_a_bit(holds=HELLO),
    "reorder": lambda way: way.reorder(holds=HELLO),
    "flip in what follows": after_a_hello(lambda way: way.flip_a_bit()),
    "noise in what follows": after_a_hello(lambda way: way.alter(lambda piece: secrets.token_bytes(len(piece)))),
    "replay": replays,
}


@world("a b", "--no-decoys")
def test_no_altered_byte_of_a_handshake_is_acted_upon():
    relay = path()
    for name, attack in ON_HANDSHAKES.items():
        for way in "up", "down":
            direction = getattr(relay, way)
            attack(direction)
            job = start(WORKER, "sum", flags=("--start-timeout", 8))
            code = job.wait()
            expect(direction.attacked, f"{name} {way}: there was no such piece\n{job.describe()}")
            if code == 0:
                expect(job.out.count(" of 1 here") == 2, job.describe())
            else:
                names_the_link(job)


@world("a b", "--no-decoys")
def test_a_delay_changes_nothing_and_a_cut_names_the_link():
    relay = path()
    job = summing()
    for direction in relay.up, relay.down:
        direction.passes.clear()
        time.sleep(1)
        direction.passes.set()
    is_right(job)
    job = summing()
    relay.cut()
    names_the_link(job)


OBJECT = """
import os, sys
import horovod.numpy as hvd
class Trap:
    def __reduce__(self):
        return os.write, (1, b"unpickled\\n")
hvd.init()
trap = ("marker " * 5000, Trap())
print("call", flush=True)
if sys.argv[1] == "broadcast":
    hvd.broadcast_object(trap if hvd.rank() == 0 else None, 0)
else:
    hvd.allgather_object(trap if hvd.rank() == 0 else None)
"""


@world("a b", "--no-decoys")
def test_an_object_with_a_flipped_bit_is_not_unpickled():
    relay = path()
    for call in "broadcast", "allgather":
        for direction in relay.up, relay.down:
            direction.flip_a_bit(holds=b"marker marker")
        job = start(PYTHON, "-c", OBJECT, call)
        expect(job.wait() != 0, job.describe())
        expect(relay.up.attacked or relay.down.attacked, "the relay saw no object")
        expect("[1]<stdout>:unpickled" not in job.out, job.describe())
        expect(
            re.search("the object of rank 0 reached rank 1 altered or replayed and is refused", job.err), job.describe()
        )


SIZED = """
import horovod.numpy as hvd
hvd.init()
print("call", flush=True)
hvd.broadcast_object(b"x" * 30000 if hvd.rank() == 0 else None, 0)
"""


@world("a b", "--no-decoys")
def test_a_forged_size_of_an_object_is_not_allocated():
    relay = path()
    size = len(pickle.dumps(b"x" * 30000, protocol=pickle.HIGHEST_PROTOCOL))
    told, forged = struct.pack("<iq", 0, size), (1 << 40, -2)
    for other in forged:
        for direction in relay.up, relay.down:
            direction.alter(lambda piece, other=other: piece.replace(told, struct.pack("<iq", 0, other)), holds=told)
        job = start(PYTHON, "-c", SIZED)
        expect(job.wait() != 0, job.describe())
        expect(relay.up.attacked or relay.down.attacked, "the relay saw no size")
        expect(
            re.search("the list of sizes reached rank 1 altered or replayed and is refused", job.err)
            and "MemoryError" not in job.err,
            job.describe(),
        )


# Between hosts, --encrypt authenticates every byte after the handshake.
ON_ENCRYPTED_LINKS = {
    "flip": lambda way: way.flip_a_bit(),
    "reorder": lambda way: way.reorder(),
    "loss": lambda way: way.alter(lambda piece: piece[:-1]),
    "replay": lambda way: way.alter(lambda piece: piece + piece),
    "old bytes": lambda way: way.alter(lambda piece: bytes(way.recorded[-2 * len(piece) : -len(piece)]) or b"old"),
    "noise": lambda way: way.alter(lambda piece: secrets.token_bytes(64) + piece),
}


@world("a b", "--no-decoys")
def test_no_altered_byte_of_an_encrypted_link_is_acted_upon():
    relay = path()
    for name, attack in ON_ENCRYPTED_LINKS.items():
        for way in "up", "down":
            job = summing("--encrypt", "--link-timeout", 5)
            direction = getattr(relay, way)
            attack(direction)
            try:
                names_the_link(job, ALTERED)
            except Failure as failure:
                raise Failure(f"{name} {way}: {failure}") from None
            expect(direction.attacked, f"{name} {way}: there was no piece")


if __name__ == "__main__":
    main()
