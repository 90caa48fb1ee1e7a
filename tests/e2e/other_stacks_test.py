#!/usr/bin/python3 -B
"""Programs for other launchers run unchanged: for the launchers of torch, DeepSpeed and JAX, and others."""

from deepspeed_build import environment_of_deepspeed
from harness import *

PYTHONS = os.environ.get("HVD_TEST_PYTHONS", PYTHON).split(":")
HOSTS_OF_TWO = ("-np", 4, "-H", "a:2,b:2")
SHOWN = (
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT "
    "JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_PROCESS_ID GLOO_SOCKET_IFNAME"
).split()
SHOW = ["sh", "-c", "echo " + " ".join(f"{name}=${name}" for name in SHOWN)]


def shown(job):
    job.ends_with(0)
    lines = re.findall(r"^\[(\d+)\]<stdout>:(.*)$", job.out, re.MULTILINE)
    found = {int(rank): dict(word.split("=") for word in line.split()) for rank, line in lines}
    return [found[rank] for rank in sorted(found)]


@world()
def test_a_torch_script_with_gloo_trains_on_two_hosts():
    job = Job(*HOSTS_OF_TWO, PYTHON, WORKERS / "ddp_rank.py")
    job.ends_with(0)
    for rank in range(4):
        expect(
            f"rank {rank} of 4, local {rank % 2} of 2, group {rank // 2}, same True, gradient 5" in job.out,
            job.describe(),
        )
    job.leaves_nothing()


@world()
def test_distributed_data_parallel_beside_distributed_optimizer_without_a_process_group():
    job = Job(*HOSTS_OF_TWO, PYTHONS[-1], WORKERS / "ddp_beside_rank.py")
    job.ends_with(0)
    for rank in range(4):
        expect(f"rank {rank} of 4: identical True, learned True" in job.out, job.describe())
    expect(len(re.findall("leaves 4 parameters", job.err)) == 1, job.describe())
    job.leaves_nothing()


@world()
def test_a_deepspeed_script_on_one_host_and_on_two():
    python = os.environ.get("HVD_TEST_DEEPSPEED")
    if not python:
        raise Skip("HVD_TEST_DEEPSPEED names no Python that has DeepSpeed")
    environment = clean_environment(**environment_of_deepspeed(python))
    for hosts in ("a:2", "a:1,b:1"):
        for _ in range(3):
            job = Job(
                "-np",
                2,
                "-H",
                hosts,
                *"python train.py --deepspeed --deepspeed_config ds_config.json".split(),
                environment=environment,
                cwd=WORKERS / "deepspeed",
            )
            code = job.wait(800)
            for rank in range(2):
                expect(f"rank {rank} of 2: stage 2, identical True, learned True" in job.out, job.describe())
            # On a busy machine a process may rarely end before a thread of PyTorch, and then aborts after
            # its last line. This is independent of horovod.
            if code != 134 or "terminate called without an active exception" not in job.err:
                break
        expect(code == 0, job.describe())


@world()
def test_a_script_that_reads_only_a_few_variables_meets_on_two_hosts():
    # Rank 0 binds the port after a pause; no other process may have taken the port by then.
    for _ in range(3):
        job = Job(*HOSTS_OF_TWO, PYTHON, WORKERS / "environment_rank.py", 0.2)
        job.ends_with(0)
        expect(len(re.findall(r"rank \d of 4: 6 by 10\.77\.0\.1", job.out)) == 4, job.describe())
    job.leaves_nothing()


@world()
def test_it_meets_as_well_when_rank_0_is_here():
    job = Job("-np", 2, "-H", "localhost:1,b:1", PYTHON, WORKERS / "environment_rank.py")
    job.ends_with(0)
    expect(len(re.findall(r"rank \d of 2: 1 by 10\.77\.255\.254", job.out)) == 2, job.describe())


@world()
def test_a_program_of_none_of_these():
    job = Job(*HOSTS_OF_TWO, "hostname")
    job.ends_with(0)
    expect(sorted(job.out.split()) == [f"[{r}]<stdout>:{'ab'[r // 2]}" for r in range(4)], job.describe())


@world()
def test_ranks_have_the_variables_of_torchrun_and_jax():
    ranks = shown(Job(*HOSTS_OF_TWO, *SHOW))
    port = ranks[0]["MASTER_PORT"]
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    expect(not low <= int(port) <= high, f"the kernel may give port {port} to others")
    for rank, got in enumerate(ranks):
        expect(
            got
            == {
                "RANK": str(rank),
                "WORLD_SIZE": "4",
                "LOCAL_RANK": str(rank % 2),
                "LOCAL_WORLD_SIZE": "2",
                "GROUP_RANK": str(rank // 2),
                "MASTER_ADDR": "10.77.0.1",
                "MASTER_PORT": port,
                "JAX_COORDINATOR_ADDRESS": f"10.77.0.1:{port}",
                "JAX_NUM_PROCESSES": "4",
                "JAX_PROCESS_ID": str(rank),
                "GLOO_SOCKET_IFNAME": "eth0",
            },
            f"rank {rank}: {got}",
        )


@world("a")
def test_one_host_meets_on_its_loopback():
    for where in ("a:2", "localhost:2"):
        for got in shown(Job("-np", 2, "-H", where, *SHOW)):
            expect((got["MASTER_ADDR"], got["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo"), got)


@world()
def test_a_variable_of_the_launcher_wins_also_inside_another_job():
    wrong = {name: "77" for name in SHOWN if name != "GLOO_SOCKET_IFNAME"}
    ranks = shown(Job(*HOSTS_OF_TWO, *SHOW, environment=clean_environment(**wrong, GLOO_SOCKET_IFNAME="mine")))
    for got in ranks:
        expect("77" not in got.values(), got)
        expect(got["GLOO_SOCKET_IFNAME"] == "mine", "what the user chose is overwritten")
    for inner, wanted in (("a:2", "127.0.0.1, 2, lo"), ("a:1,b:1", "10.77.0.1, 1, eth0")):
        job = Job(
            "-np",
            1,
            "sh",
            "-c",
            f"exec {LAUNCHER} -np 2 -H {inner} sh -c "
            '"echo \\$RANK of \\$WORLD_SIZE at \\$MASTER_ADDR, \\$LOCAL_WORLD_SIZE, '
            '\\$GLOO_SOCKET_IFNAME"',
        )
        job.ends_with(0)
        for rank in range(2):
            expect(f"{rank} of 2 at {wanted}" in job.out, job.describe())


@world()
def test_a_host_that_reaches_nobody_is_named_and_programs_that_meet_nobody_run():
    faults.cut("a", "b")
    job = Job("-np", 2, "-H", "a:1,b:1", "hostname")
    job.ends_with(0)
    one_sentence(job, "host b reaches none", "host a", r"10\.77\.0\.1", "MASTER_ADDR")


if __name__ == "__main__":
    main()
