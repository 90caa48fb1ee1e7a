#!/usr/bin/python3 -B
"""Trainings on two hosts equal one process (tests/equivalence): with 1 + 1, 2 + 2, and 2 + 1 ranks.

docs/correctness.md shows such commands.
"""

from harness import *

PYTHONS = os.environ.get("HVD_TEST_PYTHONS", PYTHON).split(":")
ONE_EACH, TWO_EACH = ("-np", 2, "-H", "a:1,b:1"), ("-np", 4, "-H", "a:2,b:2")
UNEVEN = ("-np", 3, "-H", "a:2,b:1")


def train(python, cases, where, *options, **environment):
    job = Job(
        *where, python, f"tests/equivalence/{cases}_cases.py", *options, environment=clean_environment(**environment)
    )
    job.ends_with(0, 400)
    job.leaves_nothing()
    expect(re.search(r"\b(\d+) of \1 cases equal one process", job.out), job.describe())
    print(job.out.splitlines()[-1])


def interpreter(variable):
    return interpreters(variable)[0]


@world()
def test_pytorch_cases_of_the_quick_tier():
    train(PYTHON, "torch", ONE_EACH, "--quick", "--only", "^(plain|clip|unfr|closure|accum|grad)")


@world()
def test_pytorch_and_numpy_on_uneven_hosts():
    train(PYTHON, "torch", UNEVEN, "--quick")
    train(PYTHON, "numpy", UNEVEN)


@world()
def test_all_cases_of_pytorch_on_uneven_hosts():
    for python in sorted({PYTHON, PYTHONS[-1]}):
        train(python, "torch", UNEVEN)


@world()
def test_pytorch_with_one_rank_on_each_host():
    train(PYTHONS[-1], "torch", ONE_EACH)


@world()
def test_pytorch_with_two_ranks_on_each_host():
    train(PYTHONS[-1], "torch", TWO_EACH)


@world()
def test_debian_s_pytorch_with_one_and_with_two_ranks_on_each_host():
    train(PYTHON, "torch", ONE_EACH)
    train(PYTHON, "torch", TWO_EACH)


@world()
def test_numpy_with_two_ranks_on_each_host():
    train(PYTHON, "numpy", TWO_EACH)


@world()
def test_numpy_with_one_rank_on_each_host():
    train(PYTHON, "numpy", ONE_EACH)


@world()
def test_tensorflow_with_one_rank_on_each_host():
    train(interpreter("HVD_TEST_TENSORFLOWS"), "tensorflow", ONE_EACH)


@world()
def test_tensorflow_with_two_ranks_on_each_host():
    for python in interpreters("HVD_TEST_TENSORFLOWS")[:2]:
        train(python, "tensorflow", TWO_EACH)


@world()
def test_older_tensorflow_with_two_ranks_on_each_host():
    pythons = interpreters("HVD_TEST_TENSORFLOWS")[2:3]
    if not pythons:
        raise Skip("there are at most two versions of TensorFlow")
    train(pythons[0], "tensorflow", TWO_EACH)


@world()
def test_older_tensorflow_with_one_rank_on_each_host():
    pythons = interpreters("HVD_TEST_TENSORFLOWS")[1:3]
    if not pythons:
        raise Skip("there is one version of TensorFlow")
    for python in pythons:
        train(python, "tensorflow", ONE_EACH)


@world()
def test_tensorflow_on_uneven_hosts():
    interpreter("HVD_TEST_TENSORFLOWS")
    pythons = interpreters("HVD_TEST_TENSORFLOWS")[:3]
    for python in sorted({pythons[0], pythons[-1]}):
        train(python, "tensorflow", UNEVEN)


def newest_and_oldest_jax():
    return [interpreter("HVD_TEST_JAX"), *os.environ.get("HVD_TEST_OLD_JAX", "").split()]


@world()
def test_jax_with_two_ranks_on_each_host():
    for python in newest_and_oldest_jax():
        train(python, "jax", TWO_EACH)


@world()
def test_jax_and_its_keras_with_one_rank_on_each_host():
    for python in newest_and_oldest_jax():
        train(python, "jax", ONE_EACH)
    train(interpreter("HVD_TEST_JAX"), "keras", ONE_EACH, KERAS_BACKEND="jax")


@world()
def test_jax_on_uneven_hosts():
    for python in newest_and_oldest_jax():
        train(python, "jax", UNEVEN)


@world()
def test_keras_of_jax_with_two_ranks_on_each_host():
    train(interpreter("HVD_TEST_JAX"), "keras", TWO_EACH, KERAS_BACKEND="jax")


@world()
def test_keras_of_pytorch_with_one_rank_on_each_host():
    if PYTHONS[-1] == PYTHON:
        raise Skip("Debian has no Keras 3")
    train(PYTHONS[-1], "keras", ONE_EACH, KERAS_BACKEND="torch")


@world()
def test_keras_of_pytorch_with_two_ranks_on_each_host():
    if PYTHONS[-1] == PYTHON:
        raise Skip("Debian has no Keras 3")
    train(PYTHONS[-1], "keras", TWO_EACH, KERAS_BACKEND="torch")


@world()
def test_mxnet_with_two_ranks_on_each_host():
    train(interpreter("HVD_TEST_MXNET"), "mxnet", TWO_EACH)


@world()
def test_mxnet_on_uneven_hosts():
    train(interpreter("HVD_TEST_MXNET"), "mxnet", UNEVEN)


@world()
def test_mxnet_with_one_rank_on_each_host():
    train(interpreter("HVD_TEST_MXNET"), "mxnet", ONE_EACH)


if __name__ == "__main__":
    main()
