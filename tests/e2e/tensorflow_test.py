#!/usr/bin/python3 -B
"""Typical scripts of users of TensorFlow and Keras, on one host and on two."""

from harness import *

# Each TensorFlow has its own environment, the newest first.
VARIABLE = "HVD_TEST_TENSORFLOWS"
EXAMPLES = ROOT / "examples"
TWO_HOSTS = ("-np", 2, "-H", "a:1,b:1")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}


def start(where, python, program, *arguments):
    return Job(*where, python, program, *arguments, environment=clean_environment(**QUIET))


def trained(job, accuracy):
    """Checks that both ranks reached the accuracy and have the same weights."""
    job.ends_with(0, 300)
    found = re.findall(r"rank (\d) of 2: test accuracy ([0-9.]+), weights ([0-9.]+)", job.out)
    expect(sorted(rank for rank, _, _ in found) == ["0", "1"], job.describe())
    expect(all(float(reached) >= accuracy for _, reached, _ in found), job.describe())
    expect(len({weights for _, _, weights in found}) == 1, job.describe())


def keras_digits(where, python):
    folder = scratch(BUILD)  # all hosts have this folder
    logs = ["--logs", folder / "logs"] if has(python, "tensorboard") else []
    job = start(where, python, EXAMPLES / "keras_digits.py", "--folder", folder, "--epochs", 6, *logs)
    trained(job, 0.93)
    expect(job.out.count("raised to 1") == 1, job.describe())
    expect((folder / "checkpoint-6.keras").exists(), "rank 0 writes a checkpoint per epoch")
    expect(not logs or list((folder / "logs").rglob("events.*")), "rank 0 writes logs")


def tensorflow_digits(where, python):
    folder = scratch(BUILD)  # all hosts have this folder
    job = start(where, python, EXAMPLES / "tensorflow_digits.py", "--checkpoint", folder / "model")
    trained(job, 0.9)
    expect("Step #0" in job.out, job.describe())
    expect((folder / "model-1.index").exists(), "rank 0 writes a checkpoint")


def has(python, module):
    return run_to_end([python, "-c", f"import {module}"]).returncode == 0


def test_hello_with_a_launcher_and_without():
    for python in interpreters(VARIABLE):
        job = start(("-np", 2), python, WORKERS / "tensorflow_hello.py")
        job.ends_with(0, 200)
        for rank in range(2):
            expect(f"Hello, rank = {rank}, local_rank = {rank}, size = 2, local_size = 2" in job.out, job.describe())
        # The build includes MPI if its development files are installed; this job does not use MPI.
        said = r"rocm False cuda False mpi False (True|False) nccl 0 threads False"
        expect(len(re.findall(said, job.out)) == 2, job.describe())
    done = run_to_end([interpreters(VARIABLE)[0], WORKERS / "tensorflow_hello.py"], env=clean_environment(**QUIET))
    expect("Hello, rank = 0, local_rank = 0, size = 1, local_size = 1" in done.stdout, done)


def test_scripts_train_on_one_host():
    python = interpreters(VARIABLE)[0]
    keras_digits(("-np", 2), python)
    tensorflow_digits(("-np", 2), python)


def test_a_script_for_tensorflow_1_trains():
    python, folder = interpreters(VARIABLE)[0], scratch(BUILD)
    job = start(("-np", 2), python, WORKERS / "tensorflow1_train.py", folder)
    job.ends_with(0, 200)
    found = re.findall(r"rank (\d) of 2: loss (\S+), weights (\S+) (\S+) (\S+)", job.out)
    expect(sorted(line[0] for line in found) == ["0", "1"], job.describe())
    # The mean loss and the weights are those of both ranks: alone, c would be 0.5 or 1.5.
    for line in found:
        reached = [float(number) for number in line[1:]]
        expect(all(abs(one - other) < 0.2 for one, other in zip(reached, [0.25, 2, -3, 1])), job.describe())
    expect((folder / "model.ckpt-100.index").exists(), "rank 0 writes a checkpoint")


@world()
def test_a_keras_script_trains_on_two_hosts():
    for python in interpreters(VARIABLE):
        keras_digits(TWO_HOSTS, python)


@world()
def test_a_loop_with_a_tape_trains_on_two_hosts():
    for python in interpreters(VARIABLE):
        tensorflow_digits(TWO_HOSTS, python)


if __name__ == "__main__":
    main()
