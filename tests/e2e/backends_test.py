#!/usr/bin/python3 -B
"""The backends of a job: the conformance suite with one process per rank, on one machine and on two hosts; whole jobs;
and the errors for a backend that is not available."""

import ctypes
import shutil

from harness import *

import check_build_test as check_build
import network

BACKENDS = BUILD / "lib" / "horovod" / "ops"
CONTROLLERS = BUILD / "lib" / "horovod" / "controllers"
SUITE = BUILD / "tests" / "backend_conformance"
RANK = WORKERS / "foreign_rank.py"
OPENMPI = ("mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none")
MCA = ("-mca", "pml", "ob1", "-mca", "btl", "^openib")  # see docs/schedulers.md
HYDRA = ("mpiexec.hydra",)
SECONDS = 400  # limit for a suite, which takes 10 s on an idle machine


def backend(name, folder=BACKENDS):
    path = folder / f"{name}.so"
    if not path.exists():
        raise Skip(f"{path.name} is not built: packaging/packages-test.txt names its package")
    return path


def launch(launcher, arguments, **more):
    path = shutil.which(launcher[0], path="/usr/bin:/bin")
    if path is None:
        raise Skip(f"there is no {launcher[0]}: packaging/packages-test.txt names its package")
    return Job(*launcher[1:], *arguments, program=path, environment=clean_environment(**more))


def passed(folder):
    """Returns the number of ranks that ran cases and passed all of them."""
    verdicts = [path.read_text() for path in pathlib.Path(folder).glob("verdict-*")]
    return sum(bool(re.fullmatch("[1-9][0-9]* cases, 0 failed", verdict)) for verdict in verdicts)


def conforms(name, launcher, ranks, place, *cases, aborts=False, **more):
    """With `aborts`, one rank may abort before the others end; the launcher then ends the others. In a sanitized build,
    the suite reports accesses to freed memory, but not MPI's own leaks."""
    folder = tempfile.mkdtemp(prefix="world-", dir=BUILD / "tests")
    try:
        job = launch(
            launcher,
            ["-np", ranks, *place, SUITE, "--no-colors=true", *cases],
            HVD_BACKEND=str(backend(name)),
            HVD_WORLD_FOLDER=folder,
            ASAN_OPTIONS="detect_leaks=0",
            **more,
        )
        code = job.wait(SECONDS)
        expect("Sanitizer" not in job.out + job.err, job.describe())
        if aborts:
            expect(passed(folder) and "is NOT correct" not in job.out, job.describe())
        else:
            expect(code == 0 and passed(folder) == ranks, job.describe())
    finally:
        shutil.rmtree(folder)


def check_sums(job, ranks):
    job.ends_with(0)
    total = ranks * (ranks + 1) // 2
    for rank in range(ranks):
        expect(re.search(rf"rank {rank} of {ranks}, .* sum {total} ", job.out), job.describe())


def test_mpi_of_open_mpi_conforms():
    conforms("mpi_openmpi", (*OPENMPI, "--oversubscribe"), 4, MCA, "-tc=backend*", "-tce=*abort*")


def test_mpi_of_open_mpi_conforms_when_it_is_aborted():
    conforms("mpi_openmpi", (*OPENMPI, "--oversubscribe"), 3, MCA, "-tc=backend*abort*", aborts=True)


def test_mpi_of_mpich_conforms():
    conforms("mpi_mpich", HYDRA, 4, (), "-tc=backend*", "-tce=*abort*")


def test_mpi_of_mpich_conforms_when_it_is_aborted():
    conforms("mpi_mpich", HYDRA, 3, (), "-tc=backend*abort*", aborts=True)


# More ranks than Open MPI's sums by slices support, and the layouts of 8 ranks.
MANY = ("-tc=backend: many ranks*,backend: a NaN*,backend: an average of float16*",)


def test_mpi_with_many_ranks_whose_tensors_lie_differently():
    conforms("mpi_openmpi", (*OPENMPI, "--oversubscribe"), 18, MCA, *MANY)
    conforms("mpi_mpich", HYDRA, 18, (), *MANY)


@world("a b", "--no-decoys")
def test_mpi_of_open_mpi_conforms_on_two_hosts():
    pathlib.Path("/tmp/hostfile").write_text("a slots=2\nb slots=2\n")
    conforms(
        "mpi_openmpi",
        OPENMPI,
        4,
        (
            *"--hostfile /tmp/hostfile -map-by slot".split(),
            *MCA,
            *"-x HVD_BACKEND -x HVD_WORLD_FOLDER -x HVD_WORLD_HOSTS".split(),
        ),
        "-tc=backend*",
        "-tce=*abort*",
        HVD_WORLD_HOSTS="1",
    )


@world("a b", "--no-decoys")
def test_mpi_of_mpich_conforms_on_two_hosts():
    conforms(
        "mpi_mpich",
        (*HYDRA, "-iface", network.BRIDGE, "-hosts", "a:2,b:2"),
        4,
        (),
        "-tc=backend*",
        "-tce=*abort*",
        HVD_WORLD_HOSTS="1",
    )


@world("a b", "--no-decoys")
def test_a_job_that_chooses_mpi_of_mpich_on_two_hosts():
    backend("mpi_mpich")
    check_sums(
        launch(
            (*HYDRA, "-iface", network.BRIDGE, "-hosts", "a:2,b:2"),
            ["-np", 4, PYTHON, RANK],
            HOROVOD_CPU_OPERATIONS="mpi",
        ),
        4,
    )


LATE = """
import os, time
import horovod.numpy as hvd
hvd.init()
hvd.barrier()
rank = hvd.rank()
hvd.shutdown()
if rank == 0:
    time.sleep(25)  # longer than the time limit of MPI_Finalize after all ranks have arrived
    os.write(1, b"still here\\n")
    time.sleep(5)
"""


@world("a b", "--no-decoys")
def test_a_rank_of_mpich_waits_for_another_that_is_long_in_its_own_program():
    backend("mpi_mpich")
    job = launch(
        (*HYDRA, "-iface", network.BRIDGE, "-hosts", "a,b"),
        ["-np", 2, PYTHON, "-c", LATE],
        HOROVOD_CPU_OPERATIONS="mpi",
    )
    job.wait_for("still here", seconds=120)
    expect("MPI_Finalize" not in job.err, job.describe())
    job.ends_with(0)


ENDS = """
import os, sys
import horovod.numpy as hvd
hvd.init()
hvd.barrier()
hvd.shutdown()
os.write(1, b"at its end\\n")
sys.exit(int(sys.argv[1]))
"""


@world("a b", "--no-decoys")
def test_a_rank_of_mpich_that_hangs_in_mpi_finalize_leaves_once_all_are_there():
    backend("mpi_mpich")
    stuck = BUILD / "tests" / "libmpich_stuck.so"
    for code in (0, 3):
        job = launch(
            (*HYDRA, "-iface", network.BRIDGE, "-hosts", "a,b"),
            ["-np", 2, PYTHON, "-c", ENDS, code],
            HOROVOD_CPU_OPERATIONS="mpi",
            HOROVOD_MPI_LIBRARY=str(stuck),
        )
        job.ends_with(code)
        expect(job.out.count("at its end") == 2, job.describe())
        # The other rank may wait for the end of a connection that this rank does not serve.
        expect(job.err.count("MPI_Finalize does not end though all ranks are there") in (1, 2), job.describe())
        job.leaves_nothing()


def conforms_without_launcher(name, ranks, places, *cases, seconds=SECONDS, **more):
    """places: the words before each rank's command."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="world-", dir=BUILD / "tests"))
    jobs = []
    try:
        for rank in range(ranks):
            command = [*places[rank], SUITE, "--no-colors=true", *(cases or ["-tc=backend*"])]
            jobs.append(
                Job(
                    *command[1:],
                    program=command[0],
                    environment=clean_environment(
                        HVD_BACKEND=str(backend(name)),
                        HVD_WORLD_FOLDER=str(folder),
                        **more,
                        HVD_WORLD_RANK=str(rank),
                        HVD_WORLD_SIZE=str(ranks),
                    ),
                )
            )
        codes = [job.wait(seconds) for job in jobs]
        expect(codes == [0] * ranks and passed(folder) == ranks, "\n".join(job.describe() for job in jobs))
    finally:
        for job in jobs:
            if job.process.poll() is None:
                job.process.kill()
        shutil.rmtree(folder)


def test_gloo_conforms():
    conforms_without_launcher("gloo", 4, [()] * 4)


def test_gloo_with_many_ranks_whose_tensors_lie_differently():
    conforms_without_launcher("gloo", 18, [()] * 18, *MANY)


def test_gloo_lets_an_abort_end_a_call_that_waits_for_a_silent_rank():
    # Gloo's own time limit, 300 s, would end the call.
    conforms_without_launcher("gloo", 2, [()] * 2, "-tc=silent*", seconds=100)


def test_jobs_that_choose_gloo():
    backend("gloo")
    job = Job(
        "-np",
        3,
        PYTHON,
        RANK,
        "twice",
        environment=clean_environment(HOROVOD_CPU_OPERATIONS="libgloo", HOROVOD_LOG_LEVEL="info"),
    )
    check_sums(job, 3)
    expect("tensor operations go through libgloo" in job.err, job.describe())
    job.leaves_nothing()


@world()
def test_a_job_that_chooses_gloo_on_two_hosts():
    backend("gloo")
    job = Job(
        *"-np 4 -H a:2,b:2 -x HOROVOD_CPU_OPERATIONS=libgloo -x HOROVOD_GLOO_IFACE=eth0".split(), PYTHON, RANK, "twice"
    )
    check_sums(job, 4)
    job.leaves_nothing()


def oneccl():
    """Returns the variables of a job that uses oneCCL."""
    if "HVD_TEST_CCL" not in os.environ:
        raise Skip("HVD_TEST_CCL names no libccl.so.1")
    backend("ccl")
    return {
        "HOROVOD_CPU_OPERATIONS": "CCL",
        "HOROVOD_CCL_LIBRARY": os.environ["HVD_TEST_CCL"],
        "HOROVOD_LOG_LEVEL": "info",
    }


def test_oneccl_conforms():
    for ranks in (2, 4):
        conforms_without_launcher("ccl", ranks, [()] * ranks, "-tc=backend*", "-tce=*abort*", **oneccl())
    conforms_without_launcher("ccl", 3, [()] * 3, "-tc=backend*abort*", HVD_BACKEND_ENDS="1", **oneccl())


def test_oneccl_with_many_ranks_whose_tensors_lie_differently():
    conforms_without_launcher("ccl", 18, [()] * 18, *MANY, **oneccl())


@world("a b", "--no-decoys")
def test_oneccl_conforms_on_two_hosts():
    folder = tempfile.mkdtemp(prefix="world-", dir=BUILD / "tests")
    variables = {
        **oneccl(),
        "HVD_BACKEND": backend("ccl"),
        "HVD_WORLD_FOLDER": folder,
        "HVD_WORLD_HOSTS": "1",
        "HOROVOD_GLOO_IFACE": "eth0",
    }
    try:
        job = Job(
            *"-np 4 -H a:2,b:2".split(),
            *(word for name, value in variables.items() for word in ("-x", f"{name}={value}")),
            "sh",
            "-c",
            "HVD_WORLD_RANK=$HOROVOD_RANK HVD_WORLD_SIZE=$HOROVOD_SIZE exec "
            f"{SUITE} --no-colors=true '-tc=backend*' '-tce=*abort*'",
        )
        code = job.wait(SECONDS)
        expect(code == 0 and passed(folder) == 4, job.describe())
    finally:
        shutil.rmtree(folder)


def test_oneccl_carries_jobs_and_what_starts_again():
    job = Job("-np", 3, PYTHON, RANK, "twice", environment=clean_environment(**oneccl()))
    check_sums(job, 3)
    expect(re.search("tensor operations go through oneCCL 202", job.err), job.describe())
    expect(job.out.count("again rank") == 3, job.describe())
    job.leaves_nothing()


@world()
def test_oneccl_carries_a_job_on_two_hosts():
    job = Job(
        *"-np 4 -H a:2,b:2 --network-interfaces eth0".split(),
        *(word for name, value in oneccl().items() for word in ("-x", f"{name}={value}")),
        PYTHON,
        RANK,
        "twice",
    )
    check_sums(job, 4)
    job.leaves_nothing()


def test_oneccl_lets_a_rank_that_dies_end_the_job():
    job = Job("-np", 3, PYTHON, RANK, "fail", 1, environment=clean_environment(**oneccl()))
    expect(job.wait() == 7, job.describe())
    expect("rank 1" in job.err, job.describe())
    job.leaves_nothing()


def test_oneccl_is_marked_where_a_sum_is_right():
    chosen = oneccl()
    chosen.pop("HOROVOD_CPU_OPERATIONS")
    library = chosen["HOROVOD_CCL_LIBRARY"]
    with tempfile.TemporaryDirectory() as folder:
        chosen["PATH"] = folder  # without a Python, no framework is imported
        text = check_build.check_build("--verbose", **chosen)
        expect(re.search(r"\[X\] CCL: 202\d\.\d+\.\d+, \S*/libccl\.so", text), text)
        broken = pathlib.Path(folder, "libccl.so.1")
        broken.write_text("no library\n")
        for taken, words in (
            ({"HOROVOD_CCL_LIBRARY": str(broken)}, "libccl.so.1"),
            ({"CCL_OFI_LIBRARY_PATH": "/nowhere/libfabric.so.1"}, "oneCCL"),
            ({"HOROVOD_CCL_LIBRARY": "libm.so.6"}, "has no symbol _ZN3ccl"),
        ):
            text = check_build.check_build("--verbose", **{**chosen, **taken})
            expect(re.search(rf"\[ \] CCL: .*{words}.*\n +fix: \S", text), f"{taken}:\n{text}")
    python = [PYTHON, "-c", "import horovod.torch as hvd; print(hvd.ccl_built())"]
    for known, said in ((library, "True"), ("/nowhere/libccl.so.1", "False")):
        done = run_to_end(python, check=True, env=clean_environment(HOROVOD_CCL_LIBRARY=known))
        expect(done.stdout.strip() == said, done)


def test_jobs_that_choose_mpi():
    chosen = {"HOROVOD_CPU_OPERATIONS": "mpi", "HOROVOD_LOG_LEVEL": "info"}
    for launcher, name, words in (
        ((*OPENMPI, "--oversubscribe", *MCA), "mpi_openmpi", "Open MPI"),
        (HYDRA, "mpi_mpich", "MPICH"),
    ):
        backend(name)
        job = launch(launcher, ["-np", 3, PYTHON, RANK, "twice"], **chosen)
        check_sums(job, 3)
        expect(re.search(rf"tensor operations go through {words}", job.err), job.describe())
        expect(job.out.count("again rank") == 3, job.describe())


def test_a_job_that_chooses_mpi_beside_mpi4py():
    if subprocess.run([PYTHON, "-c", "import mpi4py"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise Skip("there is no mpi4py: packaging/packages-test.txt names its package")
    backend("mpi_openmpi")
    for first in ("mpi4py", "horovod"):
        check_sums(
            launch(
                (*OPENMPI, "--oversubscribe", *MCA),
                ["-np", 2, PYTHON, RANK, "mpi", first],
                HOROVOD_CPU_OPERATIONS="mpi",
            ),
            2,
        )


# Each backend with the values of e2e.layouts: in the order of the hosts, one, two, four, and two of four ranks.
LAYOUTS = ("a:4", "a:2,b:2", "a:1,b:1,c:1,d:1", "a:4,b:4")
CHECKS = (WORKERS / "numeric_rank.py", "values", "memory")


def computes_alike(make):
    """`make` makes the job for a list of hosts and its number of ranks."""
    for hosts in LAYOUTS:
        ranks = sum(int(host.partition(":")[2]) for host in hosts.split(","))
        job = make(hosts, ranks)
        job.ends_with(0)
        expect(job.out.count("done") == ranks, job.describe())


def variables_of(values):
    return [word for name, value in values.items() for word in ("-x", f"{name}={value}")]


@world("a b c d", "--no-decoys")
def test_gloo_computes_alike_in_each_layout():
    backend("gloo")
    chosen = variables_of({"HOROVOD_CPU_OPERATIONS": "libgloo", "HOROVOD_GLOO_IFACE": "eth0"})
    computes_alike(lambda hosts, ranks: Job("-np", ranks, "-H", hosts, *chosen, PYTHON, *CHECKS))


@world("a b c d", "--no-decoys")
def test_oneccl_computes_alike_in_each_layout():
    chosen = variables_of(oneccl())
    computes_alike(
        lambda hosts, ranks: Job("-np", ranks, "-H", hosts, "--network-interfaces", "eth0", *chosen, PYTHON, *CHECKS)
    )


@world("a b c d", "--no-decoys")
def test_mpi_of_open_mpi_computes_alike_in_each_layout():
    backend("mpi_openmpi")
    place = ("-map-by", "slot", *MCA, "-x", "PYTHONPATH", "-x", "HOROVOD_CPU_OPERATIONS")
    computes_alike(
        lambda hosts, ranks: launch(
            OPENMPI, ["-np", ranks, "-H", hosts, *place, PYTHON, *CHECKS], HOROVOD_CPU_OPERATIONS="mpi"
        )
    )


@world("a b c d", "--no-decoys")
def test_mpi_of_mpich_computes_alike_in_each_layout():
    backend("mpi_mpich")
    computes_alike(
        lambda hosts, ranks: launch(
            (*HYDRA, "-iface", network.BRIDGE, "-hosts", hosts),
            ["-np", ranks, PYTHON, *CHECKS],
            HOROVOD_CPU_OPERATIONS="mpi",
        )
    )


def refused(launcher, words, **more):
    """Expects that the job fails with these words."""
    job = launch((*launcher,), ["-np", 2, PYTHON, RANK], **more)
    expect(job.wait() != 0, job.describe())
    expect(re.search(words, job.err), job.describe())


def opens(*names):
    """Returns the first of these libraries that can be opened, or None."""
    for name in names:
        try:
            ctypes.CDLL(name)
            return name
        except OSError:
            continue
    return None


def test_nccl_conforms_with_one_rank_for_each_gpu():
    gpus = len([path for path in pathlib.Path("/dev").glob("nvidia*") if path.name[6:].isdigit()])
    if gpus == 0:
        raise Skip("this machine has no GPU of NVIDIA's")
    nccl = os.environ.get("HOROVOD_NCCL_LIBRARY") or opens("libnccl.so.2")
    cuda = os.environ.get("HOROVOD_CUDA_LIBRARY") or opens("libcudart.so.13", "libcudart.so.12")
    if nccl is None or cuda is None:
        raise Skip(
            "no libnccl.so.2 or libcudart.so can be opened; HOROVOD_NCCL_LIBRARY and HOROVOD_CUDA_LIBRARY may name them"
        )
    ranks = min(gpus, 4)
    conforms_without_launcher(
        "nccl",
        ranks,
        [("/usr/bin/env", f"HVD_BACKEND_DEVICE={rank}") for rank in range(ranks)],
        HOROVOD_NCCL_LIBRARY=nccl,
        HOROVOD_CUDA_LIBRARY=cuda,
    )


# A test library replaces NCCL and CUDA on a machine without a GPU: see tests/plugins/nccl.
DOUBLE = {
    "HOROVOD_NCCL_LIBRARY": str(BUILD / "tests" / "libnccl_double.so"),
    "HOROVOD_CUDA_LIBRARY": str(BUILD / "tests" / "libnccl_double.so"),
    "HVD_DOUBLE_RULES": "all",
}


def test_nccl_conforms_over_a_double_of_it():
    conforms_without_launcher(
        "nccl", 3, [("/usr/bin/env", f"HVD_BACKEND_DEVICE={rank}") for rank in range(3)], **DOUBLE
    )


def test_ranks_with_different_nccl_do_not_begin():
    backend("nccl")
    for change, words in (
        (
            "export HVD_DOUBLE_VERSION=2180$HOROVOD_RANK",
            "rank 0 has NCCL 2.18.0, and rank 1 has NCCL 2.18.1: all ranks need one version",
        ),
        (
            "[ $HOROVOD_RANK = 0 ] && export HOROVOD_NCCL_LIBRARY=/nowhere/libnccl.so.2",
            "rank 0 has none: .*/nowhere/libnccl.so.2.*, and rank 1 has NCCL",
        ),
    ):
        job = Job(
            "-np",
            2,
            "sh",
            "-c",
            f"{change}; exec {PYTHON} {RANK}",
            environment=clean_environment(HOROVOD_GPU_OPERATIONS="NCCL", **DOUBLE),
        )
        expect(job.wait() != 0, job.describe())
        expect(len(re.findall(words, job.err)) >= 2, job.describe())
        job.leaves_nothing()


def test_a_rank_without_a_gpu_joins_the_others():
    backend("nccl")
    if os.path.exists("/dev/nvidiactl"):
        raise Skip("this machine has a GPU")
    for chosen in ({"HOROVOD_GPU_OPERATIONS": "NCCL"}, {}):
        job = Job(
            "-np",
            2,
            "sh",
            "-c",
            f"[ $HOROVOD_RANK = 0 ] && unset HOROVOD_CUDA_LIBRARY; exec {PYTHON} {RANK}",
            environment=clean_environment(**chosen, **DOUBLE),
        )
        check_sums(job, 2)
        expect("ranks without a GPU: 0; they take part in operations on host memory only" in job.err, job.describe())


# A forked child must find CUDA uninitialised, and the program chooses its GPU after init.
AFTER_INIT = """
import ctypes, os, sys
import horovod.numpy as hvd
hvd.init()
os.environ["HVD_DOUBLE_DEVICES"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = str(hvd.local_rank())
child = os.fork()
count = ctypes.c_int()
code = ctypes.CDLL(os.environ["HOROVOD_CUDA_LIBRARY"]).cudaGetDeviceCount(ctypes.byref(count))
if child == 0:
    os._exit(0 if (code, count.value) == (0, 1) else 3)
assert (code, count.value) == (0, 1), (code, count.value)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
hvd.shutdown()
"""


def test_a_program_chooses_its_gpu_and_forks_after_init():
    backend("nccl")
    for chosen in ({"HOROVOD_GPU_OPERATIONS": "NCCL"}, {}):
        job = Job(
            "-np",
            2,
            PYTHON,
            "-c",
            AFTER_INIT,
            environment=clean_environment(**chosen, HVD_DOUBLE_DEVICES="0", **DOUBLE),
        )
        job.ends_with(0)


def test_ranks_with_different_operations_on_gpus_do_not_begin():
    set_on_one = "[ $HOROVOD_RANK = 0 ] && export HOROVOD_GPU_OPERATIONS=HOST"
    job = Job("-np", 2, "sh", "-c", f"{set_on_one}; exec {PYTHON} {RANK}", environment=clean_environment())
    expect(job.wait() != 0, job.describe())
    words = "HOROVOD_GPU_OPERATIONS differs between the ranks: rank 0 on host .* has host, rank 1 .* has no value; "
    expect(len(re.findall(words, job.err)) >= 2, job.describe())
    job.leaves_nothing()


def test_backends_that_cannot_be_had():
    backend("mpi_mpich")
    refused(
        HYDRA,
        "HOROVOD_CPU_OPERATIONS is nonesuch, but this build has no such backend",
        HOROVOD_CPU_OPERATIONS="nonesuch",
    )
    backend("ccl")
    refused(
        HYDRA,
        "HOROVOD_CPU_OPERATIONS is ccl, but .*nowhere/libccl.so.1",
        HOROVOD_CPU_OPERATIONS="ccl",
        HOROVOD_CCL_LIBRARY="/nowhere/libccl.so.1",
    )
    refused(HYDRA, "HOROVOD_CPU_OPERATIONS is ddl, .* DDL was discontinued", HOROVOD_CPU_OPERATIONS="ddl")
    refused(
        HYDRA,
        "HOROVOD_CPU_OPERATIONS is mpi, but .*nowhere/libmpi.so.12",
        HOROVOD_CPU_OPERATIONS="mpi",
        HOROVOD_MPI_LIBRARY="/nowhere/libmpi.so.12",
    )
    for value, why in (("NCCL", ".*"), ("DDL", ".*DDL was discontinued.*")):
        job = launch(HYDRA, ["-np", 2, PYTHON, RANK], HOROVOD_GPU_OPERATIONS=value)
        check_sums(job, 2)
        expect(
            len(re.findall(f"(?i)HOROVOD_GPU_OPERATIONS is {value}, but {why}; tensors of GPUs go through", job.err))
            == 2,
            job.describe(),
        )
    job = launch(HYDRA, ["-np", 2, PYTHON, RANK], HOROVOD_GPU_OPERATIONS="MPI", HOROVOD_LOG_LEVEL="info")
    check_sums(job, 2)
    expect(
        len(re.findall("HOROVOD_GPU_OPERATIONS=mpi: tensors of GPUs go through host memory", job.err)) == 2
        and "tensor operations go through" not in job.err,
        job.describe(),
    )
    refused(HYDRA, "libm.so.6 is no library of MPI", HOROVOD_CPU_OPERATIONS="mpi", HOROVOD_MPI_LIBRARY="libm.so.6")
    libraries = " ".join(["libmpi.so.40", "libmpich.so.12"])
    refused(
        HYDRA,
        "two MPI implementations are in one process, .*libmpi.so.40.* and .*libmpich",
        HOROVOD_CPU_OPERATIONS="mpi",
        LD_PRELOAD=libraries,
    )


if __name__ == "__main__":
    main()
