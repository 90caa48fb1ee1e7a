#!/usr/bin/python3 -B
"""MPI programs under horovodrun: agents serve PMIx to their ranks."""

import shutil

from harness import *

# Each rank prints its rank in MPI and in horovod, and both sum over all ranks.
BOTH = """
import numpy
from mpi4py import MPI
import horovod.numpy as hvd
hvd.init()
world = MPI.COMM_WORLD
sums = world.allreduce(world.Get_rank() + 1), int(hvd.allreduce(
    numpy.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])
print(f"rank {world.Get_rank()} {hvd.rank()} of {world.Get_size()} {hvd.size()} sums {sums}")
hvd.shutdown()
"""
PROGRAM = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d sum %d\\n", rank, sum);
  if (argc > 1 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 9);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
"""


def need(*parts):
    for part in parts:
        if part == "mpi4py":
            found = subprocess.run([PYTHON, "-c", "import mpi4py"], capture_output=True, check=False).returncode == 0
        else:
            found = shutil.which(part, path="/usr/bin")
        if not found:
            raise Skip(f"there is no {part}")
    if not (BUILD / "launcher/pmix/horovod-pmix").exists():
        raise Skip("this build has no PMIx server: libpmix-dev is missing, or it is sanitized")


def compiled(folder):
    source = pathlib.Path(folder, "program.c")
    source.write_text(PROGRAM)
    program = pathlib.Path(folder, "program")
    subprocess.run(["mpicc.openmpi", "-o", program, source], check=True)
    return program


def test_mpi4py_is_one_world():
    need("mpi4py")
    job = Job("-np", 2, PYTHON, "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.Get_rank())")
    job.ends_with(0)
    expect(sorted(job.out.splitlines()) == ["[0]<stdout>:0", "[1]<stdout>:1"], job.describe())
    job.leaves_nothing()


def test_a_job_without_it_is_many_worlds_of_one():
    need("mpi4py")
    job = Job("-np", 2, "--no-pmix", PYTHON, "-c", "from mpi4py import MPI; print('of', MPI.COMM_WORLD.Get_size())")
    job.ends_with(0)
    expect(job.out.count("of 1\n") == 2, job.describe())


def test_an_mpirun_in_a_rank_makes_a_world_of_its_own():
    need("mpi4py", "mpirun.openmpi")
    say = "from mpi4py import MPI; print('of', MPI.COMM_WORLD.Get_size())"
    job = Job("-np", 1, "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", 3, PYTHON, "-c", say)
    job.ends_with(0)
    expect(len(re.findall("of 3|of", job.out)) == 3 and "of 1" not in job.out, job.describe())


@world("a b", "--no-decoys")
def test_ranks_on_two_hosts_sum_with_mpi_and_with_horovod():
    need("mpi4py", "mpicc.openmpi")
    with tempfile.TemporaryDirectory(dir="/etc") as folder:
        script = pathlib.Path(folder, "both.py")
        script.write_text(BOTH)
        job = Job("-H", "a:2,b:2", PYTHON, script)
        job.ends_with(0)
        for rank in range(4):
            expect(f"rank {rank} {rank} of 4 4 sums (10, 10)" in job.out, job.describe())
        job.leaves_nothing()
        program = compiled(folder)
        job = Job("-H", "a:2,b:2", program)
        job.ends_with(0)
        expect(job.out.count("sum 6\n") == 4, job.describe())
        job.leaves_nothing()
        # The error names the rank that aborts, and nothing of MPI remains.
        job = Job("-H", "a:2,b:2", program, "abort")
        expect(job.wait() != 0, job.describe())
        expect(any("rank 1" in sentence for sentence in job.said()), job.describe())
        job.leaves_nothing()


@world("a b", "--no-decoys")
def test_nothing_stays_when_agents_and_helpers_are_killed():
    need("mpi4py")
    code = "from mpi4py import MPI; import time; print('in', flush=True); time.sleep(600)"
    for victim in ("agent", "helper"):
        job = Job("-H", "a:1,b:1", PYTHON, "-c", code)
        job.wait_for("in", 2)
        if victim == "agent":
            os.kill(agents("b")["agent"][0], signal.SIGKILL)
        else:
            helpers = [pid for pid in faults.processes("b") if faults.said_of(pid, "comm") == "horovod-pmix\n"]
            expect(len(helpers) == 1, helpers)
            os.kill(helpers[0], signal.SIGKILL)
            job.signal(signal.SIGTERM)
        expect(job.wait() != 0, job.describe())
        job.leaves_nothing()


if __name__ == "__main__":
    main()
