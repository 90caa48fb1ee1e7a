#!/usr/bin/python3 -B
"""Attacks on the links of an elastic job while its generation changes: the link of a host that joins, and links between
ranks. One secret serves all generations; bytes of an earlier generation have no effect in a later one."""

import pathlib
import secrets
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from elastic_jobs import RANK, begun, sums, wait_for_generation
from harness import *

from join_test import BY_AGENT, BY_LAUNCHER, Joining
from ranks_test import HELLO, HELLO_SIZE, PORTS, PROOF_SIZE, everything, path

STEPS = 300
LENGTH = (STEPS, "--slow", 0.05)


def resize(job, ranks):
    done = ask("resize", job.process.pid, ranks)
    expect(done.returncode == 0, f"{done}\n{job.describe()}")


def is_right(job, ranks):
    """Expects that the job lost and repeated no step: each step adds the size of its generation."""
    job.ends_with(0)
    found = sorted(
        {(generation, size, step) for generation in range(20) for _, _, size, step in begun(job, generation)}
    )
    ends = [step for _, _, step in found[1:]] + [STEPS]
    expect(sums(job, ranks) == sum(size * (end - step) for (_, size, step), end in zip(found, ends)), job.describe())
    job.leaves_nothing()


def altered(way):
    way.flip_a_bit()


def replayed(way):
    """Replays all bytes of the link so far, which include the handshakes of an earlier generation's ranks."""
    way.alter(lambda piece: bytes(way.recorded) + piece)


def injected(way):
    way.alter(lambda piece: secrets.token_bytes(200) + piece)


@world()
def test_no_byte_of_an_attacker_on_the_link_of_a_host_that_joins_changes_a_generation():
    for name, words in ("up", BY_LAUNCHER), ("down", BY_AGENT):
        joined = Joining(PYTHON, RANK, *LENGTH, flags=["--min-np", 1], hosts=("-np", 4))
        job, relay = joined.job, joined.relay
        try:
            # If an option is given twice, the last value counts.
            agent = joined.join("--slots", "4")
            wait_for_generation(job, 0, 4)
            for number, attack in enumerate((altered, replayed, injected), 1):
                # The attack hits the messages of a generation change: one rank leaves.
                attack(getattr(relay, name))
                resize(job, 4 - number)
                wait_for_generation(job, number, 4 - number)
                wait_until(lambda: relay.connections == number + 1, 60, job.describe)
            is_right(job, 1)
            said = agent.communicate(timeout=LONG)[0]
            expect(re.search(words, said if name == "down" else job.err), f"{name}: {said}\n{job.describe()}")
        finally:
            joined.end()


def handshakes(links):
    """Returns the hello and the proof of each link of ranks."""
    return [
        (bytes(link.up[:HELLO_SIZE]), bytes(link.up[HELLO_SIZE : HELLO_SIZE + PROOF_SIZE]), link)
        for link in links
        if link.up.startswith(HELLO) and link.down.startswith(HELLO) and len(link.up) >= HELLO_SIZE + PROOF_SIZE
    ]


@world("a b", "--no-decoys")
def test_no_recorded_handshake_of_an_earlier_generation_makes_a_peer():
    relay = path()
    job = Job("-np", 2, "--min-np", 1, "-H", "a:1,b:1", "--port-range", PORTS, "--no-pmix", PYTHON, RANK, *LENGTH)
    wait_for_generation(job, 0, 2)
    earlier = handshakes(relay.links)
    expect(earlier, "the relay saw no link of ranks")
    count = relay.connections
    resize(job, 1)
    wait_for_generation(job, 1, 1)
    for direction in relay.up, relay.down:
        direction.flip_a_bit(20, holds=HELLO)
    resize(job, 2)
    wait_for_generation(job, 2, 2)
    expect(relay.up.attacked or relay.down.attacked, "the relay saw no hello of the new generation")
    now = handshakes(relay.links[count:])
    expect(now, "the relay saw no link of the new generation")
    for _, _, link in now:
        for hello, proof, _ in earlier:
            said = everything(link, (hello, proof))
            expect(len(said) <= HELLO_SIZE + PROOF_SIZE, f"a rank took the attacker for a peer: {said}")
    is_right(job, 2)


@world("a b", "--no-decoys")
def test_an_altered_byte_of_an_encrypted_link_costs_a_generation_and_no_sum():
    relay = path()
    job = Job(
        *"-np 2 --min-np 1 -H a:1,b:1".split(),
        "--port-range",
        PORTS,
        *"--no-pmix --encrypt --link-timeout 5".split(),
        PYTHON,
        RANK,
        *LENGTH,
    )
    wait_for_generation(job, 0, 2)
    for number, attack in enumerate((altered, replayed, injected), 1):
        attack(relay.up if number % 2 else relay.down)
        wait_for_generation(job, number, 2)
    job.ends_with(0)
    expect(len({end for _, end in re.findall(r"(\d+) ends with (\d+) in", job.out)}) == 1, job.describe())
    expect("AssertionError" not in job.err and "killed by signal" not in job.err, job.describe())
    job.leaves_nothing()


if __name__ == "__main__":
    main()
