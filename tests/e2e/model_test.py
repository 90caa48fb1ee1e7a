#!/usr/bin/python3 -B
"""A real model trains on hosts: its accuracy is good, and its weights equal those of one process."""

from harness import *

PYTHONS = os.environ.get("HVD_TEST_PYTHONS", PYTHON).split(":")


def train(python, size, *where, program="tests/e2e/training_weights.py", seconds=170):
    job = Job("-np", size, *where, python, program)
    job.ends_with(0, seconds)
    job.leaves_nothing()
    print(job.out.splitlines()[-1])
    return job


def identical(size, *where):
    for python in PYTHONS:
        job = train(python, size, *where)
        expect(re.search(r"weights identical", job.out), job.describe())


@world()
def test_weights_are_those_of_one_process_on_one_host():
    identical(4, "-H", "a:4")


@world()
def test_weights_are_those_of_one_process_on_two_hosts():
    identical(8, "-H", "a:4,b:4")


@world()
def test_changes_of_gradients_between_backward_and_step_on_two_hosts():
    # Between hosts, gradients of 64 KiB are reduced during backward; on one host, those of 4 MiB.
    job = Job(
        *"-np 2 -H a:1,b:1".split(),
        PYTHONS[-1],
        "tests/python/gradient_writes_test.py",
        *(
            f"GradientWritesTest.test_{name}"
            for name in (
                "clipping_is_that_of_one_process",
                "adasum_and_a_grad_scaler_agree_on_the_step",
                "other_writes_are_refused_on_every_rank",
            )
        ),
    )
    job.ends_with(0)
    job.leaves_nothing()
    expect(re.search(r"test_clipping_is_that_of_one_process .*ok", job.err), job.describe())


@world()
def test_weights_are_those_of_one_process_here_and_on_another_host():
    identical(8, "-H", "localhost:4,b:4")


@world("a b c")
def test_weights_are_those_of_one_process_on_uneven_hosts():
    identical(4, "-H", "a:1,b:2,c:1")


@world()
def test_eight_ranks_on_two_hosts_reach_an_accuracy_of_95_percent():
    before = Inventory()
    done = subprocess.run(
        [PYTHONS[-1], ROOT / "tests/e2e/training_digits.py", LAUNCHER, "-np", "8", "-H", "a:4,b:4"],
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env=clean_environment(),
        check=False,
    )
    expect(done.returncode == 0, f"exit code {done.returncode} with {PYTHONS[-1]}")
    before.wait_for_ends()


if __name__ == "__main__":
    main()
