#!/usr/bin/python3 -B
"""Launchers, agents and libraries of different releases refuse each other; the error has both versions."""

import socket
import threading

from harness import *

INIT = """
import ctypes, sys
error = ctypes.create_string_buffer(800)
code = ctypes.CDLL(sys.argv[1]).hvd_init(None, error, ctypes.c_size_t(800))
print(error.value.decode(), flush=True)
sys.exit(code != 0)
"""
LIBRARY = BUILD / "lib" / "libhorovod.so"
RANK = (PYTHON, "-c", INIT, LIBRARY)
# Acts as an agent of another release: alters the version in its first message.
ALTER = """
import os, subprocess, sys
shell = subprocess.Popen(sys.argv[4:], stdout=subprocess.PIPE)
while data := os.read(shell.stdout.fileno(), 65536):
    os.write(1, data.replace(sys.argv[1].encode(), sys.argv[2].encode()))
"""


def versions():
    """Returns this version, another release's of the same length, and another patch release's."""
    own = run_to_end([LAUNCHER, "-v"], check=True).stdout.strip()
    major, minor, patch = own.split(".")
    other = next(str(number) for number in (int(minor) + 1, int(minor) - 1) if len(str(number)) == len(minor))
    return own, f"{major}.{other}.{patch}", f"{major}.{minor}.{int(patch) + 1}"


def release_of(version):
    return version.rpartition(".")[0]


class Relay(threading.Thread):
    """Listens for agents and forwards their bytes to the port, with each `old` replaced by `new`."""

    def __init__(self, port, old, new):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.port, self.old, self.new = port, old.encode(), new.encode()
        self.start()

    def run(self):
        agent = self.listener.accept()[0]
        launcher = socket.create_connection(("127.0.0.1", self.port))

        def pump(source, sink, old=b"", new=b""):
            while data := source.recv(65536):
                sink.sendall(data.replace(old, new) if old else data)
            sink.shutdown(socket.SHUT_WR)

        threading.Thread(target=pump, args=(launcher, agent), daemon=True).start()
        pump(agent, launcher, self.old, self.new)


def test_ranks_refuse_a_launcher_of_another_release_and_take_one_of_another_patch():
    own, other, patch = versions()

    def started_by(version, *more):
        # Each rank prints its error, also if the other rank has failed before.
        return Job("-np", 2, "--on-failure", "wait", "env", f"HOROVOD_LAUNCHER_VERSION={version}", *RANK, *more)

    job = started_by(other)
    job.ends_with(1)
    for rank in 0, 1:
        said = (
            f"rank {rank} on host localhost has libhorovod {own} ({LIBRARY.resolve()}), and its "
            f"launcher is horovodrun {other}; install version {release_of(other)} of the package on "
            f"host localhost, or start the job by horovodrun {release_of(own)}"
        )
        expect(said in job.out.replace(str(LIBRARY), str(LIBRARY.resolve())), job.describe())
    started_by(patch).ends_with(0)
    # The launcher's own version counts, not a version from its shell's environment.
    Job("-np", 2, *RANK, environment=clean_environment(HOROVOD_LAUNCHER_VERSION=other)).ends_with(0)


def test_a_rank_of_another_release_is_named_on_the_others():
    _, other, _ = versions()
    job = Job(
        *"-np 2 --on-failure wait".split(),
        "sh",
        "-c",
        f'[ $HOROVOD_RANK = 0 ] || export HOROVOD_LAUNCHER_VERSION={other}; exec "$@"',
        "-",
        *RANK,
    )
    job.ends_with(1)
    expect(len(re.findall(">:rank 1 on host localhost has libhorovod", job.out)) == 2, job.describe())


def test_the_launcher_refuses_an_agent_of_another_release():
    own, other, patch = versions()
    script = scratch() / "alter.py"
    script.write_text(ALTER)

    def through(version):
        return Job(
            *"-np 1 -H far:1".split(),
            "--launch-agent",
            f"{PYTHON} -B {script} {own} {version} {{host}}",
            "echo",
            "started",
        )

    job = through(other)
    job.ends_with(2)
    expect(
        "started" not in job.out
        and f"host far: its agent is horovod-agent {other}, and this launcher is horovodrun {own}; "
        f"start horovod-agent of version {release_of(own)} on that host"
        in job.err.replace("prepare: ", ""),
        job.describe(),
    )
    job = through(patch)
    job.ends_with(0)
    expect("started" in job.out, job.describe())


def test_an_agent_of_another_release_does_not_join():
    own, other, patch = versions()
    folder = scratch()
    token = folder / "token"
    token.write_text("5" * 64)
    token.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The relay alters the version in the agent's first message, which only plain text allows.
    job = Job(
        *"-np 1 -H far:1".split(),
        "--listen",
        f"127.0.0.1:{port}",
        "--token-file",
        token,
        "--insecure-plaintext",
        "echo",
        "started",
    )
    said = (
        f"its agent is horovod-agent {other}, and this launcher is horovodrun {own}; start "
        f"horovod-agent of version {release_of(own)} on that host"
    )
    for version, code in (other, 2), (patch, 0):
        wait_until(lambda: f":{port}" in job.err, 30, job.describe)
        agent = start_agent(Relay(port, own, version).address, token, "far", 1, "--insecure-plaintext")
        agent_said, _ = agent.communicate(timeout=LONG)
        expect(agent.returncode == code, (version, agent_said, job.describe()))
        expect((said in agent_said) == (version == other), agent_said)
    job.ends_with(0)
    expect("started" in job.out and f"host far: {said}" in job.err, job.describe())


if __name__ == "__main__":
    main()
