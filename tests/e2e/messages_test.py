#!/usr/bin/python3 -B
"""Messages between two ranks on two hosts: values, pipelines, and the loss of a rank while others wait for it."""

from harness import *

TESTS = ROOT / "tests" / "python"


@world()
def test_messages_cross_hosts():
    job = Job("-np", 3, "-H", "a:1,b:2", "-x", "PYTHONPATH", PYTHON, TESTS / "messages_test.py")
    job.ends_with(0)
    expect(job.err.count("OK") == 3, job.describe())


@world()
def test_a_pipeline_trains_over_two_hosts():
    job = Job("-np", 4, "-H", "a:2,b:2", "-x", "PYTHONPATH", PYTHON, TESTS / "pipeline_test.py")
    job.ends_with(0)
    expect(job.err.count("OK") == 4, job.describe())


@world()
def test_a_rank_for_which_others_wait_is_killed():
    job = Job("-np", 3, "-H", "a:2,b:1", PYTHON, WORKERS / "receiving_rank.py")
    job.ends_with(137, PROMPT)
    job.leaves_nothing()
    for rank in (0, 1):
        expect(f"rank {rank} stopped waiting: " in job.out, job.describe())
    lines = [line for line in job.out.splitlines() if "stopped waiting: " in line]
    expect(all(re.search(r"\brank 2 on host b\b", line) for line in lines), job.describe())


if __name__ == "__main__":
    main()
