"""A rank of an elastic job that prints the time of events by the machine's monotonic clock.

usage: elastic_times.py STEPS [--kill PROCESS@STEP] [--again COUNT]

Each line is: EVENT PROCESS GENERATION SECONDS. Events: `killed`, before the process ends by SIGKILL; `noticed`, when a
peer's failure reaches this rank; `resumed`, after the first collective of a generation; `gap`, with the seconds between
this collective and the last collective of the previous generation. --again: repeats COUNT times a shutdown, an init and
a collective without a change, prints the seconds as `again`, and ends.
"""

import argparse
import os
import signal
import time

import numpy

import horovod.numpy as hvd
from horovod import _elastic
from horovod.common import elastic

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--kill", default="")
parser.add_argument("--again", type=int, default=0)
options = parser.parse_args()
process = int(os.environ.get("HOROVOD_ELASTIC_PROCESS", os.environ["HOROVOD_RANK"]))


def tell(event, seconds):
    print(f"{event} {process} {os.environ.get('HOROVOD_GENERATION', 0)} {seconds:.6f}", flush=True)


def add():
    hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="ones")


class State(elastic.ObjectState):
    def restore(self):
        tell("noticed", time.monotonic())
        super().restore()


hvd.init()
if options.again:
    add()
    for _ in range(options.again):
        start = time.monotonic()
        hvd.shutdown()
        hvd.init()
        add()
        tell("again", time.monotonic() - start)
    raise SystemExit
state = State(step=0)
last = None


@_elastic.run
def train(state):
    global last
    add()
    now = time.monotonic()
    tell("resumed", now)
    if last is not None:
        tell("gap", now - last)
    while state.step < options.steps:
        time.sleep(0.01)
        add()
        last = time.monotonic()
        state.step += 1
        if options.kill == f"{process}@{state.step}":
            tell("killed", time.monotonic())
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()


train(state)
