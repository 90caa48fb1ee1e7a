#!/usr/bin/python3 -B
"""Ranks that get their identity from MPI alone: without PMIx and PMI, or because a setting requires it.
bootstrap_test.py tests several hosts."""

from harness import *

import backends_test as backends

OPENMPI = (*backends.OPENMPI, "--oversubscribe", *backends.MCA)
LAUNCHERS = ((OPENMPI, "libmpi.so.40"), (backends.HYDRA, "libmpich.so.12"))
BOOTSTRAPS = BUILD / "lib" / "horovod" / "bootstraps"

# A program that uses MPI itself, without the variables of its launcher.
HIDDEN = """
import ctypes, os, sys
mpi = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
for name in list(os.environ):
    if name.startswith(("PMIX_", "PMI_", "MPI_", "OMPI_", "SLURM_", "HYDRA_")):
        del os.environ[name]
import numpy
import horovod.numpy as hvd
for turn in range(2):
    hvd.init()
    total = hvd.allreduce(numpy.ones(3) * (hvd.rank() + 1), op=hvd.Sum)[0]
    os.write(1, f"turn {turn} rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()} of "
                f"{hvd.local_size()}, sum {total:g}\\n".encode())
    hvd.shutdown()
mpi.MPI_Finalize()
"""

SAY = """
import os
import horovod.numpy as hvd
try:
    hvd.init()
    has_mpi = any("libmpi" in line for line in open("/proc/self/maps"))
    said = f"rank {hvd.rank()} of {hvd.size()}, MPI {'is' if has_mpi else 'is not'} here"
except Exception as refusal:
    said = "refused: " + str(refusal).strip().splitlines()[0]
os.write(1, f"{said}\\n".encode())
"""


def built(name="mpi_openmpi"):
    return backends.backend(name, BOOTSTRAPS)


def check(job, words, count):
    job.ends_with(0)
    expect(len(re.findall(words, job.out)) == count, job.describe())


def test_a_program_that_has_initialised_mpi_whose_launcher_cannot_be_asked():
    for (launcher, library), name in zip(LAUNCHERS, ("mpi_openmpi", "mpi_mpich")):
        built(name)
        job = backends.launch(launcher, ["-np", 3, PYTHON, "-c", HIDDEN, library])
        job.ends_with(0)
        for turn in range(2):
            for rank in range(3):
                line = f"turn {turn} rank {rank} of 3, local {rank} of 3, sum 6\n"
                expect(job.out.count(line) == 1, f"{line!r} is missing\n{job.describe()}")


def test_a_non_mpi_program_initialises_no_mpi():
    built()
    plain = ("-c", SAY)
    check(Job(*plain, program=PYTHON), "rank 0 of 1, MPI is not here", 1)
    # This holds under MPI's launchers too, which offer PMIx or PMI.
    for launcher, _ in LAUNCHERS:
        check(backends.launch(launcher, ["-np", 2, PYTHON, *plain]), "rank . of 2, MPI is not here", 2)


def test_a_world_of_one_in_mpi_is_one():
    for (_, library), name in zip(LAUNCHERS, ("mpi_openmpi", "mpi_mpich")):
        built(name)
        begin = f"import ctypes; ctypes.CDLL({library!r}, mode=ctypes.RTLD_GLOBAL).MPI_Init(None, None)"
        check(Job("-c", begin + SAY, program=PYTHON), "rank 0 of 1, MPI is here", 1)
        check(
            Job(
                "-c",
                SAY,
                program=PYTHON,
                environment=clean_environment(HOROVOD_BOOTSTRAP="mpi", HOROVOD_MPI_LIBRARY=library),
            ),
            "rank 0 of 1, MPI is here",
            1,
        )


@world("a")
def test_ranks_whose_launcher_takes_a_plugin_that_is_not_there():
    built()
    folder = scratch(BUILD)
    for plugin in BOOTSTRAPS.glob("mpi_*.so"):
        shutil.copy(plugin, folder)
    subprocess.run(["mount", "--bind", folder, BOOTSTRAPS], check=True)  # in this test's own world
    try:
        for launcher, _ in LAUNCHERS:
            check(backends.launch(launcher, ["-np", 2, PYTHON, "-c", SAY]), "rank . of 2, MPI is here", 2)
    finally:
        subprocess.run(["umount", BOOTSTRAPS], check=True)


def test_a_source_that_is_named_and_cannot_be_asked():
    built()
    for named, words in (
        ("pmix", "HOROVOD_BOOTSTRAP is pmix, but no server of PMIx started this process; unset it"),
        ("nonesuch", "HOROVOD_BOOTSTRAP is nonesuch, but no bootstrap plugin named nonesuch is installed; unset it"),
    ):
        check(
            backends.launch(backends.HYDRA, ["-np", 2, PYTHON, "-c", SAY], HOROVOD_BOOTSTRAP=named),
            f"refused: .*{words}",
            2,
        )
    check(
        backends.launch(
            backends.HYDRA,
            ["-np", 2, PYTHON, "-c", SAY],
            HOROVOD_BOOTSTRAP="mpi",
            HOROVOD_MPI_LIBRARY="/nowhere/libmpi.so.12",
        ),
        "refused: .*HOROVOD_BOOTSTRAP is mpi, but .*/nowhere/libmpi.so.12",
        2,
    )


def test_a_rank_that_does_not_come_is_waited_for_no_longer_than_allowed():
    built("mpi_mpich")
    late = "import os, time\nif os.environ['PMI_RANK'] == '1': time.sleep(20)\n"
    job = backends.launch(
        backends.HYDRA,
        [
            "-np",
            2,
            PYTHON,
            "-c",
            "import ctypes\nctypes.CDLL('libmpich.so.12', mode=ctypes.RTLD_GLOBAL).MPI_Init(None, None)\n" + late + SAY,
        ],
        HOROVOD_BOOTSTRAP="mpi",
        HOROVOD_INIT_TIMEOUT="3",
    )
    wait_until(lambda: "refused: " in job.out, 60, job.describe)
    expect(
        re.search("refused: .*not all ranks of MPI_COMM_WORLD have called hvd.init.. in time", job.out), job.describe()
    )
    job.wait()


if __name__ == "__main__":
    main()
