#!/usr/bin/python3 -B
"""Attacks on the link of an agent that joins: horovodrun --listen, and horovod-agent --join."""

import contextlib
import hmac
import http.client
import json
import pathlib
import resource
import secrets
import socket
import ssl
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import *

from certificates import certify
from relay import Relay

PLAIN = "--insecure-plaintext"
TICKS = "n=0; while :; do echo tick $n; n=$((n + 1)); sleep 0.05; done"


class Joining:
    """A launcher that waits for one host, `far`, and a relay between its agents and it."""

    def __init__(self, *command, flags=(), token="", hosts=("-np", 1, "-H", "far:1"), **variables):
        self.folder = scratch()
        self.token = self.make_token("token", token or secrets.token_hex(32))
        self.flags = flags
        self.job = Job(
            *hosts,
            "--listen",
            "127.0.0.1:0",
            "--token-file",
            self.folder / "token",
            *flags,
            *command,
            environment=clean_environment(**variables),
        )
        self.agents = []
        port = wait_until(lambda: re.search(r" at tcp:127\.0\.0\.1:(\d+) for ", self.job.err), 60, self.job.describe)
        self.relay = Relay(("127.0.0.1", int(port[1])))

    def make_token(self, name, token):
        (self.folder / name).touch(0o600)
        (self.folder / name).write_text(token)
        return token

    def join(self, *flags, address=None, token="token"):
        """Starts an agent that reaches the launcher through the relay."""
        self.agents.append(start_agent(address or self.relay.address, self.folder / token, "far", 1, *flags))
        return self.agents[-1]

    def refuses(self, agent):
        """Expects that the launcher refuses the agent, and returns the agent's error."""
        said = agent.communicate(timeout=LONG)[0]
        expect(agent.returncode == 2 and said.count("\n") == 1, (agent.returncode, said))
        expect(self.token not in said, said)
        return said

    def end(self):
        """Ends the launcher and the agents."""
        for process in (self.job.process, *self.agents):
            if process.poll() is None:
                process.terminate()
            process.wait(LONG)
        self.job.leaves_nothing()


@contextlib.contextmanager
def joining(*command, **more):
    job = Joining(*command, **more)
    try:
        yield job
    finally:
        job.end()


def runs_to_its_end(job, agent):
    job.job.ends_with(0)
    expect(agent.wait(LONG) == 0, agent.communicate())


def secrets_in(recorded, *texts):
    """Returns the texts that a recording contains, as text or, if hexadecimal, as bytes."""
    found = [text for text in texts if text.encode() in recorded]
    for text in texts:
        with contextlib.suppress(ValueError):
            if bytes.fromhex(text) in recorded:
                found.append(text)
    return found


SHOW = ("sh", "-c", "echo secret=$HOROVOD_JOB_SECRET= marker=$HVD_MARKER=")


def test_neither_token_nor_environment_nor_output_can_be_read_on_the_way():
    marker = f"marker-{secrets.token_hex(8)}"
    with joining(*SHOW, HVD_MARKER=marker) as job:
        runs_to_its_end(job, job.join())
        secret = re.search("secret=([0-9a-f]{32,})=", job.job.out)[1]
        expect(f"marker={marker}=" in job.job.out, job.job.describe())
        recorded = job.relay.recorded
        expect(len(recorded) > 1000, f"the relay saw {len(recorded)} bytes")
        found = secrets_in(recorded, job.token, secret, marker, "HOROVOD_JOB_SECRET", "echo")
        expect(not found, f"on the wire: {found}")
        expect(secret != job.token, "the ranks have the token")


def test_no_byte_of_an_attacker_changes_a_command_of_exec_or_its_output():
    attacks = (
        lambda way: way.flip_a_bit(),
        lambda way: way.alter(lambda piece: bytes(way.recorded) + piece),
        lambda way: way.alter(lambda piece: secrets.token_bytes(200) + piece),
    )
    for name in "up", "down":
        with joining("sh", "-c", TICKS, flags=["--lease", 5]) as job:
            job.join()
            job.job.wait_for("tick 3")
            count = job.folder / "count"
            beside = subprocess.Popen(
                [
                    LAUNCHER,
                    "exec",
                    str(job.job.process.pid),
                    "sh",
                    "-c",
                    f"echo run >> {count}; for n in $(seq 600); do echo line $n; sleep 0.02; done",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                env=clean_environment(),
            )
            wait_until(count.exists, 60, job.job.describe)
            for number, attack in enumerate(attacks, 1):
                attack(getattr(job.relay, name))
                wait_until(lambda number=number: job.relay.connections == number + 1, 60, job.job.describe)
            said = beside.communicate(timeout=LONG)[0]
            lines = [line.rpartition(":")[2] for line in said.splitlines()]
            expect(beside.returncode == 0 and lines == [f"line {n}" for n in range(1, 601)], said)
            expect(count.read_text() == "run\n", "a replayed order was acted upon")
            in_order(job)


# Stores a value like a worker of the original Horovod, prints the reply, and reads the value when the file exists.
ORIGINAL = """
import os, sys, time, urllib.request
at = f"http://{os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR']}:{os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT']}/global/0"
request = urllib.request.Request(at, b"of-a-rank", method="PUT")
print("stored", urllib.request.urlopen(request, None, 20).status, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print("read", urllib.request.urlopen(at, None, 20).read().decode(), flush=True)
"""


def unsigned(job, method, body=b""):
    """Returns the --listen port's reply to a worker of the original Horovod."""
    host, port = job.relay.target
    with socket.create_connection((host, port), 20) as peer:
        peer.sendall(f"{method} /global/0 HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        peer.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            return peer.recv(65536)
    return b""


def test_the_port_of_hosts_that_join_serves_no_unsigned_request():
    for flags in [], [PLAIN]:
        go = scratch() / "go"
        with joining(PYTHON, "-c", ORIGINAL, go, flags=["--insecure-compat", *flags]) as job:
            before = unsigned(job, "PUT", b"attacker")
            agent = job.join(*flags)
            job.job.wait_for("stored 200")
            for said in before, unsigned(job, "GET"), unsigned(job, "PUT", b"attacker"), unsigned(job, "DELETE"):
                expect(re.match(rb"HTTP/1.1 40[01] ", said) and b"of-a-rank" not in said, said)
            go.touch()
            runs_to_its_end(job, agent)
            expect("read of-a-rank" in job.job.out, job.job.describe())


def test_two_jobs_of_one_token_have_two_secrets():
    def secret_of(job):
        runs_to_its_end(job, job.join())
        return re.search("secret=([0-9a-f]{32,})=", job.job.out)[1]

    token, found = secrets.token_hex(32), []
    for _ in range(2):
        with joining(*SHOW, token=token) as job:
            found.append(secret_of(job))
    expect(len({token, *found}) == 3, "one secret for two jobs")


def test_plain_text_on_both_sides_is_readable_and_still_hides_the_token():
    with joining(*SHOW, flags=[PLAIN], HVD_MARKER="readable") as job:
        expect(re.search(f"--token-file .*/token {PLAIN}$", job.job.err, re.M), job.job.describe())
        runs_to_its_end(job, job.join(PLAIN))
        recorded = job.relay.recorded
        expect(not secrets_in(recorded, job.token), "the token is on the wire")
        expect(secrets_in(recorded, "readable"), "the relay did not see the link")


def test_callers_that_prove_nothing_leave_descriptors_for_the_job():
    with joining("echo", "up", flags=[PLAIN]) as job, contextlib.ExitStack() as callers:
        resource.prlimit(job.job.process.pid, resource.RLIMIT_NOFILE, (256, 256))
        address, port = job.relay.target
        for _ in range(300):
            caller = callers.enter_context(socket.create_connection((address, port), 10))
            caller.sendall(
                b"GET /v1/agent HTTP/1.1\r\nHost: rendezvous\r\nConnection: Upgrade\r\nUpgrade: horovod-agent\r\n\r\n"
            )
        runs_to_its_end(job, job.join(PLAIN))
        expect("Too many open files" not in job.job.err, job.job.describe())


BY_LAUNCHER = r"the connection of the agent at tcp:127\.0\.0\.1:\d+ ended: bytes were altered in transit"
BY_AGENT = "horovod-agent: the connection to the launcher ended: bytes were altered in transit"


def expect_altered(job, agent, words):
    """Expects that the connection has ended with a message, the link has resumed, and no altered byte had an effect."""
    wait_until(lambda: job.relay.connections == 2, 60, job.job.describe)
    job.job.wait_for("tick", job.job.out.count("tick") + 3)
    job.job.signal(signal.SIGTERM)
    job.job.ends_with(143)
    said = agent.communicate(timeout=LONG)[0]
    expect(re.search(words, said if words == BY_AGENT else job.job.err), f"{said}\n{job.job.describe()}")
    in_order(job)


def in_order(job):
    """Expects that the user saw the rank's ticks in order, and nothing else."""
    ticks = [line.rpartition(":")[2] for line in job.job.out.splitlines()]
    expect(ticks == [f"tick {n}" for n in range(len(ticks))], job.job.describe())


def test_a_bit_flipped_on_the_way_to_the_launcher_ends_the_connection():
    with joining("sh", "-c", TICKS) as job:
        agent = job.join()
        job.job.wait_for("tick 3")
        job.relay.up.flip_a_bit()
        expect_altered(job, agent, BY_LAUNCHER)


def test_a_bit_flipped_on_the_way_to_the_agent_ends_the_connection():
    with joining("sh", "-c", TICKS) as job:
        agent = job.join()
        job.job.wait_for("tick 3")
        job.relay.down.flip_a_bit()
        job.job.signal(signal.SIGUSR1)  # the launcher forwards the signal to the rank
        expect_altered(job, agent, BY_AGENT)


def order_to_run(recorded, *command):
    """Returns a record with a frame of launcher/protocol that starts a program next to rank 0 in the recorded job. The
    record acknowledges what the previous record acknowledged."""
    magic = b"\x89HVD"
    at = recorded.rfind(magic)
    job, generation, host = struct.unpack_from("<QII", recorded, at + 8) if at >= 0 else (1, 0, 0)
    words = b"".join(struct.pack("<I", len(word)) + word for word in map(os.fsencode, command))
    payload = struct.pack("<HIiII", 25, 7, 0, 0, len(command)) + words
    frame = magic + struct.pack("<HHQIIIII", 1, 1, job, generation, host, 0, 0, len(payload)) + payload
    received = recorded[at - 8 : at] if at >= 0 else bytes(8)
    return struct.pack("<I", len(frame)) + received + frame


def test_an_injected_order_is_not_obeyed():
    for flags in ([PLAIN], []):
        with joining("sh", "-c", TICKS, flags=flags) as job:
            made = job.folder / "made"
            agent = job.join(*flags)
            job.job.wait_for("tick 3")
            job.relay.down.inject(order_to_run(bytes(job.relay.down.recorded), "/bin/touch", made))
            if flags:  # the attack succeeds on an unprotected link
                wait_until(made.exists, 60, job.job.describe)
                continue
            expect_altered(job, agent, BY_AGENT)
            expect(not made.exists(), "the agent obeyed the attacker")


def test_replayed_bytes_are_not_taken():
    with joining("sh", "-c", TICKS) as job:
        agent = job.join()
        job.job.wait_for("tick 3")
        job.relay.up.inject(bytes(job.relay.up.recorded[-200:]))
        expect_altered(job, agent, BY_LAUNCHER)


def test_a_wrong_token_is_one_sentence_on_both_sides():
    with joining(*SHOW) as job:
        job.make_token("other", secrets.token_hex(32))
        said = job.refuses(job.join(token="other"))
        expect(
            "did not admit this host, 'far:1': the token here is not the launcher's; copy the "
            "launcher's token file here" in said,
            said,
        )
        wait_until(
            lambda: re.search(r"the agent at tcp:127\.0\.0\.1:\d+ does not hold the job's token; copy", job.job.err),
            60,
            job.job.describe,
        )
        runs_to_its_end(job, job.join())


def breaks(_piece):
    raise OSError("the connection breaks here")


def test_an_agent_whose_connection_breaks_while_it_joins_dials_again():
    two = ("-np", 2, "-H", "far:1,near:1")
    # The connection breaks after this number of the launcher's pieces: 0, or 1, its part of the TLS handshake. If None,
    # the connection breaks while the agent waits in the queue.
    for pieces in (0, 1, None):
        with joining("true", hosts=two, flags=("--verbose",)) as job:
            if pieces is not None:
                job.relay.down.alter(breaks, skip=pieces)
            far = job.join()
            wait_until(lambda: "host far joined with 1 slots" in job.job.err, 60, job.job.describe)
            if pieces is None:
                job.relay.cut()
                job.relay.heal()
                wait_until(lambda: job.job.err.count("host far joined with 1 slots") == 2, 60, job.job.describe)
            near = job.join("--name", "near")
            job.job.ends_with(0)
            for agent in (far, near):
                said = agent.communicate(timeout=LONG)[0]
                expect(agent.returncode == 0 and "token" not in said, (pieces, agent.returncode, said))
            expect(job.relay.connections == 3, (pieces, job.relay.connections))


def test_agents_that_wait_end_with_their_launcher():
    with joining("true", hosts=("-np", 2, "-H", "far:1,near:1"), flags=("--verbose",)) as job:
        agent = job.join()
        wait_until(lambda: "host far joined with 1 slots" in job.job.err, 60, job.job.describe)
        job.job.signal(signal.SIGTERM)
        job.job.ends_with(143)
        said = job.refuses(agent)
        expect("the launcher does not accept this host: the job ends" in said, said)


def test_an_agent_in_plain_text_is_refused_with_a_sentence():
    with joining(*SHOW) as job:
        said = job.refuses(job.join(PLAIN))
        expect("it accepts hosts by TLS only; leave out --insecure-plaintext" in said, said)
        expect(
            re.search(
                r"the agent at tcp:127\.0\.0\.1:\d+ joins in plain text and is refused; start "
                "horovod-agent of this version there",
                job.job.err,
            ),
            job.job.describe(),
        )
        runs_to_its_end(job, job.join())


def test_an_agent_by_tls_does_not_join_in_plain_text():
    with joining(*SHOW, flags=[PLAIN]) as job:
        said = job.refuses(job.join())
        expect("the program that listens there does not speak TLS" in said, said)
        expect("start a horovodrun --listen of this version there, without --insecure-plaintext" in said, said)
        runs_to_its_end(job, job.join(PLAIN))


def test_a_launcher_with_a_certificate_takes_the_token_and_the_certificate():
    certificate, key = certify(scratch(), "localhost")
    for by in ("token", "certificate"):
        with joining(*SHOW, flags=["--tls-cert", certificate, "--tls-key", key]) as job:
            expect(re.search("horovod-agent --join https://", job.job.err), job.job.describe())
            said = job.refuses(job.join(PLAIN))
            expect("it accepts hosts by TLS only" in said, said)
            port = job.relay.address.rpartition(":")[2]
            runs_to_its_end(
                job, job.join() if by == "token" else job.join("--ca", certificate, address=f"https://localhost:{port}")
            )
            expect(not secrets_in(job.relay.recorded, job.token, "HOROVOD_JOB_SECRET"), by)


def test_metrics_for_other_machines_need_tls_and_the_monitor_token():
    folder = scratch()
    certificate, key = certify(folder, "localhost")
    flags = ["--tls-cert", certificate, "--tls-key", key, "--metrics-port", "0.0.0.0:0"]
    state = folder / "state"
    with joining("sh", "-c", "echo ready; exec sleep 600", flags=flags, HOROVOD_STATE_DIR=str(state)) as job:
        job.join()
        job.job.wait_for("ready")
        (file,) = state.glob("*.metrics.json")
        (group,) = json.loads(file.read_text())
        port = int(group["targets"][0].rpartition(":")[2])
        context = ssl.create_default_context(cafile=certificate)

        def status(path, given="", secure=True):
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            client = kind("localhost", port, timeout=10, **({"context": context} if secure else {}))
            client.request("GET", path, headers={"Authorization": given} if given else {})
            reply = client.getresponse()
            return reply.status, reply.read().decode()

        expect(status("/metrics")[0] == 401 and status("/metrics", "Bearer x")[0] == 401, "without the token")
        expect(status("/healthz") == (200, "ok\n") and status("/metrics", secure=False)[0] == 426, "in plain text")
        token = hmac.digest(bytes.fromhex(job.token), b"horovod-rendezvous-1 monitor\n", "sha256").hex()
        code, text = status("/metrics", f"Bearer {token}")
        expect(code == 200 and "horovod_ranks_up" in text and job.token not in text, text)


def by_another_program(port, token, suites):
    """Returns the reply that openssl gets from the launcher's port with the token's key and these cipher suites."""
    extracted = hmac.digest(bytes(32), bytes.fromhex(token), "sha256")
    key = hmac.digest(extracted, b"horovod join 1\x01", "sha256")
    return run_to_end(
        [
            "openssl",
            "s_client",
            "-quiet",
            "-connect",
            f"127.0.0.1:{port}",
            "-tls1_3",
            "-psk",
            key.hex(),
            "-psk_identity",
            "horovod shared key 1",
            "-ciphersuites",
            suites,
        ],
        input="GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ).stdout


def test_a_key_of_another_hash_is_not_replaced_by_the_certificate():
    certificate, key = certify(scratch(), "localhost")
    with joining(*SHOW, flags=["--tls-cert", certificate, "--tls-key", key]) as job:
        port = job.relay.address.rpartition(":")[2]
        suite = "TLS_AES_128_GCM_SHA256"
        expect("200 OK" in by_another_program(port, job.token, suite), "the key is not the documented one")
        said = by_another_program(port, job.token, f"TLS_AES_256_GCM_SHA384:{suite}")
        expect("200 OK" not in said, said)


def test_a_server_without_the_token_is_refused_whatever_its_certificate():
    """An attacker's server: openssl with a certificate, in place of the launcher."""
    folder = scratch()
    certificate, key = certify(folder, "localhost")
    with joining(*SHOW) as job:
        server = subprocess.Popen(
            ["openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", certificate, "-key", key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            port = next(found[1] for line in server.stdout if (found := re.search(r"ACCEPT.*:(\d+)", line)))
            said = job.refuses(job.join(address=f"127.0.0.1:{port}"))
            expect("shows a certificate, and no shared key" in said, said)
        finally:
            server.terminate()
            server.communicate(timeout=LONG)


if __name__ == "__main__":
    main()
