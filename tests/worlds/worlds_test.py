#!/usr/bin/python3 -B
"""In each surrounding, each framework's own detection finds one world, or one message refuses the job. cells.txt has
the cells, detectors.py the detectors; page.py generates docs/frameworks-and-launchers.md from both.

A test starts one job for its surrounding. Each rank runs all its detectors; detectors of one interpreter share imports.
"""

import contextlib
import pathlib
import shlex
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import table
from deepspeed_build import environment_of_deepspeed
from elastic_size_test import Joining
from harness import *
from slurm_test import on_cluster, salloc, sbatch, srun

FOLDER = pathlib.Path(__file__).resolve().parent
AGENT_HOSTS = ("a", "b")
# Distribution of a surrounding's ranks: hosts and ranks on each host.
ONE_HOST, TWO_HOSTS = (1, 2), (2, 1)
# The MPI program prints the same line as a Python detector. It does not call MPI_Finalize, which may block in MPICH 4.0
# with ranks on several hosts, also under MPICH's mpiexec.
OF_MPI = """
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int rank, size, own, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  own = rank + 1;
  MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  printf("cell %s rank %d size %d local - sum %d\\n", argv[1], rank, size, sum);
  fflush(stdout);
  if (argc > 2) MPI_Finalize();
  _exit(0);
}
"""


def interpreter(name):
    """Returns the interpreter that has the detector's framework, or None."""
    if name in ("hvd.numpy", "mpi4py"):
        return PYTHON
    variable = {
        "deepspeed": "HVD_TEST_DEEPSPEED",
        "hvd.tensorflow": "HVD_TEST_TENSORFLOWS",
        "hvd.jax": "HVD_TEST_OLD_JAX",
        "jax.distributed": "HVD_TEST_OLD_JAX",
    }
    found = os.environ.get(variable.get(name, "HVD_TEST_WORLDS"), "").split(":")[0]
    return found if found and pathlib.Path(found).exists() else None


def program_of(mpi, folder):
    """Returns the program of an MPI, with its arguments, or None."""
    compiler = shutil.which(f"mpicc.{mpi}", path="/usr/bin")
    if not compiler:
        return None
    (folder / "cell.c").write_text(OF_MPI)
    subprocess.run([compiler, "-o", folder / mpi, folder / "cell.c"], check=True)
    return [folder / mpi, mpi, *(["finalizes"] if mpi == "openmpi" else [])]


def script_of(names, layout):
    """Writes a script for all hosts that runs these detectors as one rank; also returns those that cannot run here."""
    folder = scratch("/etc")
    lines = [f"export CELL_HOSTS={layout[0]} CELL_SLOTS={layout[1]}"]
    groups, lacking = {}, []
    for name in names:
        python = interpreter(name)
        if name in ("openmpi", "mpich"):
            groups[name] = program_of(name, folder)
        elif name == "deepspeed" and python:
            variables = [f"{key}={value}" for key, value in environment_of_deepspeed(python).items()]
            groups[name] = ["env", *variables, python, FOLDER / "detectors.py", name]
        elif python:
            groups.setdefault(python, [python, FOLDER / "detectors.py"]).append(name)
        else:
            groups[name] = None
        lacking += [] if groups.get(name, True) else [name]
    for number, words in enumerate(words for words in groups.values() if words):
        lines.append(f"CELL_PORT={20 * number} {shlex.join(map(str, words))}")
    (folder / "cells.sh").write_text("\n".join(lines) + "\n")
    return folder / "cells.sh", lacking


def judge(out, names, layout):
    """Expects each detector's lines: all ranks once, each with the world's size, its local rank and the sum."""
    hosts, slots = layout
    size = hosts * slots
    wrong = []
    for name in names:
        lines = re.findall(rf"cell {re.escape(name)} (.*)", out)
        places = [f"rank {rank} size {size} local {rank % slots} sum {size * (size + 1) // 2}" for rank in range(size)]
        seen = sorted(
            re.sub("local -", f"local {int(line.split()[1]) % slots}", line) if " local -" in line else line
            for line in lines
        )
        if seen != places:
            wrong.append(f"{name}: {lines}")
    expect(not wrong, "\n".join([*wrong, out[-6000:]]))


def check(surrounding, tier, start, layout=TWO_HOSTS, at_once=True):
    """Runs the cells of a tier. `start` runs a command as the ranks of a job and returns its output. `at_once`: one job
    runs all detectors; other launchers start one MPI program per job."""
    names = table.cells(surrounding, tier)
    scripts = [script_of(part, layout) for part in ([names] if at_once else [[name] for name in names])]
    lacking = {name for _, some in scripts for name in some}
    out = "\n".join(start(["sh", script]) for script, _ in scripts)
    judge(out, [name for name in names if name not in lacking], layout)
    if lacking:
        raise Skip(f"no interpreter or compiler here has {', '.join(sorted(lacking))}; the other cells passed")


def output_of(job):
    job.wait(300)
    return f"{job.out}\n{job.err}"


def by_horovodrun(*flags, **variables):
    return lambda command: output_of(Job(*flags, *command, environment=clean_environment(**variables)))


def test_one_host():
    check("one-host", "all", by_horovodrun("-np", 2), ONE_HOST)


def test_one_host_in_full():
    check("one-host", "release", by_horovodrun("-np", 2), ONE_HOST)


@world("a b", "--no-decoys")
def test_two_hosts():
    check("two-hosts", "all", by_horovodrun("-np", 2, "-H", "a:1,b:1"))


@world("a b", "--no-decoys")
def test_two_hosts_in_full():
    check("two-hosts", "release", by_horovodrun("-np", 2, "-H", "a:1,b:1"))


def by_joining(command):
    joining = Joining("-np", 2, "-H", "a:1,b:1", *command)
    agents_of_hosts = [joining.join(name, 1) for name in AGENT_HOSTS]
    try:
        return output_of(joining.job)
    finally:
        for agent in agents_of_hosts:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.communicate(timeout=LONG)


@world("a b", "--no-decoys")
def test_joined_hosts():
    check("joined", "release", by_joining)


def by_sbatch(cluster, *words):
    line = shlex.join(map(str, words))
    return lambda command: sbatch(
        cluster, "--nodes=2", "--ntasks-per-node=1", script=f"{line} {shlex.join(map(str, command))}"
    )


@on_cluster()
def test_sbatch(cluster):
    check("sbatch", "all", by_sbatch(cluster, LAUNCHER))


@on_cluster()
def test_sbatch_in_full(cluster):
    check("sbatch", "release", by_sbatch(cluster, LAUNCHER))


def by_salloc(cluster):
    return lambda command: output_of(salloc(cluster, "-N2", "--ntasks-per-node=1", LAUNCHER, *command))


@on_cluster()
def test_salloc(cluster):
    check("salloc", "release", by_salloc(cluster))


@on_cluster()
def test_below_srun(cluster):
    """Expects one message for all detectors, which do not start."""
    script, _ = script_of(table.cells("below-srun", "all"), TWO_HOSTS)
    job = srun(cluster, "-N2", "--ntasks-per-node=1", LAUNCHER, "sh", script)
    expect(job.wait() != 0 and "cell" not in job.out, job.describe())
    expect(table.text_of("refused", "below-srun") in job.err, job.describe())


def by_srun(cluster):
    return lambda command: output_of(srun(cluster, "-N2", "--ntasks-per-node=1", "--mpi=pmix", *command))


@on_cluster()
def test_srun_alone(cluster):
    check("srun-alone", "release", by_srun(cluster), at_once=False)


ON_TWO_HOSTS = ("--allow-run-as-root", "-np", 2, "-H", "a:1,b:1", "-x", "PYTHONPATH")


@world("a b", "--no-decoys")
def test_mpirun_alone():
    check(
        "mpirun-alone",
        "release",
        lambda command: output_of(Job(*ON_TWO_HOSTS, *command, program="/usr/bin/mpirun.openmpi")),
        at_once=False,
    )


@world("a b", "--no-decoys")
def test_horovodrun_by_mpirun():
    check("by-mpirun", "release", by_horovodrun("--mpi", "-np", 2, "-H", "a:1,b:1"), at_once=False)


@world("a b", "--no-decoys")
def test_variables_of_pbs():
    nodes = scratch("/etc") / "nodes"
    nodes.write_text("a\nb\n")
    check("pbs", "release", by_horovodrun(PBS_JOBID="7.server", PBS_NODEFILE=str(nodes), PBS_TASKNUM="1"))


@world("a b", "--no-decoys")
def test_variables_of_lsf():
    check("lsf", "release", by_horovodrun(LSB_JOBID="7", LSB_MCPU_HOSTS="a 1 b 1", LSB_HOSTS="a b"))


@world("a b", "--no-decoys")
def test_variables_of_the_mpi_operator():
    pathlib.Path("/etc/mpi").mkdir()
    pathlib.Path("/etc/mpi/hostfile").write_text("a slots=1\nb slots=1\n")
    variables = {"K_MPI_JOB_ROLE": "launcher", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}
    variables["OMPI_MCA_orte_keep_fqdn_hostnames"] = "true"
    check("mpi-operator", "release", by_horovodrun(**variables))


@world("a b", "--no-decoys")
def test_variables_of_volcano():
    check("volcano", "release", by_horovodrun("-np", 2, VC_WORKER_HOSTS="a,b", VC_WORKER_NUM="2", VC_TASK_INDEX="0"))


if __name__ == "__main__":
    main()
