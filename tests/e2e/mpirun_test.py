#!/usr/bin/python3 -B
"""horovodrun --mpi: the mpirun in PATH, of Debian's Open MPI or MPICH, starts the ranks."""

import shutil

from harness import *

import network

RANK = (PYTHON, WORKERS / "foreign_rank.py")
LINE = ("--mpi", "-np", 4, "-H", "a:2,b:2")


def environment_of(folder, program, **more):
    """Returns variables with this folder first in PATH, and links the program there as mpirun."""
    if shutil.which(program) is None:
        raise Skip(f"there is no {program}: packaging/packages-test.txt names its package")
    write_mpirun(folder, f'exec {shutil.which(program)} "$@"')
    plain = clean_environment(**more)
    return {**plain, "PATH": f"{folder}:{plain['PATH']}"}


def write_mpirun(folder, words):
    path = pathlib.Path(folder) / "mpirun"
    path.write_text(f"#!/bin/sh\n{words}\n")
    path.chmod(0o755)


def four_ranks(job):
    job.ends_with(0)
    for rank in range(4):
        first = f"rank {rank} of 4, local {rank % 2} of 2, cross {rank // 2} of 2, sum 10 on {'ab'[rank // 2]}"
        expect(job.out.count(first) == 1, f"{first!r} is missing\n{job.describe()}")
    job.leaves_nothing()


@world("a b", "--no-decoys")
def test_open_mpi_on_two_hosts():
    with tempfile.TemporaryDirectory(prefix="e2e-") as folder:
        environment = environment_of(folder, "mpirun.openmpi", MINE="of-the-shell")
        four_ranks(Job(*LINE, *RANK, environment=environment))
        job = Job(
            *LINE,
            *"--fusion-threshold-mb 1 -x GIVEN=secret".split(),
            "sh",
            "-c",
            "echo has $MINE, $HOROVOD_FUSION_THRESHOLD and $GIVEN",
            environment=environment,
        )
        job.ends_with(0)
        expect(job.out.count("has of-the-shell, 1048576 and secret\n") == 4, job.describe())
        job = Job("--verbose", *LINE, "sh", "-c", "echo seed $PYTHONHASHSEED", environment=environment)
        job.ends_with(0)
        seeds = re.findall(r"seed (\d+)$", job.out, re.M)
        expect(len(seeds) == 4 and len(set(seeds)) == 1 and seeds[0] not in job.err, job.describe())
        job = Job("--mpi", "-np", 1, "-H", "b:1", "sh", "-c", "exit 7", environment=environment)
        job.ends_with(7)  # mpirun's exit code


@world()
def test_mpich_on_two_hosts():
    with tempfile.TemporaryDirectory(prefix="e2e-") as folder:
        environment = environment_of(folder, "mpiexec.hydra")
        four_ranks(Job(*LINE, f"--mpi-args=-iface {network.BRIDGE}", *RANK, environment=environment))


def test_programs_that_are_no_mpirun():
    with tempfile.TemporaryDirectory(prefix="e2e-") as folder:
        environment = {**clean_environment(), "PATH": folder}
        job = Job("--mpi", "-np", 1, "true", environment=environment)
        job.ends_with(2)
        one_sentence(job, "there is no mpirun in PATH", "openmpi-bin")
        write_mpirun(folder, "echo mpirun of nobody")
        job = Job("--mpi", "-np", 1, "true", environment=environment)
        job.ends_with(2)
        one_sentence(job, "prints mpirun of nobody; put that of Open MPI")
        job = Job("--mpi", "--store-fd", 3, "-np", 1, "true", environment=environment)
        job.ends_with(2)
        one_sentence(job, "leave out use_mpi")
        job = Job("--jsrun", "-np", 1, "true", environment=environment)
        job.ends_with(2)
        one_sentence(job, "LSB_JOBID is not set; submit this by bsub")


def test_the_line_is_shown():
    with tempfile.TemporaryDirectory(prefix="e2e-") as folder:
        write_mpirun(folder, "echo 'mpirun (Open MPI) 4.1.4'")
        environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOROVOD_JOB_SECRET": "5a" * 32, "SHOWN": "value"}
        job = Job(*LINE, "--dry-run", "python3", "a b", environment=environment)
        job.ends_with(0)
        expect(
            job.out.startswith(
                "mpirun --allow-run-as-root --tag-output -np 4 -H a:2,b:2 -bind-to none "
                "-map-by slot -mca pml ob1 -mca btl ^openib -x "
            ),
            job.describe(),
        )
        expect(job.out.endswith("-x SHOWN python3 'a b'\n"), job.describe())
        expect("SECRET" not in job.out and "value" not in job.out, job.describe())


if __name__ == "__main__":
    main()
