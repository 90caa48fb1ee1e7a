#!/usr/bin/python3 -B
"""A rank of an elastic job that accepts new ranks while it trains: elastic_warm.py FOLDER ENTRANCE

ENTRANCE: a new process's first call with the other ranks: "run" enters hvd.elastic.run, "collective" broadcasts
weights, "set" adds a process set of the other ranks, "memory" allocates memory of the library and reads all places
first. A new process waits before it until the file FOLDER/enter or FOLDER/enter-PROCESS exists. A process fails when
FOLDER/fail-PROCESS exists. Prints "PROCESS is RANK of SIZE" after hvd.init, and "PROCESS trains as RANK of SIZE after
SIZES" in each generation, with the sizes that its reset callback has seen. FOLDER/steps has the number of steps so far,
until the file FOLDER/end ends the training.
"""

import os
import pathlib
import sys
import time

import numpy

import horovod.numpy as hvd
from horovod import _elastic, _memory
from horovod.common import elastic

folder, entrance = pathlib.Path(sys.argv[1]), sys.argv[2]
process = os.environ["HOROVOD_ELASTIC_PROCESS"]


def fail_if_told():
    if (folder / f"fail-{process}").exists():
        sys.exit(7)


hvd.init()
print(f"{process} is {hvd.rank()} of {hvd.size()}", flush=True)
resets = []
alone = hvd.ProcessSet([0])
is_new = hvd.size() > 2
if not is_new:
    hvd.add_process_set(alone)
else:
    place = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()
    if entrance == "memory":
        shared = numpy.frombuffer(_memory.registered_buffer(1 << 20), numpy.float32)
        assert hvd.global_process_set.size() == hvd.size() and hvd.global_process_set.rank() == hvd.rank()
        assert hvd.is_initialized() and os.environ["HOROVOD_RANK"] == str(hvd.rank())
    while not any((folder / name).exists() for name in ("enter", f"enter-{process}")):
        fail_if_told()
        time.sleep(0.02)
    if entrance == "collective":
        weights = hvd.broadcast(numpy.zeros(4), 0, name="weights")
        assert (weights == 1).all(), weights
    if entrance == "set":
        assert hvd.add_process_set([0]).size() == 1
    if entrance != "run":
        assert place == (
            hvd.rank(),
            hvd.size(),
            hvd.local_rank(),
            hvd.local_size(),
            hvd.cross_rank(),
            hvd.cross_size(),
        ), place
state = elastic.ObjectState(step=0)


def after_reset():
    resets.append(hvd.size())
    if entrance == "collective" and not is_new and hvd.size() > 2:
        hvd.broadcast(numpy.ones(4), 0, name="weights")


state.register_reset_callbacks([after_reset])


@_elastic.run
def train(state):
    print(f"{process} trains as {hvd.rank()} of {hvd.size()} after {resets}", flush=True)
    are_ending = False
    while not are_ending:
        # Ranks see the file at different times: they agree, so that all end after the same step.
        ones = numpy.ones(4, numpy.float32)
        ones[3] = state.step >= 100 and (folder / "end").exists()
        if is_new and entrance == "memory":
            shared[:4] = ones
            ones = shared[:4]
        sums = hvd.allreduce(ones, op=hvd.Sum, name="step")
        assert (sums[:3] == hvd.size()).all(), sums
        are_ending = sums[3] > 0
        fail_if_told()
        time.sleep(0.005)
        state.step += 1
        if hvd.rank() == 0:
            (folder / "steps.new").write_text(str(state.step))
            (folder / "steps.new").rename(folder / "steps")
        state.commit()


train(state)
print(f"{process} ends at {state.step}", flush=True)
