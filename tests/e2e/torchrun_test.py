#!/usr/bin/python3 -B
"""Processes that torchrun, or a launcher with the same variables, has started: they join one job, or an error gives the
reason why they cannot."""

import shlex
import socket

from harness import *

PYTHONS = os.environ.get("HVD_TEST_PYTHONS", PYTHON).split(":")
RANK = WORKERS / "torchrun_rank.py"
SAY = """
import os
import horovod.numpy as hvd
try:
    hvd.init()
    said = f"rank {hvd.rank()} of {hvd.size()}"
except Exception as refusal:
    said = "refused: " + str(refusal).strip().splitlines()[0]
os.write(1, f"{said}\\n".encode())  # in one write
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torchruns():
    """Returns interpreters that have torchrun. The one of torch 1.13 needs Python 3.10 or older."""
    tried = [
        python
        for python in PYTHONS
        if subprocess.run(
            [python, "-m", "torch.distributed.run", "--standalone", "--no_python", "true"],
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
        == 0
    ]
    if not tried:
        raise Skip("no torchrun works: HVD_TEST_PYTHONS names interpreters that have torch 2")
    return tried


def torchrun(python, *arguments, **more):
    return Job("-m", "torch.distributed.run", *arguments, program=python, **more)


def joined(job, ranks, local, theirs):
    job.ends_with(0)
    total = ranks * (ranks + 1) // 2
    for rank in range(ranks):
        line = (
            f"rank {rank} of {ranks}, local {rank % local} of {local}, is {rank} of {ranks}: "
            f"{total} {total} {total if theirs else rank + 1}"
        )
        expect(line in job.out, f"{line!r} is missing\n{job.describe()}")


def started_by_hand(variables, seconds=60, **more):
    """Starts processes with these variables. Returns each process with its output."""
    jobs = [Job("-c", SAY, program=PYTHON, environment=clean_environment(**own), **more) for own in variables]
    for job in jobs:
        job.wait(seconds)
    return jobs


def test_torchrun_and_torch_distributed_in_one_program():
    for python in torchruns():
        for first in ("horovod", "torch"):
            joined(torchrun(python, "--standalone", "--nproc_per_node", 2, RANK, first), 2, 2, True)


def test_launchers_that_leave_the_port_to_rank_0():
    """DeepSpeed and Kubernetes' PyTorchJob set fewer variables, and rank 0 itself makes the TCPStore."""
    same = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    for more in ({}, {"LOCAL_WORLD_SIZE": "2"}):
        jobs = started_by_hand([{**same, **more, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)])
        for rank, job in enumerate(jobs):
            expect(job.out == f"rank {rank} of 2\n", job.describe())


@world()
def test_torchrun_on_two_hosts():
    python = torchruns()[0]
    port = free_port()
    jobs = []
    for node, name in enumerate("ab"):
        where = ("-t", host.pid_of(name), "-m", "-u", "-i", "-n", "-p")
        jobs.append(
            Job(
                *where,
                python,
                *"-m torch.distributed.run --nnodes 2 --nproc_per_node 2".split(),
                "--node_rank",
                node,
                "--master_addr",
                "10.77.0.1",
                "--master_port",
                port,
                RANK,
                "torch",
                program="/usr/bin/nsenter",
                environment=clean_environment(GLOO_SOCKET_IFNAME="eth0"),
            )
        )
    for job in jobs:
        job.ends_with(0)
    said = "".join(job.out for job in jobs)
    for rank in range(4):
        line = f"rank {rank} of 4, local {rank % 2} of 2, is {rank} of 4: 10 10 10"
        expect(line in said, f"{line!r} is missing\n{jobs[0].describe()}\n{jobs[1].describe()}")


def test_torchrun_inside_of_one_rank_of_ours_is_refused():
    script = scratch() / "say.py"
    script.write_text(SAY)
    inner = (torchruns()[0], "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2, script)
    job = Job("-np", 1, "--init-timeout", 8, *inner)
    job.wait()
    refused = re.findall(
        r"refused: .*two launchers have started this process: horovodrun says rank 0 of 1 and "
        r"torchrun \(RANK\) says rank \d of 2; use one of them",
        job.out,
    )
    expect(len(refused) == 2 and not re.search(r"rank \d of \d$", job.out, re.MULTILINE), job.describe())
    # Two processes that claim the same rank are accepted if the user declares the runs separate.
    job = Job("-np", 2, "--independent", "--init-timeout", 8, *inner)
    job.wait()
    refused = re.findall(r"refused: .*horovodrun says rank \d of 2 and torchrun .* says rank \d of 2; use", job.out)
    expect(len(refused) == 4 and not re.search(r"rank \d of \d$", job.out, re.MULTILINE), job.describe())


def test_a_torchrun_in_each_rank_that_the_user_connects_or_that_starts_one_process():
    torchrun_of = (torchruns()[0], "-m", "torch.distributed.run")
    place = ("--no-python", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
    two = ("--nnodes", 2, "--nproc-per-node", 1)
    meets = f"localhost:{free_port()}"
    by_script = f"exec {shlex.join(map(str, torchrun_of + two))} --node-rank $HOROVOD_RANK --master-addr 127.0.0.1 "
    by_script += f"--master-port $MASTER_PORT {shlex.join(place)}"
    (script := scratch() / "say.py").write_text(SAY)
    for command in (
        (1, *torchrun_of, "--nproc-per-node", 2, *place),
        (2, *torchrun_of, *two, "--rdzv-backend", "c10d", "--rdzv-endpoint", meets, *place),
        (2, "sh", "-c", by_script),
        (2, *torchrun_of, "--nproc-per-node", 1, script),
    ):
        job = Job("-np", *command)
        job.ends_with(0)
        expect(sorted(re.findall(r"rank \d of \d", job.out)) == ["rank 0 of 2", "rank 1 of 2"], job.describe())


@world()
def test_one_torchrun_on_each_host_is_one_world():
    """torchrun knows only one host here: its processes on two hosts form two worlds."""
    start = ("-H", "a:1,b:1", torchruns()[0], "-m", "torch.distributed.run", "--nproc-per-node")
    job = Job(*start, 2, WORKERS / "ddp_rank.py")
    job.ends_with(0)
    for rank in range(4):
        line = f"rank {rank} of 4, local {rank % 2} of 2, group {rank // 2}, same True, gradient 5"
        expect(line in job.out, f"{line!r} is missing\n{job.describe()}")
    # With one process on each host, both launchers give the same ranks, and hvd accepts them.
    joined(Job(*start, 1, RANK, "torch"), 2, 1, True)


def test_variables_without_the_other_ranks_are_a_sentence():
    """A program of one process whose shell has the variables of another job."""
    port = str(free_port())
    for variables, words in (
        ({"WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE is 2, but MASTER_PORT is not set.*unset WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2, but RANK is not set.*unset WORLD_SIZE"),
        ({"WORLD_SIZE": "2", "RANK": "5"}, "RANK is '5', which is not a number from 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_PORT": port}, "MASTER_ADDR does not name"),
    ):
        (job,) = started_by_hand([variables])
        expect(re.match(f"refused: .*{words}", job.out), job.describe())
    there = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2", "HOROVOD_INIT_TIMEOUT": "2"}
    for rank in (0, 1):
        for local in ({}, {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}):
            (job,) = started_by_hand([{**there, **local, "RANK": str(rank)}], 20)
            words = rf"WORLD_SIZE say that this process is rank {rank} of 2.*unset.*HOROVOD_BOOTSTRAP=none"
            expect(re.match(f"refused: .*{words}", job.out), job.describe())
    for variables in ({"WORLD_SIZE": "1", "RANK": "0"}, {**there, "RANK": "0", "HOROVOD_BOOTSTRAP": "none"}):
        (job,) = started_by_hand([variables])
        expect(job.out == "rank 0 of 1\n", job.describe())


if __name__ == "__main__":
    main()
