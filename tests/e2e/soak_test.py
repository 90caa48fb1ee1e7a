#!/usr/bin/python3 -B
"""Many jobs end at a random moment in a random way and leave nothing behind; so do many generations of one job.

HVD_SOAK_SEED repeats a run, and HVD_SOAK_RUNS sets the number of runs. Each line of the output names its seed, its
moment and its kind of end.
"""

import os
import random
import time

from harness import *

from rounds import RUN, repeat, run_in_worlds
import elastic_jobs
import random_faults

RUNS = int(os.environ.get("HVD_SOAK_RUNS", 100))
NASTY = [PYTHON, WORKERS / "rank.py", "--nasty"]


def launcher_by(number):
    return lambda job: job.signal(number)


def kill(role):
    def end(job):
        for pid in agents(random.choice("ab"))[role]:
            os.kill(pid, signal.SIGKILL)

    return end


WAYS = {
    "Ctrl-C": launcher_by(signal.SIGINT),
    "SIGTERM": launcher_by(signal.SIGTERM),
    "SIGKILL of the launcher": launcher_by(signal.SIGKILL),
    "SIGKILL of an agent": kill("agent"),
    "SIGKILL of a guardian": kill("guardian"),
}


@world()
def test_a_thousand_generations_leave_nothing_behind():
    elastic_jobs.leave_nothing_behind(1000)


def test_faults_in_every_phase():
    os.environ.setdefault("HVD_FAULTS", "200")
    run_in_worlds("a b c", 4, 0)


@world()
def test_random_ends():
    seed = int(os.environ.get("HVD_SOAK_SEED", time.time()))
    random.seed(seed)
    for run in range(RUNS):
        way = random.choice(list(WAYS))
        moment = random.uniform(0, 1.5)
        print(f"seed {seed}, run {run}: {way} after {moment:.3f} s", flush=True)
        job = Job("-np", 4, "-H", random.choice(["a:2,b:2", "localhost:2,b:2"]), *NASTY)
        time.sleep(moment)
        WAYS[way](job)
        if "of a" in way:
            # The agent to kill may not have started yet.
            job.signal(signal.SIGTERM)
        job.wait()
        job.leaves_nothing()


if __name__ == "__main__":
    if sys.argv[1:2] == [RUN]:
        repeat(lambda chance, _: random_faults.Round(chance).run(chance))
    else:
        main()
