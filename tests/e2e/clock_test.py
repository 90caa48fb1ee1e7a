#!/usr/bin/python3 -B
"""Wall clocks that step by a day, or differ by a day, change no time limit."""

import struct

import traces

from harness import *

DAY = 86400
# All ranks sum until one finds the file that ends the test, and print each step of their clock.
SUMS = """
import os, sys, time
import numpy
import horovod.numpy as hvd
hvd.init()
said, began = None, time.time() - time.monotonic()
while hvd.allreduce(numpy.array([os.path.exists("/tmp/e2e-done")], numpy.float32), op=hvd.Sum, name="x")[0] == 0:
    step = round((time.time() - time.monotonic() - began) / 86400)
    if step != said:
        print(f"clock {step:+d}", flush=True)
        said = step
    time.sleep(0.01)
print("done", flush=True)
"""


class Clock:
    """A wall clock that steps; `name` names its file on all hosts."""

    def __init__(self, name="all"):
        self.path = pathlib.Path(f"/tmp/e2e-clock-{name}")
        self.step(0)

    def step(self, days):
        with open(self.path, "r+b" if self.path.exists() else "wb", buffering=0) as file:
            file.write(struct.pack("=q", days * DAY))


def preloaded():
    """Builds the library that steps clocks, in a place that all hosts have."""
    library = pathlib.Path("/tmp/e2e-stepped-clock.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, WORKERS / "stepped_clock.c"], check=True)
    return str(library)


def job_with(clock, *arguments, path=None):
    """Launcher and ranks use the clock; agents are static and read no wall clock."""
    variables = {"LD_PRELOAD": preloaded(), "E2E_CLOCK": str(path or clock.path)}
    flags = [word for name in variables for word in ("-x", name)]
    return Job("-np", 4, "-H", "a:2,b:2", *flags, *arguments, environment=clean_environment(**variables))


@world()
def test_a_step_of_a_day_forward_and_back_is_not_noticed():
    clock, trace = Clock(), pathlib.Path("/tmp/e2e-trace.json")
    job = job_with(
        clock,
        "--lease",
        5,
        "--timeout",
        3600,
        "--prefix-output-with-timestamp",
        "--timeline-filename",
        trace,
        "-x",
        "HOROVOD_STALL_CHECK_TIME_SECONDS=5",
        PYTHON,
        "-c",
        SUMS,
    )
    job.wait_for(r"clock \+0", 4)
    for step in (1, -1):
        clock.step(step)
        job.wait_for(rf"clock \{step:+d}", 4)
    pathlib.Path("/tmp/e2e-done").touch()
    job.ends_with(0)
    expect(job.said() == [] and "stall" not in job.err.lower(), job.describe())
    expect(len(re.findall("done", job.out)) == 4, job.describe())
    # The launcher's clock has stepped, too.
    expect(len(set(re.findall(r"(\w{3} \w{3} +\d+) .*clock", job.out))) > 1, job.describe())
    traces.Trace(trace)
    job.leaves_nothing()


@world()
def test_limits_of_time_stay_as_they_are_after_a_step():
    clock = Clock()
    job = job_with(clock, "--lease", 3, PYTHON, "-c", SUMS)
    job.wait_for(r"clock \+0", 4)
    clock.step(1)
    job.wait_for(r"clock \+1", 4)
    faults.cut("b", "launcher")
    try:
        job.ends_with(1, PROMPT)
        one_sentence(job, "host b")
    finally:
        faults.heal("b", "launcher")
    job.leaves_nothing()
    clock.step(0)
    job = job_with(clock, "--timeout", 20, PYTHON, "-c", SUMS)
    job.wait_for(r"clock \+0", 4)
    clock.step(-1)
    job.ends_with(124)
    job.leaves_nothing()


@world()
def test_ranks_and_launcher_whose_clocks_differ_by_days():
    for number in range(4):
        Clock(str(number)).step(number - 2)
    Clock("launcher").step(5)
    trace = pathlib.Path("/tmp/e2e-trace.json")
    pathlib.Path("/tmp/e2e-done").touch()
    job = job_with(
        None,
        "--timeline-filename",
        trace,
        "sh",
        "-c",
        'E2E_CLOCK=/tmp/e2e-clock-$HOROVOD_RANK exec "$@"',
        "sh",
        PYTHON,
        "-c",
        SUMS,
        path="/tmp/e2e-clock-launcher",
    )
    job.ends_with(0)
    expect(job.said() == [] and job.out.count("done") == 4, job.describe())
    traces.Trace(trace)
    job.leaves_nothing()


if __name__ == "__main__":
    main()
