#!/usr/bin/python3 -B
"""Elastic jobs of programs without hvd.elastic: when the ranks change, the launcher restarts all of them."""

from harness import *
from elastic_jobs import discovery

PLAIN = WORKERS / "plain_rank.py"
JAX = WORKERS / "jax_restarted.py"
DDP = ROOT / "examples" / "elastic" / "torch_ddp_digits.py"
ENOUGH = 0.9  # minimum test accuracy


def kill_on(name, program, job):
    victims = [
        pid
        for pid in faults.processes(name)
        if program in faults.said_of(pid, "cmdline") and "agent" not in faults.said_of(pid, "comm")
    ]
    expect(victims, f"no rank on host {name}\n{job.describe()}")
    os.kill(max(victims), signal.SIGKILL)


def begin(job, generation, size, seconds=200):
    job.wait_for(rf"generation {generation}: rank \d+ of {size} begins", size, seconds)


@world("a b c")
def test_a_ddp_program_grows_survives_a_kill_and_shrinks_from_its_checkpoint():
    folder = scratch()
    job = Job(
        *"-np 2 --min-np 1 --start-timeout 15 --max-restarts 3".split(),
        *discovery(folder, "a:1", "b:1"),
        PYTHON,
        DDP,
        *"--epochs 30 --pause 0.05".split(),
        "--checkpoint",
        folder / "digits.pt",
    )
    begin(job, 0, 2)
    discovery(folder, "a:1", "b:1", "nowhere.invalid:1")
    wait_until(lambda: any("nowhere.invalid" in line for line in job.said()), 60, job.describe)
    expect("generation 1" not in job.out, job.describe())
    discovery(folder, "a:1", "b:1", "c:1")
    begin(job, 1, 3)
    expect(len(re.findall(r"generation 0: rank \d leaves in epoch", job.out)) == 2, job.describe())
    kill_on("b", DDP.name, job)
    begin(job, 2, 2)
    discovery(folder, "c:1")
    begin(job, 3, 1)
    job.ends_with(0, 200)
    job.leaves_nothing()
    epochs = [int(epoch) for epoch in re.findall(r"rank 0 of \d begins in epoch (\d+)", job.out)]
    expect(epochs == sorted(epochs) and epochs[3] > 0, job.describe())
    ends = re.findall(r"of 1 ends: test accuracy ([\d.]+)", job.out)
    expect(len(ends) == 1 and float(ends[0]) >= ENOUGH, job.describe())
    expect(
        any("rank 1 on host b was killed by signal 9" in line and "(restart 1 of 3)" in line for line in job.said()),
        job.describe(),
    )
    expect("horovodrun: generation 3: 1 rank\n" in job.err, job.describe())


@world("a b c")
def test_a_jax_program_grows_survives_a_kill_and_shrinks():
    python, folder = interpreters("HVD_TEST_JAX")[0], scratch()
    job = Job(
        *"-np 2 --min-np 1 --start-timeout 30".split(),
        *discovery(folder, "a:1", "b:1"),
        python,
        JAX,
        folder / "step",
        folder / "stop",
    )
    begin(job, 0, 2)
    discovery(folder, "a:1", "b:1", "c:1")
    begin(job, 1, 3)
    kill_on("b", JAX.name, job)
    begin(job, 2, 2)
    discovery(folder, "c:1")
    begin(job, 3, 1)
    (folder / "stop").touch()
    job.ends_with(0, 200)
    job.leaves_nothing()
    steps = [int(step) for step in re.findall(r"rank 0 of \d begins in step (\d+)", job.out)]
    expect(steps == sorted(steps) and steps[3] > 0 and "rank 0 of 1 ends" in job.out, job.describe())


@world()
def test_a_program_that_calls_hvd_init_alone_starts_again_after_a_failure():
    folder = scratch()
    job = Job(
        *"-np 4 --min-np 2 --max-restarts 1 -H a:2,b:2".split(), "--output-filename", folder, PYTHON, PLAIN, 20, "2@5"
    )
    job.ends_with(0)
    job.leaves_nothing()
    # The later process of a rank continues the file of the first process.
    expect(
        [(folder / f"rank.{rank}/stdout").read_text().splitlines() for rank in range(4)]
        == [
            [
                f"[{rank}]<stdout>:{line}"
                for line in [f"generation 0: rank {rank} of 4 begins"]
                + [f"generation 1: rank {rank} of 2 begins", "generation 1: sum 40"] * (rank < 2)
            ]
            for rank in range(4)
        ],
        job.describe(),
    )
    expect(job.out.count("generation 1: sum 40") == 2 and job.out.count("generation 0: sum") == 0, job.describe())


@world()
def test_a_host_that_is_lost_starts_a_program_again_without_it():
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, PLAIN, 200)
    begin(job, 0, 4)
    faults.crash("b")
    begin(job, 1, 2)
    job.ends_with(0)
    job.leaves_nothing()
    expect(any("host b was lost" in line and "all of them start again" in line for line in job.said()), job.describe())


@world()
def test_ranks_that_fail_because_a_host_is_lost_do_not_end_the_job():
    """The host's kernel closes its connections, so the other ranks fail before the launcher learns of the loss."""
    job = Job("-np", 4, "--min-np", 2, "-H", "a:2,b:2", PYTHON, PLAIN, 200)
    begin(job, 0, 4)
    faults.end("b")
    begin(job, 1, 2)
    job.ends_with(0)
    job.leaves_nothing()
    expect("HorovodInternalError" in job.err, job.describe())  # the ranks on host a noticed the loss
    expect(any("host b was lost" in line and "all of them start again" in line for line in job.said()), job.describe())


@world()
def test_sigterm_to_an_agent_starts_a_program_again_without_its_host():
    job = Job("-np", 2, "--min-np", 1, "--start-timeout", 10, "-H", "a:1,b:1", PYTHON, PLAIN, 300)
    begin(job, 0, 2)
    os.kill(max(pid for pid in faults.processes("b") if "agent" in faults.said_of(pid, "comm")), signal.SIGTERM)
    begin(job, 1, 1)
    job.ends_with(0)
    job.leaves_nothing()
    expect(not any("lost" in line for line in job.said()), job.describe())


@world()
def test_the_loss_of_a_host_that_waits_for_its_ranks_is_known_at_once_and_costs_nothing():
    folder = scratch()
    # A program that never calls hvd.init: a new host waits until all its ranks start again.
    job = Job(
        "-np",
        1,
        "--verbose",
        *discovery(folder, "a:1"),
        "--start-timeout",
        120,
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
    )
    job.wait_for("ready")
    discovery(folder, "a:1", "b:1")
    wait_until(lambda: "host b: ready" in job.err, 60, job.describe)
    discovery(folder, "a:1", "b:1", "nowhere.invalid:1")
    wait_until(lambda: "nowhere.invalid" in job.err, 60, job.describe)
    for pid in agents("b")["guardian"]:
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: any(
            "host b was lost" in line and "the job goes on without it, and tries it again in 5 s" in line
            for line in job.said()
        ),
        20,
        job.describe,
    )
    expect("generation 1" not in job.err, job.describe())
    # Each sentence names a host once.
    expect(not any(line.count("nowhere.invalid: ") > 1 for line in job.said()), job.describe())
    job.signal(signal.SIGINT)
    job.ends_with(130)
    job.leaves_nothing()


@world("a")
def test_a_program_that_always_fails_ends_after_its_restarts():
    job = Job(
        *"-np 2 --min-np 2 --max-restarts 1 -H a:2".split(),
        "sh",
        "-c",
        "echo in generation $HOROVOD_GENERATION; [ $RANK = 0 ] || exec sleep 60; exit 3",
    )
    job.ends_with(3)
    job.leaves_nothing()
    expect(set(re.findall(r"in generation \d", job.out)) == {"in generation 0", "in generation 1"}, job.describe())
    expect("may not be restarted again (--max-restarts)" in job.err, job.describe())


@world("a")
def test_a_program_that_fails_at_its_start_is_not_started_again():
    job = Job("-np", 2, "--min-np", 1, "-H", "a:2", "sh", "-c", "echo in generation $HOROVOD_GENERATION; exit 3")
    job.ends_with(3)
    job.leaves_nothing()
    expect("in generation 1" not in job.out, job.describe())
    expect("not started again after a failure within 30 s of their start" in job.err, job.describe())


@world("a")
def test_a_signal_ends_a_job_that_waits_to_start_again():
    folder = scratch()
    job = Job("-np", 1, *discovery(folder, "a:1"), "sh", "-c", "echo ready; exec sleep 600")
    job.wait_for("ready")
    discovery(folder)
    kill_on("a", "sleep", job)
    wait_until(lambda: any("the job pauses" in line for line in job.said()), 60, job.describe)
    job.signal(signal.SIGINT)
    job.ends_with(130)
    job.leaves_nothing()


if __name__ == "__main__":
    main()
