#!/usr/bin/python3 -B
"""Packet capture of jobs whose agents are started by ssh or by Slurm's srun."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import *

from capture import Capture
from local_test import AS_ROOT, pose
from slurm_test import on_cluster, salloc, srun

SHOW = ("sh", "-c", "echo secret=$HOROVOD_JOB_SECRET= marker-$((6*7))-$HOROVOD_RANK")


def read_on_the_way(job, capture):
    """Returns whether the capture has the secret of a job that has run SHOW, and whether it has the job's output."""
    secret = re.search("secret=([0-9a-f]{32,})=", job.out)[1]
    recorded = capture.recorded
    expect(len(recorded) > 1000, f"{len(recorded)} bytes were recorded")
    return (secret.encode() in recorded or bytes.fromhex(secret) in recorded), b"marker-42-1" in recorded


@world("a b")
def test_ssh_hides_the_secret_and_the_output():
    with Capture() as capture:
        job = Job("-np", 2, "-H", "a,b", *SHOW)
        job.ends_with(0)
    expect(read_on_the_way(job, capture) == (False, False), "ssh showed them")


@on_cluster()
def test_srun_shows_both_as_security_md_says(cluster):
    with Capture() as capture:
        job = salloc(cluster, "-N2", "--ntasks-per-node=1", LAUNCHER, *SHOW)
        job.ends_with(0)
    # Slurm sends a step's standard streams unencrypted; SECURITY.md warns of it.
    expect(read_on_the_way(job, capture) == (True, True), "srun hides the secret: SECURITY.md is too strict")


MEET = """
import os, time, numpy
import horovod.numpy as hvd
hvd.init()
print("met", os.environ["PMIX_NAMESPACE"], os.environ["PMIX_SERVER_URI2"], hvd.rank(),
      hvd.allreduce(numpy.ones(1), op=hvd.Sum), flush=True)
time.sleep(600)
"""


@on_cluster()
def test_srun_with_pmix_hides_the_secret_from_listeners_and_other_users(cluster):
    with Capture("eth0-0") as capture:  # the links between the hosts use this interface
        job = srun(cluster, "--mpi=pmix", "-N2", "--ntasks-per-node=2", PYTHON, "-c", MEET)
        job.wait_for("met", 4)
    expect(job.out.count("[4.]") == 4, job.describe())
    expect(not re.search(rb"[0-9a-f]{64}\ntcp:", capture.recorded), "the secret crossed the network")
    space, address = re.search(r"met (\S+) (\S+) 2 ", job.out).groups()
    said = pose(space, address, *AS_ROOT, rank=2, where="b", keys=["horovod.store"])
    expect(said.startswith("SUCCESS\n") and "MUNGE:" in said, f"PMIx gives other users nothing: {said}")
    sealed = re.search(r"MUNGE:[\w+/=]+", said)[0][:200].encode()
    expect(sealed in capture.recorded, f"the message of rank 0 is not in {len(capture.recorded)} bytes")
    job.signal(signal.SIGTERM)
    job.wait()


if __name__ == "__main__":
    main()
