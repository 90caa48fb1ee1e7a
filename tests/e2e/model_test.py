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
def test_weights_are_those_of_one_process_here_and_on_another_host():
    identical(8, "-H", "localhost:4,b:4")


@world("a b c")
def test_weights_are_those_of_one_process_on_uneven_hosts():
    identical(4, "-H", "a:1,b:2,c:1")


@world()
def test_eight_ranks_on_two_hosts_reach_an_accuracy_of_95_percent():
    before = Inventory()
    for python in PYTHONS:
        done = subprocess.run([python, ROOT / "tests/e2e/training_digits.py", LAUNCHER, "-np", "8",
                               "-H", "a:4,b:4"], stdin=subprocess.DEVNULL, cwd=ROOT,
                              env=clean_environment(), check=False)
        expect(done.returncode == 0, f"exit code {done.returncode} with {python}")
    before.wait_for_ends()


if __name__ == "__main__":
    main()
