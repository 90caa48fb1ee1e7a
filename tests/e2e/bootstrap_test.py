#!/usr/bin/python3 -B
"""Every way to start ranks gives the same result: four ranks on two hosts have consecutive ranks on each
host, sum their ranks, shut down, and start again."""

import contextlib
import shutil

from harness import *

import network
import slurm

RANK = (PYTHON, WORKERS / "foreign_rank.py", "twice")


def holds(out, say, twice=True, hosts="ab"):
    """`say` describes the job for an error. Ranks 0 and 1 run on the first of the `hosts`, 2 and 3 on the next."""
    for rank in range(4):
        first = f"rank {rank} of 4, local {rank % 2} of 2, cross {rank // 2} of 2, sum 10 on "
        expect(out.count(first) == 1, f"{first!r} is missing\n{say()}")
        expect(not twice or out.count(f"again rank {rank} of 4, sum 10") == 1, f"rank {rank} again\n{say()}")
    for name, ranks in zip(hosts, ("01", "23")):
        found = sorted(re.findall(rf"rank (\d) of 4, .* on {name}\b", out))
        expect(found == list(ranks), f"ranks {found} on host {name}\n{say()}")


def run(program, *arguments, **more):
    path = shutil.which(program, path="/usr/bin:/bin")
    if path is None:
        raise Skip(f"there is no {program}: packaging/packages-test.txt names its package")
    job = Job(*arguments, program=path, environment=clean_environment(**more))
    job.ends_with(0)
    holds(job.out, job.describe, "twice" in arguments)
    job.leaves_nothing()


@contextlib.contextmanager
def cluster():
    try:
        made = slurm.Cluster(["a", "b"])
    except slurm.Missing as missing:
        raise Skip(str(missing)) from None
    with made:
        yield made.environment


@world()
def test_our_agents():
    job = Job("-np", 4, "-H", "a:2,b:2", *RANK)
    job.ends_with(0)
    holds(job.out, job.describe)
    job.leaves_nothing()


@world("a b", "--no-decoys")
def test_pmix_of_slurm():
    with cluster() as variables:
        run("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", *RANK, **variables)


@world("a b", "--no-decoys")
def test_pmi_of_slurm():
    with cluster() as variables:
        run("srun", "--mpi=pmi2", "-N2", "--ntasks-per-node=2", *RANK, **variables)


@world("a b", "--no-decoys")
def test_a_program_that_mpich_has_started_by_the_pmi_of_slurm():
    with cluster() as variables:
        begin = (
            "import ctypes, runpy, sys; sys.argv = ['', 'twice']; ctypes.CDLL('libmpich.so.12', "
            f"mode=ctypes.RTLD_GLOBAL).MPI_Init(None, None); runpy.run_path('{RANK[1]}')"
        )
        run("srun", "--mpi=pmi2", "-N2", "--ntasks-per-node=2", PYTHON, "-c", begin, **variables)


@world("a b", "--no-decoys")
def test_a_plain_step_of_slurm():
    with cluster() as variables:
        run("srun", "-N2", "--ntasks-per-node=2", *RANK, **variables)


ON_TWO_HOSTS = (
    "--allow-run-as-root -np 4 --hostfile /tmp/hostfile -bind-to none -map-by slot -x PYTHONPATH -x PATH "
    "-mca pml ob1 -mca btl ^openib"
).split()


@world("a b", "--no-decoys")
def test_pmix_of_open_mpi():
    pathlib.Path("/tmp/hostfile").write_text("a slots=2\nb slots=2\n")
    run("mpirun.openmpi", *ON_TWO_HOSTS, *RANK)


def one_rank_sleeps(program, *arguments, rank=3, variable="PMIX_RANK", **more):
    """Expects that a job fails if one rank never calls hvd.init()."""
    path = shutil.which(program, path="/usr/bin")
    if path is None:
        raise Skip(f"there is no {program}: packaging/packages-test.txt names its package")
    script = f'[ "${variable}" != {rank} ] || exec sleep 20; exec {PYTHON} {WORKERS / "foreign_rank.py"}'
    environment = clean_environment(HOROVOD_INIT_TIMEOUT="8", **more)
    job = Job(*arguments, "sh", "-c", script, program=path, environment=environment)
    expect(job.wait() != 0, job.describe())
    return job


def names_it(job, name, error):
    """Expects the missing rank on the waiting ranks' status line, and in the error."""
    late = re.findall(r"(rank \d[ \w]*) not called hvd.init\(\) for 4 s, and the others wait there", job.err)
    expect(late == [f"{name} has"] and re.search(f"{name} has {error}", job.err), job.describe())


OF_PMIX = r"not come; all 4 ranks must call hvd.init\(\) within 8 s"


@world("a b", "--no-decoys")
def test_a_rank_of_mpirun_that_never_calls_init_is_named():
    pathlib.Path("/tmp/hostfile").write_text("a slots=2\nb slots=2\n")
    names_it(
        one_rank_sleeps("mpirun.openmpi", *ON_TWO_HOSTS, "-x", "HOROVOD_INIT_TIMEOUT"), "rank 3 on host b", OF_PMIX
    )


@world("a b", "--no-decoys")
def test_a_rank_of_srun_that_never_calls_init_is_named():
    with cluster() as variables:
        names_it(
            one_rank_sleeps("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", "-K", **variables),
            "rank 3 on host b",
            OF_PMIX,
        )


@world("a b", "--no-decoys")
def test_a_rank_of_a_plain_step_that_never_calls_init_is_named():
    with cluster() as variables:
        step = ("srun", "-N2", "--ntasks-per-node=2", "-K")
        job = one_rank_sleeps(*step, variable="SLURM_PROCID", **variables)
        names_it(job, "rank 3", r"not called hvd.init\(\) within [5-8] s")
        job = one_rank_sleeps(*step, rank=0, variable="SLURM_PROCID", **variables)
        for rank in range(1, 4):
            said = f"rank 0 on host a has not called hvd.init() for 4 s, and rank {rank} waits there"
            expect(job.err.count(said) == 1, job.describe())


@world()
def test_ranks_of_hydra_say_that_others_have_not_called_init():
    """PMI-1 does not report which rank is missing."""
    flags = ("-iface", network.BRIDGE, "-np", 4, "-hosts", "a:2,b:2")
    job = one_rank_sleeps("mpiexec.hydra", *flags, variable="PMI_RANK")
    said = re.findall(r"rank (\d) on host (\w) has waited in hvd.init\(\) for 4 s, and not all 4 ranks", job.err)
    expect(sorted(said) == [("0", "a"), ("1", "a"), ("2", "b")], job.describe())
    expect("PMI-1 does not name them; all 4 ranks must call hvd.init() within 8 s" in job.err, job.describe())


@world()
def test_pmi_of_hydra():
    run("mpiexec.hydra", "-iface", network.BRIDGE, "-np", 4, "-hosts", "a:2,b:2", *RANK)


def by_mpi():
    if not list((BUILD / "lib/horovod/bootstraps").glob("mpi_*.so")):
        raise Skip("no MPI is built: packaging/packages-test.txt names its packages")
    return {"HOROVOD_BOOTSTRAP": "mpi"}


@world("a b", "--no-decoys")
def test_mpi_of_open_mpi():
    pathlib.Path("/tmp/hostfile").write_text("a slots=2\nb slots=2\n")
    run(
        "mpirun.openmpi",
        "--allow-run-as-root",
        "-np",
        4,
        *"--hostfile /tmp/hostfile -bind-to none -map-by slot -x PYTHONPATH -x PATH -x HOROVOD_BOOTSTRAP".split(),
        *"-mca pml ob1 -mca btl".split(),
        "^openib",
        "-mca",
        "mpi_yield_when_idle",
        1,
        *RANK,
        **by_mpi(),
    )  # four ranks share this machine's cores


@world("a b", "--no-decoys")
def test_mpi_of_mpich():
    run("mpiexec.hydra", "-iface", network.BRIDGE, "-np", 4, "-hosts", "a:2,b:2", *RANK, **by_mpi())


def output_by_hand(server_flags, variables_of, command=RANK):
    """Returns the output of ranks that are started by hand on hosts, with a server on the launcher's machine."""
    token = pathlib.Path("/tmp/token")
    token.write_text("5a" * 32)
    token.chmod(0o600)
    out = tempfile.TemporaryFile("w+")
    server = subprocess.Popen(
        [BUILD / "bin" / "horovod-rendezvous", "--listen", ":29400", "--token-file", token, *map(str, server_flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        expect(server.stdout.readline(), "the server says nothing")
        ranks = []
        for rank, name in enumerate("aabb"):
            ranks.append(
                subprocess.Popen(
                    entering(name, *command),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=clean_environment(**variables_of(rank, token.read_text())),
                )
            )
        codes = [process.wait(LONG) for process in ranks]
    finally:
        server.kill()
        server.wait()
    out.seek(0)
    said = out.read()
    expect(codes == [0] * 4, f"{codes}\n{said}")
    return said


def by_hand(server_flags, variables_of):
    said = output_by_hand(server_flags, variables_of)
    # If the server assigns the ranks, the first host that joins gets the first ranks.
    first = re.search(r"rank 0 of 4, .* on ([ab])\b", said)
    holds(said, lambda: said, hosts="ba" if "-np" in server_flags and first and first[1] == "b" else "ab")


def store_of(token):
    return {"HOROVOD_STORE": f"tcp:{network.LAUNCHER_ADDRESS}:29400", "HOROVOD_JOB_SECRET": token}


@world()
def test_rank_and_size_by_hand():
    by_hand((), lambda rank, token: {"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": "4", **store_of(token)})


def variables_of_the_original(rank, _token):
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": str(rank % 2),
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": str(rank // 2),
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": network.LAUNCHER_ADDRESS,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "29400",
        # Variables that Ray's processes inherit if srun has started Ray.
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
    }


@world()
def test_variables_of_the_original():
    by_hand(("--insecure-compat",), variables_of_the_original)


@world()
def test_places_from_the_server():
    by_hand(("-np", 4), lambda _rank, token: store_of(token))


if __name__ == "__main__":
    main()
