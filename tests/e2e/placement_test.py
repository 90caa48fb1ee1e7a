#!/usr/bin/python3 -B
"""Placement of ranks: each way to name hosts that needs real hosts for a test."""

from harness import *


def places(job):
    """Returns the host of each rank."""
    job.ends_with(0)
    found = dict(re.findall(r"^\[(\d+)\]<stdout>:(\S+)$", job.out, re.MULTILINE))
    return [found[str(rank)] for rank in range(len(found))]


def expect_places(job, wanted):
    expect(places(job) == wanted, f"expected {wanted}\n{job.describe()}")


@world("n1 n2 n3")
def test_ranges_of_names():
    expect_places(Job("-H", "n[1-2,3]:2", "hostname"), ["n1", "n1", "n2", "n2", "n3", "n3"])
    expect_places(Job("--slots-per-host", 2, "-H", "n[1-2],n3:1", "hostname"), ["n1", "n1", "n2", "n2", "n3"])
    expect_places(Job("--nproc-per-node=1", "--nnodes=2", "-H", "n[1-3]", "hostname"), ["n1", "n2"])


@world("n1 n2 n3")
def test_schedulers_hosts_are_found_and_named_hosts_win():
    slurm = clean_environment(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-2],n3", SLURM_TASKS_PER_NODE="2(x2),1")
    expect_places(Job("hostname", environment=slurm), ["n1", "n1", "n2", "n2", "n3"])
    expect_places(Job("-np", 3, "hostname", environment=slurm), ["n1", "n1", "n2"])
    expect_places(Job("-H", "n3", "hostname", environment=slurm), ["n3"])
    pathlib.Path("/tmp/e2e-nodes").write_text("n1\nn1\nn2\n")
    pbs = clean_environment(PBS_JOBID="7", PBS_NODEFILE="/tmp/e2e-nodes")
    expect_places(Job("hostname", environment=pbs), ["n1", "n1", "n2"])


@world()
def test_a_config_file_says_where_and_how():
    pathlib.Path("/tmp/e2e-config.yaml").write_text(
        "hosts: [a:1, b:1]\nparams:\n  cycle_time_ms: 3.5\n  fusion_threshold_mb: 2\n"
    )
    job = Job(
        *"--config-file /tmp/e2e-config.yaml --cycle-time-ms 4".split(),
        "sh",
        "-c",
        "echo $(hostname)/$HOROVOD_CYCLE_TIME/$HOROVOD_FUSION_THRESHOLD",
    )
    expect_places(job, ["a/4/2097152", "b/4/2097152"])


if __name__ == "__main__":
    main()
