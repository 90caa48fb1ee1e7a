#!/usr/bin/python3 -B
"""A rank of an elastic job without a framework: it sums ones over the ranks, and commits each step.

usage: elastic_rank.py STEPS [--slow SECONDS] [--import SECONDS] [--kill PROCESS@STEP] [--raise PROCESS@STEP]
       [--early RANK@STEP] [--listen]

Prints "PROCESS begins GENERATION RANK/SIZE at STEP" when a generation begins, and "PROCESS ends with SUM in
GENERATION". --kill: the process ends by SIGKILL between a collective and its commit. --early: the rank of
generation 0 returns before the others. --listen: prints "PROCESS hears of CHANGE" when the launcher announces
changed hosts; a single rank makes no commit before it has heard of one.
"""
import argparse
import os
import signal
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--slow", type=float, default=0.1)
parser.add_argument("--import", type=float, default=0, dest="imports")
parser.add_argument("--kill", default="")
parser.add_argument("--raise", default="", dest="raises")
parser.add_argument("--early", default="")
parser.add_argument("--listen", action="store_true")
options = parser.parse_args()

if "." in os.environ["HOROVOD_ELASTIC_PROCESS"]:
    raise SystemExit("no number")
process = int(os.environ["HOROVOD_ELASTIC_PROCESS"])
if process > 0:
    time.sleep(options.imports)

import numpy

import horovod.numpy as hvd
from horovod.common import elastic
from horovod import _elastic


def is_at(spec, number, step):
    return spec == f"{number}@{step}"


class Listener:
    def __init__(self):
        self.has_heard = threading.Event()

    def on_hosts_updated(self, timestamp, update_res):
        print(f"{process} hears of {update_res.name}", flush=True)
        self.has_heard.set()


hvd.init()
listener = Listener()
if options.listen:
    elastic.notification_manager.register_listener(listener)
state = elastic.ObjectState(step=0, sum=0)


@_elastic.run
def train(state):
    generation = os.environ["HOROVOD_GENERATION"]
    print(f"{process} begins {generation} {hvd.rank()}/{hvd.size()} at {state.step}", flush=True)
    while state.step < options.steps:
        state.sum += int(hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="ones")[0])
        state.step += 1
        if is_at(options.kill, process, state.step):
            os.kill(os.getpid(), signal.SIGKILL)
        if is_at(options.raises, process, state.step):
            raise RuntimeError("as ordered")
        if is_at(options.early, hvd.rank(), state.step):
            return
        time.sleep(options.slow)
        if options.listen and hvd.size() == 1:
            listener.has_heard.wait(60)
        state.commit()


train(state)
print(f"{process} ends with {state.sum} in {os.environ['HOROVOD_GENERATION']}", flush=True)
