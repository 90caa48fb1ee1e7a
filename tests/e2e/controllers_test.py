#!/usr/bin/python3 -B
"""Controllers: the conformance suite over MPI, every controller with every backend under every launcher, and the errors
if ranks choose different controllers."""

from harness import *

import backends_test as backends
import network
import slurm

RANK = (PYTHON, WORKERS / "matrix_rank.py")
OPENMPI = (*backends.OPENMPI, "--oversubscribe", *backends.MCA)
OPERATIONS = ["gloo", "mpi", "libgloo"]
MATRIX = {}  # variables of the ranks that test the matrix
if "HVD_TEST_CCL" in os.environ:
    OPERATIONS.append("ccl")
    MATRIX["HOROVOD_CCL_LIBRARY"] = os.environ["HVD_TEST_CCL"]
MATRIX["HVD_MATRIX_OPERATIONS"] = " ".join(OPERATIONS)
CELLS = [(controller, operations) for controller in ("gloo", "mpi") for operations in OPERATIONS]


def conforms(name, launcher, ranks, place, *cases, **more):
    controller = backends.backend(name, backends.CONTROLLERS)
    backends.conforms(name, launcher, ranks, place, *cases, HVD_CONTROLLER=str(controller), **more)


def test_mpi_of_open_mpi_conforms():
    conforms("mpi_openmpi", OPENMPI, 5, (), "-tc=controller*", "-tce=*abort*")


def test_mpi_of_open_mpi_conforms_when_it_is_aborted():
    conforms("mpi_openmpi", OPENMPI, 4, (), "-tc=controller*abort*", aborts=True)


def test_mpi_of_mpich_conforms():
    conforms("mpi_mpich", backends.HYDRA, 5, (), "-tc=controller*", "-tce=*abort*")


def test_operations_over_it_conform():
    conforms("mpi_openmpi", OPENMPI, 3, (), "-tc=backend*sets*,backend*joined*")


@world("a b", "--no-decoys")
def test_mpi_of_open_mpi_conforms_on_two_hosts():
    pathlib.Path("/tmp/hostfile").write_text("a slots=2\nb slots=2\n")
    conforms(
        "mpi_openmpi",
        backends.OPENMPI,
        4,
        (
            *"--hostfile /tmp/hostfile -map-by slot".split(),
            *backends.MCA,
            *"-x HVD_BACKEND -x HVD_CONTROLLER -x HVD_WORLD_FOLDER -x HVD_WORLD_HOSTS".split(),
        ),
        "-tc=controller*",
        "-tce=*abort*",
        HVD_WORLD_HOSTS="1",
    )


@world("a b", "--no-decoys")
def test_mpi_of_mpich_conforms_on_two_hosts():
    conforms(
        "mpi_mpich",
        (*backends.HYDRA, "-iface", network.BRIDGE, "-hosts", "a:2,b:2"),
        4,
        (),
        "-tc=controller*",
        "-tce=*abort*",
        HVD_WORLD_HOSTS="1",
    )


def row_of(job, ranks):
    """Returns the result of each cell; fails unless all ranks report the same."""
    job.ends_with(0, 240)
    row = {}
    for cell in CELLS:
        said = re.findall(rf"cell {' '.join(cell)} (ok|no: .*)", job.out)
        expect(len(said) == ranks and len({word[:2] for word in said}) == 1, job.describe())
        row[cell] = said[0]
    return row


def print_table(rows):
    """Prints a table: a row for each bootstrap and launcher, a column for each controller and backend."""
    heads = [f"{controller}+{operations}" for controller, operations in CELLS]
    print(f"{'controller+operations':26}", *(f"{head:12}" for head in heads))
    holes = []
    for name, row in rows.items():
        print(f"{name:26}", *(f"{row[cell][:2]:12}" for cell in CELLS))
        holes += [f"  {name}, {'+'.join(cell)}: {row[cell]}" for cell in CELLS if row[cell] != "ok"]
    print("\n".join(holes), flush=True)


def fill(rows, without_mpi=()):
    """Checks the table: a cell fails if and only if it needs MPI and the launcher cannot start MPI."""
    print_table(rows)
    for name, row in rows.items():
        for cell in CELLS:
            expect((row[cell] == "ok") != (name in without_mpi and "mpi" in cell), f"{name}, {cell}: {row[cell]}")


def test_the_matrix_on_one_host():
    for name in ("mpi_openmpi", "mpi_mpich", "gloo"):
        backends.backend(name)
    ours = clean_environment(**MATRIX)
    by_mpi = {**MATRIX, "HOROVOD_BOOTSTRAP": "mpi"}
    fill(
        {
            "PMIx, mpirun (Open MPI)": row_of(backends.launch(OPENMPI, ["-np", 2, *RANK], **MATRIX), 2),
            "MPI, mpirun (Open MPI)": row_of(backends.launch(OPENMPI, ["-np", 2, *RANK], **by_mpi), 2),
            "PMI, mpiexec.hydra": row_of(backends.launch(backends.HYDRA, ["-np", 2, *RANK], **MATRIX), 2),
            "MPI, mpiexec.hydra": row_of(backends.launch(backends.HYDRA, ["-np", 2, *RANK], **by_mpi), 2),
            "ours, horovodrun": row_of(Job("-np", 2, *RANK, environment=ours), 2),
            "ours without PMIx": row_of(Job("-np", 2, "--no-pmix", *RANK, environment=ours), 2),
        },
        without_mpi={"ours without PMIx"},
    )


@world("a b", "--no-decoys")
def test_the_matrix_on_two_hosts():
    for name in ("mpi_openmpi", "mpi_mpich", "gloo"):
        backends.backend(name)
    pathlib.Path("/tmp/hostfile").write_text("a slots=1\nb slots=1\n")
    rows = {}
    for bootstrap in ("", "mpi"):
        variables = {**MATRIX, "HOROVOD_BOOTSTRAP": bootstrap, "HOROVOD_GLOO_IFACE": "eth0"}
        names = [word for name in variables for word in ("-x", name)]
        known = "MPI" if bootstrap else "PMIx"
        rows[f"{known}, mpirun (Open MPI)"] = row_of(
            backends.launch(
                backends.OPENMPI,
                ["-np", 2, "--hostfile", "/tmp/hostfile", *backends.MCA, "-x", "PYTHONPATH", *names, *RANK],
                **variables,
            ),
            2,
        )
        rows["MPI, mpiexec.hydra" if bootstrap else "PMI, mpiexec.hydra"] = row_of(
            backends.launch(
                (*backends.HYDRA, "-iface", network.BRIDGE, "-hosts", "a,b"), ["-np", 2, *RANK], **variables
            ),
            2,
        )
    rows["ours, horovodrun"] = row_of(
        Job("-np", 2, "-H", "a,b", *RANK, environment=clean_environment(**MATRIX, HOROVOD_GLOO_IFACE="eth0")), 2
    )
    fill(rows)


def rows_of_slurm(*ways):
    """ways: name, what srun gives its tasks, HOROVOD_BOOTSTRAP."""
    try:
        made = slurm.Cluster(["a", "b"])
    except slurm.Missing as missing:
        raise Skip(str(missing)) from None
    rows = {}
    with made:
        for name, kind, bootstrap in ways:
            rows[name] = row_of(
                backends.launch(
                    ("srun",),
                    [f"--mpi={kind}", "-N2", "--ntasks-per-node=1", *RANK],
                    HOROVOD_GLOO_IFACE="eth0",
                    HOROVOD_BOOTSTRAP=bootstrap,
                    **MATRIX,
                    **made.environment,
                ),
                2,
            )
    return rows


@world("a b", "--no-decoys")
def test_the_matrix_of_slurm_on_two_hosts():
    fill(
        rows_of_slurm(
            ("PMIx, srun --mpi=pmix", "pmix", ""), ("PMI, srun --mpi=pmi2", "pmi2", ""), ("MUNGE, srun", "none", "")
        ),
        without_mpi={"MUNGE, srun", "PMI, srun --mpi=pmi2"},
    )


@world("a b", "--no-decoys")
def test_the_matrix_of_slurm_by_mpi_and_munge_on_two_hosts():
    fill(
        rows_of_slurm(
            ("MPI, srun --mpi=pmix", "pmix", "mpi"),
            ("MPI, srun --mpi=pmi2", "pmi2", "mpi"),
            ("MUNGE, srun --mpi=pmix", "pmix", "slurm"),
        )
    )


QUIET = """
import os, pathlib, time
import horovod.numpy as hvd
hvd.init()
def wakings():
    status = {task.joinpath("comm").read_text().strip(): task.joinpath("status").read_text()
              for task in pathlib.Path("/proc/self/task").iterdir()}["hvd-progress"]
    return int(status.split("\\nvoluntary_ctxt_switches:")[1].split()[0])
time.sleep(4)
before = wakings()
time.sleep(4)
os.write(1, f"woke {wakings() - before} times\\n".encode())
hvd.barrier()
hvd.shutdown()
"""


def test_ranks_with_nothing_to_do_look_for_messages_of_mpi_ever_more_rarely():
    backends.backend("mpi_openmpi", backends.CONTROLLERS)
    job = backends.launch(
        OPENMPI, ["-np", 2, PYTHON, "-c", QUIET], HOROVOD_CONTROLLER="mpi", HOROVOD_CPU_OPERATIONS="mpi"
    )
    job.ends_with(0)
    times = [int(count) for count in re.findall(r"woke (\d+) times", job.out)]
    print("woke in four seconds:", times)
    # The pauses grow: after 4 s at most 100 wake-ups a second, instead of 1,000.
    expect(len(times) == 2 and all(count < 1000 for count in times), job.describe())


def refused_by_all(words, *arguments, ranks=3):
    job = Job("-np", ranks, *RANK, "by-rank", *arguments)
    job.ends_with(0)
    expect(len(re.findall(f"refused: .*{words}", job.out)) == ranks, job.describe())


def test_ranks_that_choose_different_backends():
    backends.backend("gloo")
    refused_by_all(
        r"the ranks have chosen different backends: ranks \[1, 2\] have controller the "
        "built-in one and operations gloo; rank 0 has controller the built-in one and "
        "operations the built-in one; .* alike on all ranks",
        "HOROVOD_CPU_OPERATIONS",
        "",
        "libgloo",
    )
    refused_by_all(
        r"rank 0 has controller mpi and operations .*; ranks \[1, 2\] have controller the "
        "built-in one|"
        r"ranks \[1, 2\] have controller the built-in one .*; rank 0 has "
        "controller mpi",
        "HOROVOD_CONTROLLER",
        "mpi",
        "gloo",
    )
    refused_by_all(
        "HOROVOD_CPU_OPERATIONS is nonesuch, but this build has no such backend",
        "HOROVOD_CPU_OPERATIONS",
        "",
        "nonesuch",
    )
    refused_by_all(
        "HOROVOD_CONTROLLER is nonesuch, but this build has no such controller", "HOROVOD_CONTROLLER", "nonesuch", ""
    )


def test_ranks_that_have_different_libraries_of_mpi():
    for name in ("mpi_openmpi", "mpi_mpich"):
        backends.backend(name)
    chosen = ("-x", "HOROVOD_CONTROLLER=mpi")
    job = Job("-np", 2, *chosen, *RANK, "by-rank", "HOROVOD_MPI_LIBRARY", "libmpi.so.40", "libmpich.so.12")
    job.ends_with(0)
    expect(len(re.findall("refused: .*rank 0 has Open MPI .* and rank 1 has MPICH", job.out)) == 2, job.describe())


def test_ranks_that_are_not_one_world_of_mpi():
    """Each rank reports its library, the number of ranks that it found, the cause and the remedy."""
    for name in ("mpi_openmpi", "mpi_mpich"):
        backends.backend(name)
    mpich, open_mpi = r"MPICH.* \(/\S*/libmpi(?:ch)?.so.12\S*\)", r"Open MPI v\S+ \(/\S*/libmpi.so.40\S*\)"
    advice = "name the library of their launcher's MPI in HOROVOD_MPI_LIBRARY, or set {}=gloo"
    for variable, launcher, library, found, why in (
        ("HOROVOD_CONTROLLER", None, "", f"(?:{mpich}|{open_mpi})", "no launcher of an MPI has started this rank"),
        ("HOROVOD_CONTROLLER", None, "libmpich.so.12", mpich, "no launcher of an MPI"),
        ("HOROVOD_CPU_OPERATIONS", None, "libmpi.so.40", open_mpi, "no launcher of an MPI"),
        (
            "HOROVOD_CPU_OPERATIONS",
            backends.HYDRA,
            "libmpi.so.40",
            open_mpi,
            r"a launcher that serves MPICH \(PMI_RANK is set\)",
        ),
    ):
        # Open MPI starts a daemon for a process that no launcher has started. On a busy machine it may come too late.
        alone = "OMPI_MCA_ess_singleton_isolated"
        chosen = {variable: "mpi", "HOROVOD_MPI_LIBRARY": library, alone: "1"}
        job = (
            Job("-np", 3, "--no-pmix", "-x", f"{alone}=1", *RANK, "once", environment=clean_environment(**chosen))
            if launcher is None
            else backends.launch(launcher, ["-np", 3, *RANK, "once"], **chosen)
        )
        job.ends_with(0)
        words = (
            f"refused: .*the 3 ranks of this job are not one world of MPI, since {found} has a world "
            f"of 1 here: .*{why}.*; start the ranks by .*, or {advice.format(variable)}"
        )
        expect(len(re.findall(words, job.out)) == 3, job.describe())


if __name__ == "__main__":
    main()
