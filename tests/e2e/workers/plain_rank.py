#!/usr/bin/python3 -B
"""A rank that calls hvd.init, but does not enter hvd.elastic.run. usage: plain_rank.py STEPS [RANK@STEP]

RANK@STEP: this rank of generation 0 ends by SIGKILL there.
"""

import os
import signal
import sys
import time

import numpy

import horovod.numpy as hvd

hvd.init()
generation = os.environ["HOROVOD_GENERATION"]
print(f"generation {generation}: rank {hvd.rank()} of {hvd.size()} begins", flush=True)
total = 0
for step in range(int(sys.argv[1])):
    if generation == "0" and sys.argv[2:] == [f"{hvd.rank()}@{step}"]:
        os.kill(os.getpid(), signal.SIGKILL)
    total += int(hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="step")[0])
    time.sleep(0.05)
print(f"generation {generation}: sum {total}", flush=True)
