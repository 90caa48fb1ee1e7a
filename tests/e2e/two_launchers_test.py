#!/usr/bin/python3 -B
"""Ranks of two launchers in one job, and ranks whose chosen backend is not installed: each rank prints an
error with the cause and the remedy."""

import shutil

from harness import *

import backends_test as backends

OPENMPI = (*backends.OPENMPI, "--oversubscribe", *backends.MCA)
RANK = (
    PYTHON,
    "-c",
    """
import os
import horovod.numpy as hvd
try:
    hvd.init()
    said = "not refused"
except Exception as refusal:
    said = "refused: " + str(refusal).strip().splitlines()[0]
os.write(1, f"{said}\\n".encode())  # whole
""",
)


def refused(out, count, words, say):
    expect(len(re.findall(f"refused: .*{words}", out)) == count and "not refused" not in out, say())


def path_of(program):
    path = shutil.which(program, path="/usr/bin:/bin")
    if path is None:
        raise Skip(f"there is no {program}: packaging/packages-test.txt names its package")
    return path


def test_a_launcher_inside_of_each_rank_of_ours():
    inner = [path_of("mpirun.openmpi"), *OPENMPI[1:], "-np", 2]
    for ranks in (1, 2):
        job = Job("-np", ranks, *inner, *RANK)
        job.ends_with(0)
        said = "each of the 2 ranks starts its own mpirun.openmpi; for one job, leave mpirun.openmpi out, or"
        expect((said in job.err) == (ranks == 2), job.describe())
        for rank in range(ranks):
            for other in range(2):
                refused(
                    job.out,
                    1,
                    "two launchers have started this process: horovodrun says rank "
                    rf"{rank} of {ranks} and Open MPI's mpirun \(OMPI_COMM_WORLD_RANK\) says rank "
                    f"{other} of 2; use one of them",
                    job.describe,
                )
        job.leaves_nothing()
    job = Job("-np", 2, path_of("mpiexec.hydra"), "-np", 2, *RANK)
    job.ends_with(0)
    refused(job.out, 4, r"a launcher with PMI \(PMI_RANK\) says rank . of 2; use one", job.describe)
    job.leaves_nothing()


def test_the_inner_one_of_two_nested_launchers_counts():
    says = (
        PYTHON,
        "-c",
        "import os\nimport horovod.numpy as hvd\nhvd.init()\n"
        "os.write(1, f'rank {hvd.rank()} of {hvd.size()}\\n'.encode())\nhvd.shutdown()",
    )
    openmpi = (path_of("mpirun.openmpi"), *OPENMPI[1:])
    hydra = (path_of("mpiexec.hydra"), "-launcher", "fork")
    for outer, inner in ((openmpi, hydra), (hydra, openmpi)):
        job = Job(*outer[1:], "-np", 1, *inner, "-np", 2, *says, program=outer[0])
        job.ends_with(0)
        expect(sorted(re.findall(r"rank \d of \d", job.out)) == ["rank 0 of 2", "rank 1 of 2"], job.describe())


def test_our_launcher_inside_of_each_rank_of_another():
    for launcher in (OPENMPI, backends.HYDRA):
        job = backends.launch(launcher, ["-np", 2, LAUNCHER, "-np", 2, *RANK])
        expect(job.wait() != 0, job.describe())
        said = re.findall("mpirun has started horovodrun 2 times; start it once, by horovodrun --mpi", job.err)
        expect(said and "refused" not in job.out, job.describe())


def test_a_rank_that_never_comes_is_waited_for_and_then_told_of():
    for launcher, rank in ((OPENMPI, "OMPI_COMM_WORLD_RANK"), (backends.HYDRA, "PMI_RANK")):
        job = backends.launch(
            launcher,
            ["-np", 2, "sh", "-c", f'test ${rank} = 0 && exec sleep 9; exec "$@"', "sh", *RANK],
            HOROVOD_INIT_TIMEOUT="3",
        )
        job.wait()
        refused(
            job.out,
            1,
            r"; all 2 ranks must call hvd.init\(\) within 3 s, which "
            "HOROVOD_INIT_TIMEOUT may raise",
            job.describe,
        )


def test_variables_by_hand_that_disagree_with_the_launcher():
    for size, words in (
        (2, "but .* says rank 1 of 2; unset HOROVOD_RANK and HOROVOD_SIZE"),
        (3, "say rank 0 of 3, but .* says rank 1 of 2; unset HOROVOD_RANK"),
    ):
        job = backends.launch(
            OPENMPI,
            ["-np", 2, "-x", "HOROVOD_RANK", "-x", "HOROVOD_SIZE", *RANK],
            HOROVOD_RANK="0",
            HOROVOD_SIZE=str(size),
        )
        job.ends_with(0)
        refused(job.out, 1, words, job.describe)
        refused(job.out, 2, "unset HOROVOD_RANK and HOROVOD_SIZE", job.describe)
    job = backends.launch(backends.HYDRA, ["-np", 2, *RANK], HOROVOD_RANK="0", HOROVOD_SIZE="1")
    job.ends_with(0)
    refused(job.out, 2, r"say rank 0 of 1, but a launcher with PMI \(PMI_RANK\) says rank . of 2", job.describe)


def rendezvous(*flags):
    """Starts a rendezvous server at a free port. Yields the variables that ranks need for it."""
    token = pathlib.Path(tempfile.mkdtemp(prefix="e2e-"), "token")
    token.write_text("5a" * 32)
    token.chmod(0o600)
    server = subprocess.Popen(
        [BUILD / "bin" / "horovod-rendezvous", "--listen", "127.0.0.1:0", "--token-file", token, *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    line = server.stdout.readline()
    found = re.search(r"127\.0\.0\.1:(\d+)", line)
    expect(found, f"the server says {line!r}")
    return server, {"HOROVOD_STORE": f"tcp:127.0.0.1:{found[1]}", "HOROVOD_JOB_SECRET": "5a" * 32}


def test_half_of_the_ranks_by_one_launcher_and_half_by_another():
    server, store = rendezvous("-np", 5)
    try:
        names = [word for name in store for word in ("-x", name)]
        jobs = [
            backends.launch(OPENMPI, ["-np", 2, *names, *RANK], **store),
            backends.launch(backends.HYDRA, ["-np", 2, *RANK], **store),
            Job(*RANK[1:], program=PYTHON, environment=clean_environment(**store)),
        ]
        for job in jobs:
            job.ends_with(0)
        for job, name in zip(jobs, (r"Open MPI's mpirun \(OMPI_", r"a launcher with PMI \(PMI_")):
            refused(
                job.out,
                2,
                f"the rendezvous of HOROVOD_STORE has 5 ranks, but {name}.* says rank . "
                "of 2; start all ranks by one launcher",
                job.describe,
            )
        # The rank without a launcher also gets an error about the other ranks.
        refused(jobs[2].out, 1, "rank .: the rendezvous of HOROVOD_STORE has 5 ranks", jobs[2].describe)
    finally:
        server.kill()
        server.wait()


def test_a_rank_that_lacks_its_backend_says_so_before_the_others_come():
    server, store = rendezvous()
    try:

        def start(rank, **more):
            return Job(
                *RANK[1:],
                program=PYTHON,
                environment=clean_environment(HOROVOD_RANK=str(rank), HOROVOD_SIZE="2", **store, **more),
            )

        lacking = start(0, HOROVOD_CPU_OPERATIONS="ccl-of-nobody")
        wait_until(
            lambda: "HOROVOD_CPU_OPERATIONS is ccl-of-nobody, but this build has no such backend" in lacking.err,
            60,
            lacking.describe,
        )
        expect(lacking.process.poll() is None, lacking.describe())
        other = start(1)
        for job in (lacking, other):
            job.ends_with(0)
            refused(job.out, 1, "HOROVOD_CPU_OPERATIONS is ccl-of-nobody", job.describe)
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
