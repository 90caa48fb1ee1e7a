#!/usr/bin/python3 -B
"""Other people's launchers on one machine: Open MPI's mpirun and MPICH's hydra start the ranks. For
several hosts see bootstrap_test.py."""
import shutil

from harness import *  # noqa: F403

RANK = WORKERS / "elsewhere_rank.py"
OPENMPI = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")


def run(program, *arguments):
    path = shutil.which(program)
    if path is None:
        raise Skip(f"there is no {program}: packaging/packages-test.txt names its package")
    return Job(*arguments, program=path)


def check(job, ranks):
    job.ends_with(0)
    total = ranks * (ranks + 1) // 2
    for rank in range(ranks):
        expect(re.search(rf"rank {rank} of {ranks}, .* sum {total} ", job.out), job.describe())


def test_open_mpi_on_this_machine():
    check(run("mpirun.openmpi", *OPENMPI, "-np", 3, PYTHON, RANK), 3)


def test_a_program_that_uses_mpi4py_too():
    if subprocess.run([PYTHON, "-c", "import mpi4py"], stderr=subprocess.DEVNULL,
                      check=False).returncode:
        raise Skip("there is no mpi4py: packaging/packages-test.txt names its package")
    for first in ("mpi4py", "horovod"):
        check(run("mpirun.openmpi", *OPENMPI, "-np", 3, PYTHON, RANK, "mpi", first), 3)


def test_hydra_on_this_machine():
    check(run("mpiexec.hydra", "-np", 3, PYTHON, RANK), 3)


if __name__ == "__main__":
    main()
