#!/usr/bin/python3 -B
"""A host that loses its agent or its guardian during a start: nothing remains, and an error gives the cause."""

from harness import *
import faults_test as faulty
from newborns import Newborns


def held_back():
    """Returns a file; host a does not start before this file exists."""
    go = pathlib.Path("/tmp/e2e-go")
    faulty.bashrc(f"[ $(hostname) = b ] || until [ -e {go} ]; do sleep 0.05; done\n")
    return go


def struck_in_a_start(harm):
    """Injects the fault while one rank of b runs, and the other is forked but has not executed its program."""
    go = held_back()
    job = Job("-np", 4, "-H", "a:2,b:2", "--start-timeout", 60, *faulty.HIDING)
    agent = wait_until(lambda: agents("b")["agent"], 60, "an agent on b")[0]
    start = Newborns(agent)
    go.touch()
    start.hold()
    while start.execute() != faulty.HIDING:  # the agent also starts helper processes
        start.hold()
    start.hold()
    wait_until(
        lambda: [faults.said_of(pid, "comm") for pid in faulty.sleepers()] == ["sleep\n"] * 2,
        60,
        "a rank with its own child",
    )
    start.leave_parent()
    hit = harm(job)
    start.release()
    try:
        job.ends_with(1)
        expect(re.search(r"^horovodrun: host b(: start:| was lost:)", job.err, re.M), job.describe())
        job.leaves_nothing()
    except Failure as failure:
        raise Failure(f"{harm.__name__}{hit}: {failure}") from None


@world()
def test_a_guardian_killed_between_a_rank_and_its_program():
    struck_in_a_start(faulty.kill_guardian)


@world()
def test_an_agent_killed_between_a_rank_and_its_program():
    struck_in_a_start(faulty.kill_agent)


@world()
def test_a_host_that_is_lost_while_another_is_prepared_starts_nothing():
    go = held_back()
    job = Job("-np", 4, "-H", "a:2,b:2", "--start-timeout", 60, "--verbose", *faulty.HIDING)
    wait_until(lambda: "host b: ready" in job.err, 60, job.describe)
    faulty.kill_guardian(job)
    wait_until(
        lambda: not [pid for pid in faults.processes("b") if "horovod-agent" in faults.said_of(pid, "cmdline")],
        20,
        "its end",
    )
    go.touch()
    job.ends_with(2)
    expect("host b: prepare: the watchdog above the agent was killed" in job.err, job.describe())
    expect("reaches none" not in job.err and "confirmed" not in job.err, job.describe())
    expect(job.out == "", job.describe())
    job.leaves_nothing()


if __name__ == "__main__":
    main()
