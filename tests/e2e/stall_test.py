#!/usr/bin/python3 -B
"""The stall warning names the rank that delays the others, with its host, pid and current activity."""

import json

from harness import *

GO = "/tmp/e2e-stall-go"
REPORT = "/tmp/e2e-stall.json"


def stalled(then, shutdown=0, warning=3, rank=3):
    """Starts a job in which one rank on host b is late: rank 3, the last, or rank 2, the parent of rank 3."""
    for name in (GO, REPORT):
        pathlib.Path(name).unlink(missing_ok=True)
    job = Job(
        *"-np 4 -H a:2,b:2".split(),
        "--stall-check-warning-time-seconds",
        warning,
        "--stall-check-shutdown-time-seconds",
        shutdown,
        "--stall-report",
        REPORT,
        PYTHON,
        WORKERS / "stalling_rank.py",
        "--rank",
        rank,
        "--then",
        then,
        "--go",
        GO,
    )
    job.wait_for("ready", 4, 60)
    return job


def warned(job, pattern, seconds=30):
    wait_until(lambda: re.search(pattern, job.err), seconds, lambda: f"{pattern!r} on stderr\n{job.describe()}")


def reports():
    return [json.loads(line) for line in pathlib.Path(REPORT).read_text().splitlines()]


@world()
def test_a_rank_that_sleeps_is_shown_where_it_sleeps():
    job = stalled("nap")
    warned(job, r"in nap_before_the_step")
    for pattern in (
        r"Missing ranks:",
        r"\b3: \[allreduce\.step\.1\]",
        r"rank 3 on host b, pid \d+: last submitted allreduce 'allreduce\.step\.0'",
        r'stalling_rank\.py", line \d+ in nap_before_the_step',
    ):
        expect(re.search(pattern, job.err), f"{pattern!r} is missing\n{job.describe()}")
    for pattern in (
        r"ranks 0-2 wait in allreduce 'allreduce\.step\.1', called at stalling_rank\.py:\d+ in ",
        r"The last operation of all ranks was allreduce 'allreduce\.step\.0'\.",
    ):
        expect(re.search(pattern, job.err), f"{pattern!r} is missing\n{job.describe()}")
    expect(not re.search(r"\b[012]: \[", job.err), f"a rank is blamed\n{job.describe()}")
    report = reports()[0]
    expect(report["tensors"][0]["missing_ranks"] == [3], report)
    expect(report["ranks"][0]["host"] == "b", report)
    expect(report["ranks"][0]["last_submitted"]["name"] == "allreduce.step.0", report)
    expect("nap_before_the_step" in report["ranks"][0]["stack"], report)
    pathlib.Path(GO).touch()
    job.ends_with(0)
    expect(len(re.findall(r"done", job.out)) == 4, job.describe())


@world()
def test_a_rank_that_never_comes_ends_the_job_after_the_shutdown_time():
    job = stalled("nap", shutdown=8)
    job.ends_with(1)
    for pattern in (
        r"\b3!: \[allreduce\.step\.1\]",
        r"Will shutdown\.",
        r"allreduce: .*rank 3 on host b, pid \d+, which did not submit it",
    ):
        expect(re.search(pattern, job.err), f"{pattern!r} is missing\n{job.describe()}")
    expect(reports()[-1]["shutdown"], reports())
    job.leaves_nothing()


@world()
def test_a_stopped_rank_is_called_mute():
    job = stalled("stop", shutdown=12)
    warned(job, r"rank 3 on host b, pid \d+: does not answer")
    job.ends_with(1)
    expect(re.search(r"Will shutdown\.", job.err), job.describe())
    job.leaves_nothing()


@world()
def test_a_stopped_rank_is_named_without_the_healthy_one_beside_it():
    job = stalled("stop", rank=2)
    warned(
        job,
        r"rank 2 on host b, pid \d+: does not answer.*; "
        "the answers of these ranks come through it: 3",
    )
    expect(re.search(r"Missing ranks:\n\S*<stderr>:2: \[", job.err), job.describe())
    expect("rank 3 on host b" not in job.err, job.describe())
    expect(reports()[0]["tensors"][0]["missing_ranks"] == [2], reports())
    job.signal(signal.SIGINT)
    job.wait()


@world()
def test_without_the_check_nothing_is_said():
    job = Job(
        *"-np 2 -H a:1,b:1 --no-stall-check --stall-check-warning-time-seconds 0.2".split(),
        PYTHON,
        WORKERS / "stalling_rank.py",
        *"--rank 1 --then nap".split(),
        "--go",
        GO,
    )
    job.wait_for("ready", 2, 60)
    time.sleep(1)  # the test must wait: the absence of a warning gives no event
    pathlib.Path(GO).touch()
    job.ends_with(0)
    expect("Missing ranks" not in job.err, job.describe())


def test_a_report_that_cannot_be_written_is_known_at_the_start():
    """The error is one message, also when a stall follows."""
    path = scratch() / "none" / "stalls"
    rank = """
import time, numpy
import horovod.numpy as hvd
hvd.init()
hvd.rank() and time.sleep(1.5)
hvd.allreduce(numpy.ones(1), name="step")
"""
    job = Job("-np", 2, "--stall-check-warning-time-seconds", 0.5, "--stall-report", path, PYTHON, "-c", rank)
    job.ends_with(0)
    before, _, after = job.err.partition("Missing ranks")
    sentence = f"cannot write to {path} (--stall-report): No such file or directory; the job goes on without it"
    expect(before.count(sentence) == 1 and after and "(--stall-report)" not in after, job.describe())


if __name__ == "__main__":
    main()
