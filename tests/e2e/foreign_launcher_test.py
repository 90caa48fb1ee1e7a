#!/usr/bin/python3 -B
"""Foreign launchers on one machine: Open MPI's mpirun and MPICH's hydra start the ranks. bootstrap_test.py tests
several hosts."""

import shutil

from harness import *

from torchrun_test import SAY

RANK = WORKERS / "foreign_rank.py"
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


def needs_mpi4py():
    if subprocess.run([PYTHON, "-c", "import mpi4py"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise Skip("there is no mpi4py: packaging/packages-test.txt names its package")


def test_a_program_that_uses_mpi4py_too():
    needs_mpi4py()
    for first in ("mpi4py", "horovod"):
        check(run("mpirun.openmpi", *OPENMPI, "-np", 3, PYTHON, RANK, "mpi", first), 3)


# Communicators of mpi4py: in reverse order, of two ranks in three, of one rank.
COMMUNICATORS = """
import warnings
from mpi4py import MPI
import horovod.numpy as hvd
world = MPI.COMM_WORLD
warnings.simplefilter("error")
hvd.init(comm=world.Split(0, -world.rank))
assert (hvd.rank(), hvd.size()) == (3 - world.rank, 4)
hvd.shutdown()
job = world.Split(world.rank > 0, world.rank)
hvd.init(comm=job)
assert (hvd.rank(), hvd.size()) == (job.rank, job.size)
if world.rank > 0:
    pair = job.Split(job.rank > 0, job.rank)  # the ranks 2 and 3 of MPI.COMM_WORLD
    found = hvd.add_process_set(pair if job.rank else [1, 2])
    assert found.ranks == [1, 2], found.ranks
    try:
        hvd.ProcessSet(world)
    except ValueError as error:
        assert "this job of Horovod has [1, 2, 3]" in str(error), error
    else:
        assert False
hvd.shutdown()
hvd.init(comm=MPI.COMM_SELF)
print("alone", hvd.size())
"""
# Two of three processes form a job twice, in another order than in MPI.COMM_WORLD; then all three form a job.
PART = """
import horovod.numpy as hvd
from mpi4py import MPI
world = MPI.COMM_WORLD
part = world.Split(world.rank == 0, -world.rank)
for _ in range(2 if world.rank > 0 else 0):
    hvd.init(comm=part, process_sets=[hvd.ProcessSet([1])])
    assert (hvd.rank(), hvd.size(), hvd.local_size()) == (part.rank, 2, 2)
    assert hvd.allgather_object(world.rank) == [2, 1]
    assert hvd.ProcessSet(MPI.COMM_SELF).ranks == [part.rank]
    hvd.shutdown()
world.Barrier()
hvd.init()
print("all", hvd.allgather_object(world.rank))
"""
# One of the two ranks never calls hvd.init().
INCOMPLETE = """
import sys, time
import horovod.numpy as hvd
from mpi4py import MPI
world = MPI.COMM_WORLD
part = world.Split(world.rank == 0, world.rank)
if part.rank == int(sys.argv[1]):
    time.sleep(60)
if world.rank > 0:
    hvd.init(comm=part)
"""
# Rank 2 of MPI never calls hvd.init().
LATE = """
import time
from mpi4py import MPI
import horovod.numpy as hvd
if MPI.COMM_WORLD.rank == 2:
    time.sleep(60)
hvd.init()
"""
# mpi4py uses another MPI than the launcher.
OTHER_MPI = """
from mpi4py import MPI
import horovod.numpy as hvd
for make in (lambda: hvd.init(comm=MPI.COMM_SELF), lambda: hvd.init() or hvd.ProcessSet(MPI.COMM_SELF)):
    try:
        make()
        print("no error")
    except ValueError as error:
        print(error)
hvd.shutdown()
hvd.init(comm=MPI.COMM_WORLD)
print("all", hvd.size())
"""


def test_a_communicator_of_mpi4py_needs_no_other_ranks():
    needs_mpi4py()
    job = run("mpirun.openmpi", *OPENMPI, "-np", 3, PYTHON, "-c", PART)
    job.ends_with(0)
    expect(job.out.count("all [0, 1, 2]") == 3, job.describe())
    for missing in (0, 1):
        program = (PYTHON, "-m", "mpi4py", "-c", INCOMPLETE, missing)  # an exception ends the ranks that wait
        job = run("mpirun.openmpi", *OPENMPI, "-np", 3, "-x", "HOROVOD_INIT_TIMEOUT=6", *program)
        expect(job.wait() != 0, job.describe())
        name = f"rank {missing} of comm (rank {missing + 1} of MPI.COMM_WORLD) has not called hvd.init(comm)"
        expect(f"horovod: {name} for 3 s, and rank {1 - missing} waits there" in job.err, job.describe())
        expect(f"HorovodInternalError: {name} within 6 s; all 2 ranks of the communicator" in job.err, job.describe())
    bad = ("-x", "HOROVOD_INIT_TIMEOUT=abc")
    job = run("mpirun.openmpi", *OPENMPI, "-np", 3, *bad, PYTHON, "-m", "mpi4py", "-c", PART)
    expect(job.wait() != 0, job.describe())
    expect("HorovodArgumentError: HOROVOD_INIT_TIMEOUT: 'abc' is not a number" in job.err, job.describe())


def test_ranks_that_mpi_connects_say_that_others_have_not_called_init():
    needs_mpi4py()
    if not list((BUILD / "lib/horovod/bootstraps").glob("mpi_openmpi*.so")):
        raise Skip("no MPI is built: packaging/packages-test.txt names its packages")
    flags = ("-np", 3, "-x", "HOROVOD_INIT_TIMEOUT=6", "-x", "HOROVOD_BOOTSTRAP=mpi")
    job = run("mpirun.openmpi", *OPENMPI, *flags, PYTHON, "-m", "mpi4py", "-c", LATE)
    expect(job.wait() != 0, job.describe())
    said = r"rank (\d) on host \S+ has waited in hvd.init\(\) for 3 s, and not all 3 ranks of MPI_COMM_WORLD"
    expect(sorted(re.findall(said, job.err)) == ["0", "1"], job.describe())


def test_communicators_of_mpi4py():
    needs_mpi4py()
    program = scratch(BUILD) / "communicators.py"
    program.write_text(COMMUNICATORS)
    job = run("mpirun.openmpi", *OPENMPI, "-np", 4, PYTHON, program)
    job.ends_with(0)
    expect(job.out.count("alone 1") == 4, job.describe())
    job = run("mpiexec.hydra", "-np", 2, PYTHON, "-c", OTHER_MPI)
    job.ends_with(0)
    expect(job.out.count("has 1 process, and Horovod's job has 2 ranks") == 4, job.describe())
    expect(job.out.count("all 2") == 2, job.describe())


def test_hydra_on_this_machine():
    for flags in ((), ("-pmi-port",)):  # -pmi-port: ranks get no PMI_SIZE
        check(run("mpiexec.hydra", *flags, "-np", 3, PYTHON, RANK), 3)


@world()
def test_lines_of_mpirun_as_people_have_them():
    """Typical command lines with `python` and `mpirun` in PATH; variables hold the paths of this tree."""
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None:
        raise Skip("there is no mpirun.openmpi: packaging/packages-test.txt names its package")
    folder = scratch(BUILD)  # all hosts have this folder
    for name, target in (("python", PYTHON), ("mpirun", mpirun)):
        (folder / name).symlink_to(target)
    for name in ("train_model.py", "main.py"):
        shutil.copy(RANK, folder / name)
    hostfile = folder / "hostfile"
    hostfile.write_text("a slots=2\nb slots=2\n")
    tree = clean_environment(
        OMPI_MCA_mca_base_env_list="PATH;PYTHONPATH",
        OMPI_MCA_rmaps_base_oversubscribe="1",
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )
    tree["PATH"] = f"{folder}:{tree['PATH']}"
    for ranks, line in (
        (4, "mpirun -np 4 python train_model.py"),
        (2, "mpirun --allow-run-as-root -np 2 --hostfile /generated/hostfile python main.py"),
        (
            4,
            "mpirun --allow-run-as-root --hostfile /generated/hostfile -bind-to none -map-by slot "
            "-mca pml ob1 -mca btl ^openib python main.py",
        ),
    ):
        line = line.replace("/generated/hostfile", str(hostfile))
        job = Job("-c", line, program="/bin/sh", cwd=folder, environment=tree)
        check(job, ranks)
        job.leaves_nothing()


LAUNCHERS = (
    ("mpirun.openmpi", OPENMPI, "Open MPI's mpirun", "pmix"),
    ("mpiexec.hydra", (), "a launcher with PMI", "pmi"),
    ("mpiexec.hydra", ("-pmi-port",), "MPICH's hydra", "mpi"),
)


def say(program, *arguments, environment=None):
    path = shutil.which(program)
    if path is None:
        raise Skip(f"there is no {program}: packaging/packages-test.txt names its package")
    job = Job(*arguments, program=path, environment=environment)
    job.wait()
    return job


def only_library():
    """Copies libhorovod.so into a directory without its plugins."""
    folder = scratch()
    shutil.copy(BUILD / "lib" / "libhorovod.so", folder)
    return folder, {"HOROVOD_LIBRARY": str(folder / "libhorovod.so")}


def test_ranks_of_another_launcher_without_a_bootstrap_plugin_are_refused():
    folder, variables = only_library()
    for program, flags, name, plugin in LAUNCHERS:
        job = say(program, *flags, "-np", 2, PYTHON, "-c", SAY, environment=clean_environment(**variables))
        for rank in range(2):
            expect(
                re.search(
                    rf"refused: {name} .* started this process as rank {rank} of.*no bootstrap "
                    rf"plugin named {plugin} is installed.*{folder}/horovod/bootstraps.*horovodrun.*"
                    "HOROVOD_BOOTSTRAP=none",
                    job.out,
                ),
                job.describe(),
            )


def test_processes_of_another_launcher_that_are_declared_independent_are_worlds_of_one():
    _, variables = only_library()
    for more in (variables, {}):
        for program, flags, *_ in LAUNCHERS:
            job = say(
                program,
                *flags,
                "-np",
                2,
                PYTHON,
                "-c",
                SAY,
                environment=clean_environment(HOROVOD_BOOTSTRAP="none", **more),
            )
            expect(job.out.count("rank 0 of 1") == 2, job.describe())


def test_one_process_of_another_launcher_needs_no_plugin():
    _, variables = only_library()
    for program, flags, *_ in LAUNCHERS:
        job = say(program, *flags, "-np", 1, PYTHON, "-c", SAY, environment=clean_environment(**variables))
        expect(job.out.count("rank 0 of 1") == 1, job.describe())


def test_signs_of_several_that_start_no_other_process_make_a_world_of_one():
    """Variables of an sbatch script are accepted. Without the plugin, those of a torchrun worker are refused."""
    _, variables = only_library()
    script = {"SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}
    job = say(PYTHON, "-c", SAY, environment=clean_environment(**script, **variables))
    expect(job.out.count("rank 0 of 1") == 1, job.describe())
    worker = {"WORLD_SIZE": "4", "RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "run"}
    job = say(PYTHON, "-c", SAY, environment=clean_environment(**worker, **variables))
    expect(re.search(r"refused: torchrun .* rank 1 of 4, .*no bootstrap plugin named torch", job.out), job.describe())


@world("a")
def test_ranks_of_open_mpi_without_the_library_of_pmix_are_refused():
    """Hides the packages of MPI, as in a container image without them."""
    known = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.findall(r"(?:libpmix\.so\.2|libmpi\.so\.40) .*=> (.*)", known)
    if not any("pmix" in path for path in found):
        raise Skip("there is no libpmix.so.2: packaging/packages-test.txt names its package")
    hidden = " && ".join(f"mount --bind /dev/null {os.path.realpath(path)}" for path in found)
    job = say(
        "mpirun.openmpi",
        *OPENMPI,
        "-np",
        2,
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'{hidden} && exec "$@"',
        "sh",
        PYTHON,
        "-c",
        SAY,
    )
    for rank in range(2):
        expect(
            re.search(rf"refused: Open MPI's mpirun .* rank {rank} of 2.*libpmix2.*libpmix\.so\.2", job.out),
            job.describe(),
        )


if __name__ == "__main__":
    main()
