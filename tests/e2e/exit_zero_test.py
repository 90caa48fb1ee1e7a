#!/usr/bin/python3 -B
"""Ranks that exit with 0 before other ranks: the named culprit, the surviving ranks, and the job's exit code."""

from harness import *

HEAD = """
import os, signal, sys, time
import numpy
import horovod.numpy as hvd
rank = int(os.environ["HOROVOD_RANK"])
"""
TRAIN = (
    HEAD
    + """
from horovod.common import elastic
from horovod import _elastic
process = int(os.environ["HOROVOD_ELASTIC_PROCESS"])
hvd.init()
state = elastic.ObjectState(step=0)

def leave(*_):
    sys.exit(0)

signal.signal(signal.SIGUSR1, leave)

def train(state):
    print(process, "begins", state.step, "of", hvd.size(), flush=True)
    while state.step < 20:
        total = hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="ones")[0]
        assert total == hvd.size(), total
        state.step += 1
        if process == 1 and state.step == 5:
            HOW
        state.commit()
    return state.step

print(process, "returns", _elastic.run_fn(train, hvd.init)(state), flush=True)
"""
)


def elastic_job(how, *more):
    return Job("-np", 3, "--min-np", 1, "-H", "a:1,b:1,c:1", *more, PYTHON, "-c", TRAIN.replace("HOW", how))


@world("a b c")
def test_inside_elastic_run_the_others_go_on():
    for how in ("os._exit(0)", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGUSR1)"):
        job = elastic_job(how)
        job.ends_with(0)
        job.leaves_nothing()
        expect(sorted(re.findall(r"(\d) returns 20", job.out)) == ["0", "2"], job.describe())
        early = "rank 1 on host b exited with code 0 before it reported the end of hvd.elastic.run; "
        expect(job.said()[0].startswith(early), job.describe())


@world()
def test_a_rank_that_others_await_in_init_ends_the_wait_at_once():
    cases = {
        "before hvd.init": ("rank == 1 and os._exit(0)", "pass"),
        "before the second hvd.init": ("hvd.init()", "hvd.shutdown(); rank == 1 and sys.exit(0)"),
        "before a hvd.init of some ranks": ("rank == 1 and os._exit(0)", "rank == 3 and time.sleep(600)"),
    }
    for name, (first, second) in cases.items():
        last = "hvd.init([0, 1, 2])" if "some" in name else "hvd.init()"
        for flags in ((), ("--on-failure", "wait")):
            job = Job("-np", 4, "-H", "a:2,b:2", *flags, PYTHON, "-c", f"{HEAD}{first}\n{second}\n{last}")
            job.ends_with(1, 20)
            job.leaves_nothing()
            one_sentence(
                job,
                "^rank 1 on host a exited with code 0, and ranks? [023,-]+ waits? for it in "
                r"hvd.init\(\)",
            )


@world()
def test_a_rank_that_others_need_is_named():
    work = (
        f"{HEAD}hvd.init()\nhvd.allreduce(numpy.ones(1), name='w')\nrank == 1 and HOW\n"
        "hvd.allreduce(numpy.ones(1), name='x')"
    )
    for how in ("sys.exit(0)", "os._exit(0)"):
        job = Job("-np", 2, "-H", "a:1,b:1", PYTHON, "-c", work.replace("HOW", how))
        job.ends_with(1)
        job.leaves_nothing()
        one_sentence(job, "^rank 0 on host a exited with code 1, after rank 1 had left the job")
    other = "import os, sys, time\nos.environ['HOROVOD_RANK'] == '1' and sys.exit(0)\ntime.sleep(1)\nsys.exit(7)"
    job = Job("-np", 2, "-H", "a:1,b:1", PYTHON, "-c", other)
    job.ends_with(7)
    one_sentence(job, "^rank 0 on host a exited with code 7; rank 1 on host b had exited with code 0")


@world()
def test_a_process_set_outlives_a_rank_that_is_no_member():
    # Depending on the layout, the sets are on one host, away from the root of all ranks, or span both hosts.
    work = (
        HEAD
        + """
sets = [hvd.ProcessSet([1, 2])]
hvd.init(process_sets=sets)
sets.append(hvd.add_process_set([1, 3]))
if rank == 0:
    END
for step in range(200):
    for members in sets:
        if members.included():
            total = hvd.allreduce(numpy.full(3, rank), op=hvd.Sum, name="s", process_set=members)
            assert (total == sum(members.ranks)).all(), total
print(rank, "has done", flush=True)
"""
    )
    for hosts, end, code in (
        ("a:1,b:3", "sys.exit(0)", 0),
        ("a:2,b:2", "sys.exit(0)", 0),
        ("a:1,b:3", "raise ValueError('as ordered')", 1),
    ):
        job = Job("-np", 4, "-H", hosts, PYTHON, "-c", work.replace("END", end))
        job.ends_with(code)
        job.leaves_nothing()
        if code == 0:
            expect(sorted(re.findall(r"(\d) has done", job.out)) == ["1", "2", "3"], job.describe())
        else:
            one_sentence(job, "^rank 0 on host a exited with code 1")


WAITS_AT_THE_END = (
    HEAD
    + """
import threading
slow_to_end = [{number: str(number)} for number in range(300000)]
hvd.init()

def wait():
    try:
        hvd.allreduce(numpy.ones(1000), name=f"only{rank}")
    except hvd.HorovodInternalError:
        pass

threading.Thread(target=wait, daemon=True).start()
time.sleep(0.3)
print("done", flush=True)
"""
)


@world("a")
def test_a_daemon_thread_in_a_collective_does_not_crash_a_rank_that_is_done():
    for _ in range(6):
        job = Job("-np", 2, "-H", "a:2", PYTHON, "-c", WAITS_AT_THE_END)
        job.ends_with(0)
        expect(job.out.count("done") == 2, job.describe())


if __name__ == "__main__":
    main()
