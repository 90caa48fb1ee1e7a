#!/usr/bin/python3 -B
"""All ranks of a job are in one world; otherwise an error names the missing ranks, or the variables that differ."""

from hangs import *

PYTHONS = os.environ.get("HVD_TEST_PYTHONS", PYTHON).split(":")
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


MEETS = """
import os, sys, time
import torch.distributed as dist
place, end = sys.argv[1:]
own = {} if place == "env://" else {"rank": int(os.environ["HOROVOD_RANK"]), "world_size": 2}
dist.init_process_group("gloo", place, **own)
dist.barrier()
os.write(1, b"met\\n")
if end == "hang":
    dist.barrier() if os.environ["HOROVOD_RANK"] == "0" else time.sleep(600)
sys.exit(end) if end != "wait" else time.sleep(600)
"""


def meets(line, *flags, place="env://", end="wait", start=without_py_spy):
    """Starts two ranks of torch.distributed; `line` is a line of their script."""
    if "HVD_TEST_PYTHONS" not in os.environ:
        raise Skip("HVD_TEST_PYTHONS names no interpreter with torch 2")
    line += f'; exec {PYTHONS[-1]} -c "$0" "$@"'
    return start(*flags, "sh", "-c", line, MEETS, place, end)


def test_ranks_of_torch_that_wait_with_other_variables_are_named():
    other = "[ $HOROVOD_RANK = 1 ] && export"
    apart = meets(f"{other} MASTER_PORT=1", "--hang-warning", 24)
    hangs = meets(f"{other} WORLD_SIZE=3", "--hang-warning", 4, start=with_py_spy)
    # These meet in another way.
    elsewhere = f"file://{scratch()}/place"
    right = meets(f"{other} MASTER_PORT=1", "--hang-warning", 24, place=elsewhere)
    later = meets(
        *(f"{other} MASTER_PORT=1", "--hang-warning", 4), place=f"{elsewhere}-2", end="hang", start=with_py_spy
    )
    began, remedy = r"rank 1 on \S+ began with ", ": remove what sets or unsets "
    sentence = rf"the ranks cannot meet: {began}MASTER_PORT=1 \(from the launcher: \d+\){remedy}MASTER_PORT there"
    wait_until(lambda: re.search(sentence, apart.err), 120, apart.describe)
    sentence = rf"hang.*{began}WORLD_SIZE=3 \(from the launcher: 2\){remedy}WORLD_SIZE there"
    wait_until(lambda: re.search(sentence, hangs.err), 120, hangs.describe)
    wait_until(lambda: "the job hangs" in later.err, 120, later.describe)
    for job in (apart, hangs, right, later):
        job.signal(signal.SIGTERM)
        job.wait()
    expect(len(re.findall(began, apart.err)) == 1, apart.describe())
    for job in (right, later):
        expect(job.out.count("met") == 2 and not re.search(began, job.err), job.describe())


def test_a_failure_of_torch_names_the_variables_of_ranks_that_differ():
    job = meets("[ $HOROVOD_RANK = 1 ] && unset RANK WORLD_SIZE")
    job.ends_with(1)
    no_more = r"no RANK \(from the launcher: 1\) and no WORLD_SIZE \(from the launcher: 2\)"
    one_sentence(
        job, r"; rank 1 on \S+ began with " + no_more + ": remove what sets or unsets RANK and WORLD_SIZE there"
    )
    # These are right, and fail for another reason.
    line = "export LOCAL_RANK=0 MASTER_ADDR=localhost RANK=$((1 - RANK))"
    job = meets(line, end="torch.distributed is not to blame")
    job.ends_with(1)
    expect(job.out.count("met") == 2 and "began with" not in job.err, job.describe())
    job = Job("-np", 2, "sh", "-c", "[ $RANK = 1 ] && export RANK=0; sleep 3; echo why >&2; exit 3")
    job.ends_with(3)
    expect("began with" not in job.err, job.describe())


if __name__ == "__main__":
    main()
