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


@world()
def test_lines_of_mpirun_as_people_have_them():
    """With `python` and `mpirun` on the path, and what is of this tree alone in variables."""
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None:
        raise Skip("there is no mpirun.openmpi: packaging/packages-test.txt names its package")
    folder = scratch(BUILD)  # all hosts have it
    for name, target in (("python", PYTHON), ("mpirun", mpirun)):
        (folder / name).symlink_to(target)
    for name in ("train_model.py", "main.py"):
        shutil.copy(RANK, folder / name)
    hostfile = folder / "hostfile"
    hostfile.write_text("a slots=2\nb slots=2\n")
    tree = clean_environment(
        OMPI_MCA_mca_base_env_list="PATH;PYTHONPATH", OMPI_MCA_rmaps_base_oversubscribe="1",
        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    tree["PATH"] = f"{folder}:{tree['PATH']}"
    for ranks, line in (
            (4, "mpirun -np 4 python train_model.py"),
            (2, "mpirun --allow-run-as-root -np 2 --hostfile /generated/hostfile python main.py"),
            (4, "mpirun --allow-run-as-root --hostfile /generated/hostfile -bind-to none -map-by slot "
                "-mca pml ob1 -mca btl ^openib python main.py")):
        line = line.replace("/generated/hostfile", str(hostfile))
        job = Job("-c", line, program="/bin/sh", cwd=folder, environment=tree)
        check(job, ranks)
        job.leaves_nothing()


if __name__ == "__main__":
    main()
