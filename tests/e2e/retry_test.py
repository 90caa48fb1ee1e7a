#!/usr/bin/python3 -B
"""Jobs that restart after a failure: on spare hosts, and from the beginning."""

from harness import *
from random_faults import check_writers

from elastic_jobs import running_on

COUNT = "/tmp/e2e-count"
# The argument is the number of failures. Every rank prints its host and its generation.
FAILS = [
    "sh",
    "-c",
    "echo at $(hostname) in $HOROVOD_GENERATION; [ $RANK = 1 ] || exec sleep 3; "
    f"echo x >> {COUNT}; [ $(wc -l < {COUNT}) -gt $0 ] || exit 5",
]


@world()
def test_a_job_that_fails_is_started_again_as_often_as_allowed():
    job = Job(*"-np 2 -H a:1,b:1 --max-restarts 3 --kill-grace 60 --output-filename /tmp/e2e-out".split(), *FAILS, 2)
    job.ends_with(0)
    expect(
        job.said()
        == [
            "rank 1 on host b exited with code 5",
            "restart 1 of 3",
            "rank 1 on host b exited with code 5",
            "restart 2 of 3 in 1 s",
        ],
        job.describe(),
    )
    for generation in range(3):
        expect(f"[1]<stdout>:at b in {generation}\n" in job.out, job.describe())
    kept = pathlib.Path("/tmp/e2e-out/rank.1/stdout").read_text()
    expect(kept.count("at b in") == 3, f"the output of all three: {kept}")
    job.leaves_nothing()
    os.unlink(COUNT)
    job = Job("-np", 2, "-H", "a:1,b:1", "--max-restarts", 1, "--kill-grace", 60, *FAILS, 99)
    job.ends_with(5)
    expect(job.said()[-2:] == ["restart 1 of 1", "rank 1 on host b exited with code 5"], job.describe())


@world("a b c")
def test_a_host_that_fails_at_the_start_is_replaced_by_a_spare():
    faults.cut("b", "launcher")
    job = Job("-H", "a:1,b:1,c:1", "--spares", 1, "--start-timeout", 16, "hostname")
    job.ends_with(0)
    expect(job.said()[-1:] == ["host c, a spare, takes the place of host b"], job.describe())
    expect("host b" in job.said()[0] and len(job.said()) == 2, job.describe())
    expect(sorted(job.out.split()) == ["[0]<stdout>:a", "[1]<stdout>:c"], job.describe())


@world("a b c")
def test_a_host_that_dies_is_replaced_and_the_job_restarted():
    job = Job(
        *"-H a:1,b:1,c:1 --spares 1 --max-restarts 1 --lease 3".split(),
        "sh",
        "-c",
        "echo at $(hostname); [ $HOROVOD_GENERATION = 1 ] || sleep 100",
    )
    job.wait_for("at ", 2)
    expect("at c" not in job.out, "a spare was used")
    faults.crash("b")
    job.ends_with(0)
    expect(re.search("host b was lost", job.said()[0]), job.describe())
    expect(job.said()[1:] == ["host c, a spare, takes the place of host b", "restart 1 of 1"], job.describe())
    expect("[1]<stdout>:at c" in job.out, job.describe())


@world()
def test_a_lost_host_that_can_be_reached_is_used_again():
    job = Job(
        *"-np 2 -H a:1,b:1 --max-restarts 5".split(),
        "sh",
        "-c",
        "echo up; [ $HOROVOD_GENERATION = 1 ] || exec sleep 100",
    )
    job.wait_for("up", 2)
    (agent,) = agents("b")["agent"]
    os.kill(agent, signal.SIGKILL)
    job.ends_with(0)
    expect("host b was lost" in job.said()[0], job.describe())
    expect(job.said()[1:] == ["host b is used again", "restart 1 of 5"], job.describe())
    job.leaves_nothing()


@world("a b c")
def test_a_host_that_is_taken_away_by_sigterm_is_used_again_or_replaced():
    """The first process gets a signal, like in a deleted pod or at a machine's shutdown."""
    waits = ("sh", "-c", "echo up; [ $HOROVOD_GENERATION = 1 ] || exec sleep 100")
    for to_all in (False, True):
        hosts = ("-H", "a:1,b:1,c:1", "--spares", 1) if to_all else ("-H", "a:1,b:1")
        job = Job(*hosts, "--max-restarts", 5, *waits)
        job.wait_for("up", 2)
        found = agents("b")
        for pid in [*found["guardian"], *(found["agent"] + running_on("b", "sleep 100") if to_all else ())]:
            os.kill(pid, signal.SIGTERM)
        job.ends_with(0)
        after = "host c, a spare, takes the place of host b" if to_all else "host b is used again"
        expect(job.said()[1:] == [after, "restart 1 of 5"], job.describe())
        job.leaves_nothing()


@world()
def test_a_lost_host_that_stays_away_ends_the_job_after_the_start_timeout():
    job = Job(
        *"-np 2 -H a:1,b:1 --max-restarts 5 --lease 3 --start-timeout 5".split(), "sh", "-c", "echo up; exec sleep 100"
    )
    job.wait_for("up", 2)
    faults.crash("b")
    job.ends_with(1)
    said = job.said()
    expect(re.fullmatch(r"host b is used again in \d+ s, when its ranks have ended", said[1]), job.describe())
    expect(said[2] == "restart 1 of 5", job.describe())
    expect("host b" in said[3] and said[4] == "host b is tried again in 1 s", job.describe())
    expect(said[-1] == "no lost host could be used again within 5 s (--start-timeout)", job.describe())


@world()
def test_a_signal_ends_a_job_that_waits_for_a_lost_host():
    job = Job(
        "-np", 2, "-H", "a:1,b:1", "--max-restarts", 5, "--host-timeout", 3, "sh", "-c", "echo up; exec sleep 100"
    )
    job.wait_for("up", 2)
    faults.cut("b", "launcher")
    wait_until(lambda: "is used again in" in job.err, 90, job.describe)
    job.signal(signal.SIGTERM)
    job.ends_with(143)


@world()
def test_a_user_who_ends_a_job_is_obeyed():
    job = Job("-np", 2, "-H", "a:1,b:1", "--max-restarts", 5, "sh", "-c", "echo up; exec sleep 100")
    job.wait_for("up", 2)
    job.signal(signal.SIGTERM)
    job.ends_with(143)
    one_sentence(job, "SIGTERM")
    job.leaves_nothing()


def test_spares_that_leave_no_host():
    job = Job("-H", "a,b", "--spares", 2, "true")
    job.ends_with(2)
    one_sentence(job, "--spares 2 leaves none of the 2 hosts")
    job = Job("-np", 2, "-H", "a:1,b:1", "--spares", 1, "true")
    job.ends_with(2)
    expect("(--spares 1 keeps for later: b)" in job.err, job.describe())


@world()
def test_a_rank_whose_guardian_was_killed_writes_nothing_beside_its_successor():
    folder = scratch()
    program = [PYTHON, WORKERS / "chaos_rank.py", "plain", 20, folder, 3]
    job = Job("-np", 2, "-H", "a:1,b:1", "--max-restarts", 1, "--kill-grace", 10, *program)
    job.wait_for(">:saves", 1)
    os.kill(*agents("a")["guardian"], signal.SIGKILL)
    job.ends_with(0)
    job.leaves_nothing()
    expect("restart 1 of 1" in job.err, job.describe())
    expect(check_writers(folder, job.describe) == 2, job.describe())


if __name__ == "__main__":
    main()
