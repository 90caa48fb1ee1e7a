#!/usr/bin/python3 -B
"""A rank of an elastic job of Horovod's own launcher: it sums ones over the ranks, and commits each step.

usage: elastic_foreign_rank.py STEPS [HOST:SLOT@STEP]

Prints "begins RANK/SIZE at STEP" when a generation begins, and "ends with SUM". The process of the second argument ends
by SIGKILL between a collective and its commit; all others continue.
"""

import os
import signal
import sys
import time

import numpy

import horovod.numpy as hvd
from horovod.common import elastic

steps = int(sys.argv[1])
killed = sys.argv[2] if len(sys.argv) > 2 else ""
name = f"{os.environ['HOROVOD_HOSTNAME']}:{os.environ['HOROVOD_LOCAL_RANK']}"


def train(state):
    print(f"begins {hvd.rank()}/{hvd.size()} at {state.step}", flush=True)
    while state.step < steps:
        state.sum += int(hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="ones")[0])
        state.step += 1
        if killed == f"{name}@{state.step}":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        state.commit()


hvd.init()
state = elastic.ObjectState(step=0, sum=0)
elastic.run_fn(train, hvd.init)(state)
print(f"ends with {state.sum}", flush=True)
