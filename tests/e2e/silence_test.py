#!/usr/bin/python3 -B
"""Links between ranks that fall silent: a peer on a lost host, and cuts that are shorter or longer than
HOROVOD_LINK_TIMEOUT."""

from harness import *

import network

PROGRAM = """
import os, sys, time
import numpy
import horovod.numpy as hvd
hvd.init()
hvd.allreduce(numpy.ones(4), name="first")
print("met", flush=True)
if hvd.rank() == 1:
    time.sleep(600)
try:
    hvd.allreduce(numpy.ones(4), name="second")
except hvd.HorovodInternalError as error:
    print(error, flush=True)
    os._exit(7)
"""

# Each step checks every bit of its sum, until the file exists.
STEPS = """
import os, sys
import numpy
import horovod.numpy as hvd
hvd.init()
step, more = 0, True
while more:
    parts = [numpy.random.default_rng([step, rank]).random(50000, dtype=numpy.float32)
             for rank in range(2)]
    total = hvd.allreduce(parts[hvd.rank()], op=hvd.Sum, name="gradient")
    if total.tobytes() != (parts[0] + parts[1]).tobytes():
        sys.exit(f"step {step} has another sum")
    if hvd.rank() == 0 and step % 10 == 0:
        print("step", step, flush=True)
    ends = numpy.array([os.path.exists(sys.argv[1])], dtype=numpy.int32)
    more = not hvd.allreduce(ends, op=hvd.Max, name="ends")[0]
    step += 1
print("all sums are right", flush=True)
"""


# Linux 6.15 and later retransmit every 5 s; older kernels wait as long as the cut has lasted.
RETRANSMITS_OFTEN = pathlib.Path("/proc/sys/net/ipv4/tcp_rto_max_ms").exists()


def steps(job):
    return job.out.count(":step ")


def survives_a_cut_of(seconds, job):
    faults.cut("a", "b")
    done = steps(job)
    time.sleep(seconds)
    # The output of the last steps may come late. Without the cut, twenty steps take a tenth of a second.
    expect(steps(job) <= done + 2, f"steps went on while the link was cut\n{job.describe()}")
    faults.heal("a", "b")
    wait_until(
        lambda: steps(job) > done + 4 or job.process.poll() is not None, 15 if RETRANSMITS_OFTEN else 60, job.describe
    )


@world()
def test_a_cut_of_30_s_changes_no_bit():
    stop = scratch() / "stop"
    job = Job("-np", 2, "-H", "a:1,b:1", PYTHON, "-c", STEPS, stop)
    job.wait_for("step 20")
    survives_a_cut_of(30, job)
    stop.touch()
    job.ends_with(0)
    expect(job.out.count("all sums are right") == 2 and job.said() == [], job.describe())


@world()
def test_a_job_survives_cuts_up_to_the_link_timeout_and_no_longer():
    job = Job("-np", 2, "-H", "a:1,b:1", "--link-timeout", 6, PYTHON, "-c", STEPS, "/nowhere")
    job.wait_for("step 20")
    survives_a_cut_of(2, job)
    faults.cut("a", "b")
    expect(job.wait() != 0, job.describe())
    one_sentence(
        job,
        "^the connection between rank 0 on host a and rank 1 on host b brought no answer for 6 s; "
        ".*HOROVOD_LINK_TIMEOUT.*; rank [01] on host [ab] exited with code 1 because of it; its last ",
    )
    job.leaves_nothing()


@world()
def test_a_rank_that_only_waits_hears_of_a_host_that_is_gone():
    token = pathlib.Path("/tmp/token")
    token.write_text("5a" * 32)
    token.chmod(0o600)
    server = subprocess.Popen(
        [BUILD / "bin" / "horovod-rendezvous", "--listen", ":29400", "--token-file", token],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ranks = []
    try:
        expect(server.stdout.readline(), "the server says nothing")
        for rank, name in enumerate("ab"):
            ranks.append(
                subprocess.Popen(
                    entering(name, PYTHON, "-c", PROGRAM),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=clean_environment(
                        HOROVOD_RANK=str(rank),
                        HOROVOD_SIZE="2",
                        HOROVOD_LINK_TIMEOUT="5",
                        HOROVOD_STORE=f"tcp:{network.LAUNCHER_ADDRESS}:29400",
                        HOROVOD_JOB_SECRET=token.read_text(),
                    ),
                )
            )
        for rank in ranks:
            said = rank.stdout.readline()
            expect(said == "met\n", said)
        faults.crash("b")
        code = ranks[0].wait(60)
        said = ranks[0].stdout.read()
        expect(code == 7, f"{code}\n{said}")
        expect("rank 1 on host b" in said, said)
    finally:
        for process in (server, *ranks):
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
