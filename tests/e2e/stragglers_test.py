#!/usr/bin/python3 -B
"""The launcher finds late ranks from the ranks' waiting times alone."""

from harness import *

WORKER = ROOT / "tests/e2e/workers/late_rank.py"


@world()
def test_a_late_rank_is_named_once_and_counted():
    job = Job("-np", 4, "-H", "a:2,b:2", PYTHON, WORKER, 270, 0.03, 3, 0.3)
    sentence = r"rank 3 on b is [0-9.]+ ms late in \d+ of 50 steps, \d+ % of a step; cause: the program itself"
    wait_until(lambda: re.search(sentence, job.err), 30, job.describe)
    seen = ask("metrics", "--level", "rank", job.process.pid).stdout
    for part in (r'straggler{.*rank="3"} 1', r'straggler{.*rank="2"} 0', r"stragglers{.*} 1"):
        expect(re.search(rf"^horovod_{part}$", seen, re.M), seen)
    late = [float(each) for each in re.findall(r"^horovod_late_seconds_total{.*} (\S+)$", seen, re.M)]
    waited = [float(each) for each in re.findall(r"^horovod_wait_seconds_total{.*} (\S+)$", seen, re.M)]
    expect(late[3] > 0.5 > max(late[:3]) and min(waited[:3]) > 0.5 > waited[3], (late, waited))
    job.ends_with(0)
    own = dict(re.findall(r"rank (\d) is (-?[0-9.]+) ms late", job.out))
    expect(float(own["3"]) > 4.5 and all(0 <= float(own[rank]) < 4.5 for rank in "012"), own)
    expect(job.err.count("late in") == 1, job.describe())
    line = r"ranks waited \d+ % of the time, most often for rank 3 \(b\), in \S*layer"
    expect(re.search(line, job.err), job.describe())


def test_ranks_in_time_are_not_named():
    job = Job("-np", 4, PYTHON, WORKER, 160, 0.03)
    job.ends_with(0)
    expect(job.err == "", job.describe())


def test_ranks_know_how_late_they_are_from_the_first_window_on():
    job = Job("-np", 2, PYTHON, WORKER, 95, 0.05, 1, 0.3)
    job.ends_with(0)
    own = dict(re.findall(r"rank (\d) is (-?[0-9.]+) ms late", job.out))
    expect(float(own["1"]) > 7 > float(own["0"]) >= 0, own)


SLOW_HOST = """
import os, time
import numpy
import horovod.numpy as hvd
hvd.init()
late = 0.02 if os.environ["HOROVOD_HOSTNAME"] == "b" else 0
for _ in range(400 if os.path.exists("again") else 4000):
    time.sleep(0.02 + late)
    hvd.allreduce(numpy.ones(8), name="gradient")
    if late: open("again", "w").close()
print("done", hvd.rank(), flush=True)
"""


@world("a b c d")
def test_a_slow_host_is_replaced_by_a_spare_once():
    flags = ("-np", 6, "-H", "a:2,b:2,c:2,d:2", "--spares", 1, "--max-restarts", 1, "--on-straggler", "restart")
    job = Job(*flags, PYTHON, "-c", SLOW_HOST, cwd=scratch(BUILD))
    job.ends_with(0)
    expect(re.search("ranks 2-3 on b, all ranks of this host, are [0-9.]+ ms late", job.err), job.describe())
    expect("to start again without host b, which is slow (--on-straggler restart)" in job.err, job.describe())
    expect(job.out.count("done ") == 6 and job.err.count("late in") == 1, job.describe())
    job.leaves_nothing()


main()
