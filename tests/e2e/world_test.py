#!/usr/bin/python3 -B
"""All ranks of a job are in one world; otherwise an error names the missing ranks."""

from harness import *

HOSTS_OF_TWO = ("-np", 4, "-H", "a:2,b:2")
JOINS = "import horovod.numpy as hvd; hvd.init(); print('in', hvd.size(), flush=True); "
LINGERS = "import time; time.sleep(600)"
ALONE = f"env -i PYTHONPATH=$PYTHONPATH {PYTHON} -c"


@world()
def test_a_rank_in_a_world_of_its_own_ends_the_job():
    # Rank 2 starts without its variables; the others wait for it.
    job = Job(
        *HOSTS_OF_TWO, "sh", "-c", f'[ $HOROVOD_RANK = 2 ] && exec {ALONE} "$0"; exec {PYTHON} -c "$0"', JOINS + LINGERS
    )
    job.ends_with(1)
    one_sentence(job, r"\brank 2\b", r"\bhost b\b", r"world of 1\b", r"HOROVOD_RANK")
    job.leaves_nothing()
    # Each host has its own world of two ranks: no rank is alone.
    job = Job(
        *HOSTS_OF_TWO,
        "sh",
        "-c",
        f"export HOROVOD_SIZE=2 HOROVOD_RANK=$HOROVOD_LOCAL_RANK "
        "HOROVOD_GENERATION=$HOROVOD_CROSS_RANK HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1; "
        f'exec {PYTHON} -c "$0"',
        JOINS + LINGERS,
    )
    job.ends_with(1)
    one_sentence(job, r"world of 2\b")
    job.leaves_nothing()


@world()
def test_one_world_and_what_ranks_start_beside_it_is_no_error():
    beside = f"import subprocess; subprocess.run(['sh', '-c', '{ALONE} \"$0\"', {JOINS!r}], check=True)"
    job = Job(*HOSTS_OF_TWO, PYTHON, "-c", JOINS + beside)
    job.ends_with(0)
    expect(len(re.findall("in 4", job.out)) == 4 and len(re.findall("in 1", job.out)) == 4, job.describe())
    job = Job("-np", 4, "-H", "a:2,b:2", "echo", "hi")
    job.ends_with(0)
    job.leaves_nothing()


if __name__ == "__main__":
    main()
