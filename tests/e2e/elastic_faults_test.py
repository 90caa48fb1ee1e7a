#!/usr/bin/python3 -B
"""Faults of all kinds in elastic jobs: those that are left train on."""
from harness import *

from elastic_test import RANK, discovery, running_on, sums, wait_for_generation


def four(steps, *program):
    """One rank on each of four hosts."""
    return Job("-np", 4, "--min-np", 1, "-H", "a:1,b:1,c:1,d:1", PYTHON, RANK, steps, *program)


def kill_ranks(*names):
    for name in names:
        for pid in running_on(name, RANK.name):
            os.kill(pid, signal.SIGKILL)


def goes_on(job, generation, ranks):
    """The ranks go on from their commits, and all end with the same sum."""
    found = wait_for_generation(job, generation, ranks)
    job.ends_with(0)
    job.leaves_nothing()
    expect(all(step > 0 for _, _, _, step in found), job.describe())
    sums(job, ranks)


@world()
def test_a_guardian_that_is_killed_takes_its_host_out():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 60)
    job.wait_for(r"\d begins 0", 4)
    time.sleep(1)
    for pid in agents("b")["guardian"]:
        os.kill(pid, signal.SIGKILL)
    goes_on(job, 1, 2)
    expect(any("host b" in line for line in job.said()), job.describe())


@world()
def test_a_host_whose_processes_are_all_stopped_is_lost():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, RANK, 100)
    job.wait_for(r"\d begins 0", 4)
    time.sleep(1)
    faults.freeze("b")
    try:
        found = wait_for_generation(job, 1, 2)
        expect(sorted(process for process, *_ in found) == [0, 1], job.describe())
        job.ends_with(0)
    finally:
        faults.thaw("b")
    sums(job, 2)
    expect(any("host b was lost" in line for line in job.said()), job.describe())
    job.leaves_nothing(30)


@world("a b c d")
def test_two_ranks_that_fail_in_the_same_step():
    job = four(60)
    job.wait_for(r"\d begins 0", 4)
    time.sleep(1)
    kill_ranks("b", "d")
    job.wait_for(r"[02] begins [12] ./2 at [1-9]", 2)
    job.ends_with(0)
    job.leaves_nothing()
    sums(job, 2)


@world("a b c")
def test_a_rank_that_fails_in_a_reset_callback_is_left_out():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, RANK, 60, "--fail-in-reset", "0@1")
    job.wait_for(r"\d begins 0", 3)
    time.sleep(1)
    kill_ranks("b")
    job.wait_for(r"2 begins [23] 0/1 at [1-9]", 1)
    job.ends_with(0)
    job.leaves_nothing()
    expect(any("rank 0 on host a exited with code 1" in line for line in job.said()), job.describe())


@world("a b c")
def test_a_rank_that_fails_while_it_gives_its_state_is_left_out():
    job = Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", PYTHON, RANK, 60, "--lose", "0@1")
    job.wait_for(r"\d begins 0", 3)
    time.sleep(1)
    kill_ranks("b")
    job.wait_for(r"2 begins [23] 0/1 at [1-9]", 1)
    job.ends_with(0)
    job.leaves_nothing()
    expect(any("rank 0 on host a was killed by signal 9" in line for line in job.said()), job.describe())


@world()
def test_a_script_that_replaces_all_hosts_ends_the_job_with_a_sentence():
    folder = scratch()
    job = Job("-np", 1, *discovery(folder, "a:1"), PYTHON, RANK, 800)
    wait_for_generation(job, 0, 1)
    discovery(folder, "b:1")
    job.ends_with(1)
    job.leaves_nothing()
    expect(any("no rank is left that has the state of the training" in line for line in job.said()),
           job.describe())


if __name__ == "__main__":
    main()
