#!/usr/bin/python3 -B
"""HOROVOD_ENCRYPT: network traffic between two hosts, equal results, and refused options."""

import pathlib
import socket
import struct
import sys

from harness import *

import backends_test as backends
import network

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
from capture import Capture

LINK_OF_A = "eth0-0"  # the launcher's end of host a's link, bridged to host b's

PATTERN = b"a pattern that a capture of the network would show"
NAME = "the-name-of-a-secret-tensor"
JOB = ("-np", 4, "-H", "a:2,b:2")

# The pattern crosses the network in tensors, the name in control messages.
SENDS = f"""
import hashlib
import numpy
import horovod.numpy as hvd
hvd.init()
digest = hashlib.sha256()
text = numpy.tile(numpy.frombuffer({PATTERN!r}, dtype=numpy.uint8), 2000)
for value in (hvd.broadcast(text if hvd.rank() == 0 else numpy.zeros_like(text), 0, name={NAME!r}),
              hvd.allgather(text[:1000 * (1 + hvd.rank())])):
    digest.update(value.tobytes())
for count in (1, 1000, 200_000):
    part = numpy.random.default_rng([count, hvd.rank()]).random(count, dtype=numpy.float32)
    digest.update(hvd.allreduce(part, op=hvd.Sum).tobytes())
print("digest", digest.hexdigest(), flush=True)
"""


def captured(*flags):
    """Runs the program. Returns its digest, and the captured bytes."""
    with Capture(LINK_OF_A) as capture:
        job = Job(*JOB, *flags, PYTHON, "-c", SENDS)
        job.ends_with(0)
    digests = set(re.findall("digest ([0-9a-f]{64})", job.out))
    expect(job.out.count("digest") == 4 and job.said() == [], job.describe())
    return digests, capture.recorded


@world("a b", "--no-decoys")
def test_a_capture_shows_tensors_and_names_without_the_flag_alone():
    plain_digests, plain = captured()
    digests, encrypted = captured("--encrypt")
    expect(len(plain) > 200_000 and len(encrypted) > 200_000, (len(plain), len(encrypted)))
    for text in (PATTERN, NAME.encode()):
        expect(text in plain, f"no {text} in {len(plain)} bytes without --encrypt")
        expect(text not in encrypted, f"{text} is in a capture with --encrypt")
    expect(plain_digests == digests, f"other bits: {plain_digests} and {digests}")


class Segment:
    """A captured TCP segment."""

    def __init__(self, packet):
        self.packet = packet
        self.tcp = 14 + 4 * (packet[14] & 15)
        self.begin = self.tcp + 4 * (packet[self.tcp + 12] >> 4)
        self.data = packet[self.begin : 14 + struct.unpack_from("!H", packet, 16)[0]]
        self.ports = struct.unpack_from("!HH", packet, self.tcp)

    def followed_by(self, data):
        """Makes a packet with these bytes, at the sequence number that the receiver expects next."""
        packet = bytearray(self.packet[: self.begin] + data)
        (sequence,) = struct.unpack_from("!I", packet, self.tcp + 4)
        struct.pack_into("!I", packet, self.tcp + 4, (sequence + len(self.data)) % (1 << 32))
        struct.pack_into("!H", packet, 16, len(packet) - 14)
        struct.pack_into("!H", packet, 24, 0)
        struct.pack_into("!H", packet, 24, checksum(packet[14 : self.tcp]))
        struct.pack_into("!H", packet, self.tcp + 16, 0)
        size = len(packet) - self.tcp
        tcp_sum = checksum(packet[26:34] + struct.pack("!HH", 6, size) + packet[self.tcp :])
        struct.pack_into("!H", packet, self.tcp + 16, tcp_sum)
        return bytes(packet)


def checksum(text):
    """Computes the checksum of RFC 1071."""
    text += bytes(len(text) % 2)
    total = sum(struct.unpack(f"!{len(text) // 2}H", text))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def segments_between(packets, sender, receiver):
    """Returns the segments of the ranks' links, in order, without ssh (port 22)."""
    wanted = socket.inet_aton(sender) + socket.inet_aton(receiver)
    found = [
        Segment(packet)
        for packet in packets
        if packet[12:14] == b"\x08\0" and packet[23] == 6 and packet[26:34] == wanted
    ]
    return [segment for segment in found if 22 not in segment.ports]


WAITS = """
import os, sys, time
import numpy
import horovod.numpy as hvd
hvd.init()
for step in range(3):
    hvd.allreduce(numpy.ones(4), name="step")
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
for step in range(3):
    hvd.allreduce(numpy.ones(4), name="step")
"""


@world("a b", "--no-decoys")
def test_a_record_that_somebody_on_the_path_repeats_ends_the_job():
    go = scratch() / "go"
    with Capture(LINK_OF_A) as capture:
        job = Job("-np", 2, "-H", "a:1,b:1", "--encrypt", PYTHON, "-c", WAITS, go)
        job.wait_for("ready", 2)

        def is_quiet():
            before = len(segments_between(capture.packets, network.address(1), network.address(0)))
            time.sleep(0.3)
            return len(segments_between(capture.packets, network.address(1), network.address(0))) == before

        # After a later segment, TCP would drop the repeated segment as old.
        wait_until(is_quiet, 20, "the connection between the ranks to be quiet")
    segments = segments_between(capture.packets, network.address(1), network.address(0))
    record = [segment for segment in segments if segment.data][-1]
    newest = [segment for segment in segments if segment.ports == record.ports][-1]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as attacker:
        attacker.bind((LINK_OF_A, 0))
        attacker.send(newest.followed_by(record.data))
    go.touch()
    expect(job.wait() != 0, job.describe())
    expect(
        "the connection between rank 0 on host a and rank 1 on host b carried an encrypted record "
        "that was changed, repeated, reordered or left out on the way; check the network between "
        "these hosts" in job.err,
        job.describe(),
    )
    job.leaves_nothing()


def refusals(job, words, count):
    code = job.wait()
    expect(code != 0, job.describe())
    found = re.findall(words, job.err)
    expect(len(found) >= count, f"{words!r} is not there {count} times\n{job.describe()}")


INIT = (PYTHON, "-c", "import horovod.numpy as hvd; hvd.init()")


@world("a b", "--no-decoys")
def test_ranks_with_different_settings_are_refused_with_one_sentence():
    job = Job("-np", 2, "-H", "a:1,b:1", "sh", "-c", f"HOROVOD_ENCRYPT=$HOROVOD_RANK exec {PYTHON} -c '{INIT[2]}'")
    refusals(
        job,
        "HOROVOD_ENCRYPT differs between the ranks: rank 0 on host a has 0, rank 1 on host b "
        "has 1; set it alike on all ranks, as horovodrun --encrypt does",
        1,
    )
    job.leaves_nothing()


@world("a b", "--no-decoys")
def test_backends_with_their_own_connections_are_refused_between_hosts():
    found = 0
    for kind, variable, value, name, folder in (
        ("backend", "HOROVOD_CPU_OPERATIONS", "libgloo", "gloo", backends.BACKENDS),
        ("backend", "HOROVOD_CPU_OPERATIONS", "mpi", "mpi", backends.BACKENDS),
        ("backend", "HOROVOD_CPU_OPERATIONS", "CCL", "ccl", backends.BACKENDS),
        ("controller", "HOROVOD_CONTROLLER", "mpi", "mpi", backends.CONTROLLERS),
        ("backend", "HOROVOD_GPU_OPERATIONS", "NCCL", "nccl", backends.BACKENDS),
    ):
        needs_library = name == "ccl" and "HVD_TEST_CCL" not in os.environ
        if needs_library or not list(folder.glob(f"{name}*.so")):
            continue
        found += 1
        words = (
            rf"HOROVOD_ENCRYPT is set, but the {kind} {name} \({variable}={value}\) would open "
            "connections between hosts that it does not encrypt; use the built-in one in its place, "
            "or unset HOROVOD_ENCRYPT"
        )
        environment = clean_environment(**(backends.oneccl() if name == "ccl" else {}))
        refusals(
            Job("-np", 2, "-H", "a:1,b:1", "--encrypt", "-x", f"{variable}={value}", *INIT, environment=environment),
            words,
            1,
        )
    if not found:
        raise Skip("no such backend is built: packaging/packages-test.txt names their packages")


def test_backends_with_their_own_connections_work_on_one_host():
    backends.backend("gloo")
    job = Job("-np", 2, "--encrypt", "-x", "HOROVOD_CPU_OPERATIONS=libgloo", PYTHON, "-c", SENDS)
    job.ends_with(0)


def test_check_build_names_what_a_job_with_encryption_refuses():
    job = Job("--check-build", "--encrypt")
    job.ends_with(0)
    expect(
        "HOROVOD_ENCRYPT is set: on several hosts a job refuses NCCL, CCL, MPI and libgloo" in job.err, job.describe()
    )


if __name__ == "__main__":
    main()
