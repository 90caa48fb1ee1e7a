#!/usr/bin/python3 -B
"""Links between launcher and agent that break while ranks run."""

import secrets

from harness import *

sys.path.insert(0, str(ROOT / "tests" / "attack"))
from relay import Relay

import host
import network

LINES = 300
# Prints lines before, during and after the break, by their number; then many lines at once.
COUNT = f"for i in $(seq {LINES}); do echo line $i; sleep 0.02; done; seq 1 200000"


def expect_all_lines(job):
    lines = [line.rpartition(":")[2] for line in job.out.splitlines()]
    expected = [f"line {i}" for i in range(1, LINES + 1)] + [str(i) for i in range(1, 200001)]
    if lines == expected:
        return
    first = next(
        (i for i, pair in enumerate(zip(lines, expected)) if pair[0] != pair[1]), min(len(lines), len(expected))
    )
    raise Failure(f"{len(lines)} of {len(expected)} lines; line {first}: {lines[first : first + 3]}\n{job.err}")


def cut_for(relay, seconds, job):
    before = relay.connections
    relay.cut()
    time.sleep(seconds)
    relay.heal()
    wait_until(lambda: relay.connections > before or job.process.poll() is not None, 60, job.describe)


class Joined:
    """A launcher that one host joins through a relay."""

    def __init__(self, *command, flags=(), port=0, token="", slots=1):
        self.folder = scratch()
        self.token = token or secrets.token_hex(32)
        (self.folder / "token").touch(0o600)
        (self.folder / "token").write_text(self.token)
        self.slots = slots
        self.job = Job(
            "-np",
            slots,
            "-H",
            f"far:{slots}",
            "--listen",
            f"127.0.0.1:{port}",
            "--token-file",
            self.folder / "token",
            *flags,
            *command,
        )
        self.port = int(
            wait_until(lambda: re.search(r" at tcp:127\.0\.0\.1:(\d+) for ", self.job.err), 60, self.job.describe)[1]
        )

    def join(self, port):
        return start_agent(f"127.0.0.1:{port}", self.folder / "token", "far", self.slots)


@world()
def test_a_joined_host_outlives_resets():
    joined = Joined("sh", "-c", COUNT)
    relay = Relay(("127.0.0.1", joined.port))
    agent = joined.join(relay.address.rpartition(":")[2])
    for number, seconds in ((20, 1), (150, 0), (200, 0)):
        joined.job.wait_for(f"line {number}\n")
        cut_for(relay, seconds, joined.job)
    joined.job.ends_with(0)
    expect_all_lines(joined.job)
    expect(relay.connections >= 4, f"{relay.connections} connections")
    expect(agent.wait(LONG) == 0, agent.communicate())
    joined.job.leaves_nothing()


def reach_through(relay):
    """`far` is host a behind the relay."""
    config = pathlib.Path.home() / ".ssh" / "config"
    before = config.read_text() if config.exists() else ""
    address, port = relay.address.split(":")
    config.write_text(f"Host far\n HostName {address}\n Port {port}\n{before}")


def outlives_resets_by_ssh(*flags):
    relay = Relay((network.address(host.spec()["names"].index("a")), 22))
    reach_through(relay)
    job = Job("-np", 1, "-H", "far:1", *flags, "sh", "-c", COUNT)
    for number, seconds in ((20, 1), (150, 0), (200, 0)):
        job.wait_for(f"line {number}\n")
        cut_for(relay, seconds, job)
    job.ends_with(0)
    expect_all_lines(job)
    expect(relay.connections >= 4, f"{relay.connections} connections")
    job.leaves_nothing()


@world()
def test_a_host_by_ssh_outlives_resets():
    outlives_resets_by_ssh()


@world()
def test_a_host_by_a_command_outlives_resets():
    outlives_resets_by_ssh("--launch-agent", "ssh -o StrictHostKeyChecking=accept-new {host}")


@world()
def test_a_reset_at_any_moment_of_a_login_is_noticed():
    relay = Relay((network.address(host.spec()["names"].index("a")), 22))
    reach_through(relay)

    def reset_all(piece):
        relay.cut()
        relay.heal()
        return piece

    for pieces in range(12):
        relay.down.alter(reset_all, skip=pieces)
        job = Job("-np", 1, "-H", "far:1", "true")
        expect(job.wait() in (0, 1, 2), job.describe())
        expect("not done after" not in job.err, f"after {pieces} pieces: {job.describe()}")


@world()
def test_ranks_that_start_to_meet_while_the_link_is_cut_meet():
    joined = Joined("sh", "-c", f"echo begins; sleep 1; exec {BUILD}/tests/runtime_worker sum", slots=2)
    relay = Relay(("127.0.0.1", joined.port))
    agent = joined.join(relay.address.rpartition(":")[2])
    joined.job.wait_for("begins", 2)
    cut_for(relay, 3, joined.job)
    joined.job.ends_with(0)
    expect(agent.wait(LONG) == 0, agent.communicate())


@world()
def test_an_agent_of_a_former_launcher_is_refused():
    former = Joined("sh", "-c", "echo begins; sleep 600")
    relay = Relay(("127.0.0.1", former.port))
    agent = former.join(relay.address.rpartition(":")[2])
    former.job.wait_for("begins")
    relay.cut()
    former.job.process.kill()
    former.job.process.wait()
    later = Joined("true", port=former.port, token=former.token)
    relay.heal()
    said = agent.communicate(timeout=LONG)[0]
    expect("the launcher does not resume the link of this host: it runs no job" in said, said)
    expect(later.join(later.port).wait(60) == 0, later.job.describe())
    later.job.ends_with(0)


@world()
def test_a_cut_longer_than_the_lease_ends_the_job_with_a_sentence():
    joined = Joined("sh", "-c", "echo begins; sleep 600", flags=["--lease", 3])
    relay = Relay(("127.0.0.1", joined.port))
    agent = joined.join(relay.address.rpartition(":")[2])
    joined.job.wait_for("begins")
    relay.cut()
    joined.job.ends_with(1)
    expect(
        re.search("host far was lost.*(did not resume within 3 s|did not answer for 3 s)", joined.job.err),
        joined.job.describe(),
    )
    said = agent.communicate(timeout=LONG)[0]
    expect("did not resume within 3 s" in said or "sent nothing for 3 s" in said, said)
    joined.job.leaves_nothing()


@world()
def test_nothing_is_left_ten_seconds_after_a_launcher_was_killed():
    by_ssh = Job("-np", 2, "-H", "a:1,b:1", "sh", "-c", "echo begins; sleep 600")
    by_ssh.wait_for("begins", 2)
    joined = Joined("sh", "-c", "echo begins; sleep 600")
    agent = joined.join(joined.port)
    joined.job.wait_for("begins")
    for job in by_ssh, joined.job:
        job.process.kill()
        job.process.wait()
    by_ssh.leaves_nothing(10)
    said = agent.communicate(timeout=LONG)[0]
    expect("the launcher has ended: nothing listens at its port" in said, said)


if __name__ == "__main__":
    main()
