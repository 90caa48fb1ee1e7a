#!/usr/bin/python3 -B
"""Elastic training: no committed step is repeated, and the weights equal those of one process."""

import collections

import churn
from harness import *

from elastic_jobs import discovery, more_interpreters

TRAINING = WORKERS / "churn_training.py"
EXAMPLES = ROOT / "examples" / "elastic"
ENOUGH = 0.9  # minimum test accuracy


def wait_for_ranks(job, generation, ranks):
    """Waits for a later generation with this number of ranks, and returns its number. On a busy machine, new ranks that
    become ready more than a second apart join in separate generations."""
    line = re.compile(rf"generation (\d+): rank \d/{ranks} on ")

    def found():
        counts = collections.Counter(map(int, line.findall(job.out)))
        return [number for number, count in counts.items() if number > generation and count == ranks]

    return wait_until(found, 100, job.describe)[0]


@world()
def test_pytorch_loses_no_step_by_resize_remove_and_sigterm_to_an_agent():
    stop = scratch() / "stop"
    job = Job("-np", 4, "--min-np", 1, "-H", "a:2,b:2", PYTHON, TRAINING, "torch", stop)
    generation = wait_for_ranks(job, -1, 4)
    for words, ranks in [
        (("resize", 2), 2),
        (("resize", 3), 3),
        (("remove", 0), 2),
        (("resize", 4), 4),
        (("remove", "a"), 2),
        (("resize", 4), 4),
    ]:
        answer = ask(*words)
        expect(answer.returncode == 0, f"{answer}\n{job.describe()}")
        generation = wait_for_ranks(job, generation, ranks)
    os.kill(max(agents("b")["agent"]), signal.SIGTERM)
    wait_for_ranks(job, generation, 2)
    churn.check_training(*churn.end(job, stop, job.describe))
    expect(not any("lost" in line or "killed" in line for line in job.said()), job.describe())
    begins = [int(step) for step in re.findall(r"generation \d+: .* at (\d+)", job.out)]
    expect(begins == sorted(begins), f"steps were repeated\n{job.describe()}")


def lose_no_committed_step(python, phases, *options):
    folder = scratch()
    folder.chmod(0o755)
    job = Job(
        *"-np 4 --min-np 2 --blacklist-cooldown-range 1 2 -H a:2,b:2".split(),
        python,
        WORKERS / "elastic_phases.py",
        folder,
        *options,
        *phases,
    )
    job.ends_with(0, 100 + 100 * len(phases))
    job.leaves_nothing()
    begins = [
        tuple(map(int, numbers))
        for numbers in re.findall(
            r"\d+ begins (\d+) (\d+)/(\d+) at (\d+), newest commit (-?\d+), source (\d+)", job.out
        )
    ]
    failed = sorted(
        {(generation, step, newest, source) for generation, _, size, step, newest, source in begins if size == 2}
    )
    expect(len(failed) == len(phases), f"{len(failed)} failures\n{job.describe()}")
    repeated = sum(newest - step for _, step, newest, _ in failed)
    expect(repeated == 0, f"{repeated} committed steps are repeated: {failed}\n{job.describe()}")
    for phase, (_, _, _, source) in zip(phases, failed):
        expect(phase != "stepped" or source == 1, f"rank 1 has the newest commit, not {source}\n{job.describe()}")
    ends = re.findall(r"ends after (\d+) steps, (\d+) batches, with (\w+)", job.out)
    expect(len(ends) == 2 and ends[0] == ends[1], f"two equal ends expected\n{job.describe()}")
    steps, batches, checksum = ends[0]
    expect(int(batches) == 4 * int(steps), f"buffers: {batches} batches in {steps} steps\n{job.describe()}")
    expect(f"alone {checksum}" in job.out, f"one process has other weights\n{job.describe()}")


PHASES = ["before", "between", "stepped", "user", "idle"]


@world()
def test_a_failure_repeats_no_committed_step():
    lose_no_committed_step(PYTHON, ["stepped"])


@world()
def test_a_failure_repeats_no_committed_step_without_snapshots():
    lose_no_committed_step(PYTHON, ["between", "stepped"], "--no-snapshot")


@world()
def test_failures_in_all_phases_repeat_no_committed_step():
    for python in [PYTHON, *more_interpreters()]:
        lose_no_committed_step(python, PHASES)
        lose_no_committed_step(python, PHASES, "--no-snapshot")


def random_changes(program, check, seconds, pause, settled=45):
    """HVD_CHURN_SECONDS=1800 runs it for as long, and HVD_CHURN_SEED=N repeats the choices of a run."""
    seed = int(os.environ.get("HVD_CHURN_SEED", time.time_ns() % 100000))
    job = churn.Churn(seed, program, settled)
    try:
        job.wait_for_generation(-1)
        end = time.monotonic() + float(os.environ.get("HVD_CHURN_SECONDS", seconds))
        while time.monotonic() < end:
            job.step()
            time.sleep(job.random.uniform(0, 2 * pause))
        generations, (steps, weights) = job.members()[0] + 1, job.end()
        check(steps, weights)
    except Failure as failure:
        raise Failure(f"HVD_CHURN_SEED={seed}: {failure}") from failure
    print(f"{len(job.events)} events, {generations} generations, {steps} steps")


@world(churn.HOST_NAMES)
def test_random_changes_end_with_the_weights_of_one_process():
    random_changes([PYTHON, WORKERS / "churn_rank.py"], churn.check_numbers, 60, 2)


def random_changes_with(framework, python):
    # A rank that starts on a busy machine imports TensorFlow for half a minute.
    random_changes([python, TRAINING, framework], churn.check_training, 100, 10, 150)


@world(churn.HOST_NAMES)
def test_random_changes_with_pytorch_end_with_the_weights_of_one_process():
    random_changes_with("torch", PYTHON)


@world(churn.HOST_NAMES)
def test_random_changes_with_tensorflow_end_with_the_weights_of_one_process():
    random_changes_with("tensorflow", interpreters("HVD_TEST_TENSORFLOWS")[0])


@world(churn.HOST_NAMES)
def test_random_changes_with_keras_end_with_the_weights_of_one_process():
    random_changes_with("keras", interpreters("HVD_TEST_TENSORFLOWS")[0])


@world(churn.HOST_NAMES)
def test_random_changes_with_jax_end_with_the_weights_of_one_process():
    random_changes_with("jax", interpreters("HVD_TEST_JAX")[0])


def grows_from_one_rank(python, mode):
    """Returns ranks 0's and 1's numbers: rank 0 has compiled at size 1, the new rank at size 2."""
    folder = scratch()
    environment = clean_environment(TF_CPP_MIN_LOG_LEVEL="3", TMPDIR=str(folder))
    job = Job(
        *"-np 1 --min-np 1".split(),
        *discovery(folder, "localhost:1"),
        *"-x TF_CPP_MIN_LOG_LEVEL -x TMPDIR".split(),
        python,
        WORKERS / "elastic_growth.py",
        mode,
        environment=environment,
    )
    job.wait_for("0 begins 1", 1, 120)
    discovery(folder, "localhost:2")
    job.wait_for("begins 2", 2, 120)
    job.ends_with(0)
    job.leaves_nothing()
    return [found.split() for _, found in sorted(re.findall(r"(\d) ends with (.*)", job.out))]


def test_an_adasum_optimizer_made_for_one_rank_reduces_steps_of_two():
    first, second = grows_from_one_rank(PYTHON, "torch-adasum")
    expect(first == second, (first, second))


def test_a_compiled_adasum_optimizer_of_tensorflow_goes_on_with_two_ranks():
    first, second = grows_from_one_rank(interpreters("HVD_TEST_TENSORFLOWS")[0], "tensorflow-adasum")
    expect(first == second, (first, second))


def test_a_compiled_batch_normalization_goes_on_with_two_ranks():
    first, second = grows_from_one_rank(interpreters("HVD_TEST_TENSORFLOWS")[0], "tensorflow-norm")
    expect(first == second, (first, second))


def test_jax_traces_again_for_two_ranks():
    first, second = grows_from_one_rank(interpreters("HVD_TEST_JAX")[0], "jax")
    # The sum over both ranks' rows; the mean of the factors 1 and 2 as slope; half of the summed rows.
    expect(first == ["12.00000", *["1.50000"] * 4, "0.00000", "2.00000"], first)
    expect(second == ["24.00000", *["1.50000"] * 4, "4.00000", "6.00000"], second)


def trains(python, program, epochs):
    folder = scratch()
    # A killed process leaves TensorFlow's own files.
    environment = clean_environment(TF_CPP_MIN_LOG_LEVEL="3", TMPDIR=str(folder))
    job = Job(
        *"-np 2 --min-np 1".split(),
        *discovery(folder, "a:1", "b:1"),
        *"-x TF_CPP_MIN_LOG_LEVEL -x TMPDIR".split(),
        python,
        EXAMPLES / program,
        "--epochs",
        epochs,
        "--pause",
        0.1,
        environment=environment,
    )
    job.wait_for("of 2 begins", 2, 200)
    discovery(folder, "a:1", "b:1", "c:1")
    job.wait_for("of 3 begins", 3, 200)
    victims = [
        pid
        for pid in faults.processes("b")
        if program in faults.said_of(pid, "cmdline") and "agent" not in faults.said_of(pid, "comm")
    ]
    expect(victims, f"no rank on host b\n{job.describe()}")
    os.kill(max(victims), signal.SIGKILL)
    job.wait_for("of 2 begins", 4, 200)
    discovery(folder, "c:1")
    job.wait_for("of 1 begins", 1, 200)
    discovery(folder, "a:1", "c:1")
    job.wait_for("of 2 begins", 6, 200)
    job.ends_with(0, 400)
    job.leaves_nothing()
    ends = re.findall(r"of 2 ends: test accuracy ([\d.]+), weights (\w+)", job.out)
    expect(len(ends) == 2 and ends[0] == ends[1], f"two equal ends expected\n{job.describe()}")
    expect(float(ends[0][0]) >= ENOUGH, job.describe())


@world("a b c")
def test_pytorch_trains_through_a_new_host_a_killed_rank_and_a_removed_host():
    for python in [PYTHON, *more_interpreters()]:
        trains(python, "torch_digits.py", 40)


@world("a b c")
def test_ddp_trains_through_a_new_host_a_killed_rank_and_a_removed_host():
    for python in [PYTHON, *more_interpreters()]:
        trains(python, "torch_distributed_digits.py", 40)


@world("a b c")
def test_tensorflow_trains_through_a_new_host_a_killed_rank_and_a_removed_host():
    for python in interpreters("HVD_TEST_TENSORFLOWS"):
        trains(python, "tensorflow_digits.py", 40)


@world("a b c")
def test_keras_trains_through_a_new_host_a_killed_rank_and_a_removed_host():
    for python in interpreters("HVD_TEST_TENSORFLOWS"):
        trains(python, "keras_digits.py", 40)


@world("a b c")
def test_jax_trains_through_a_new_host_a_killed_rank_and_a_removed_host():
    for python in interpreters("HVD_TEST_JAX"):
        trains(python, "jax_digits.py", 40)


if __name__ == "__main__":
    main()
