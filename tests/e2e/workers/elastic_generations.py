#!/usr/bin/python3 -B
"""A rank of an elastic job that goes through many generations, and measures the resources that each leaves behind.

usage: elastic_generations.py GENERATIONS FOLDER

The ranks stay the same. Generations end alternately by an interrupt or a failure, with work of rank 0 that other ranks
never join. Rank 0 prints "after G generations: D descriptors, T threads, R KiB, K keys" after a tenth and after all of
them, and continues when FOLDER has a file G; K: keys of the job's store.
"""

import gc
import os
import pathlib
import sys
import time

import numpy

import horovod.numpy as hvd
from horovod import _elastic
from horovod.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner._store import Store

GENERATIONS = int(sys.argv[1])
FOLDER = pathlib.Path(sys.argv[2])


def resident():
    with open("/proc/self/statm", encoding="ascii") as counts:
        return int(counts.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def report(store, generation):
    hvd.barrier()  # after the rendezvous, the store has no keys of this start
    gc.collect()
    keys = [key for key in store._must("GET", "/v1/list/").split(b"\n") if key]
    print(
        f"after {generation} generations: {len(os.listdir('/proc/self/fd'))} descriptors, "
        f"{len(os.listdir('/proc/self/task'))} threads, {resident()} KiB, {len(keys)} keys",
        flush=True,
    )


hvd.init()
store = Store.of_environment()
members = hvd.add_process_set([0, 1])


@_elastic.run
def train(state):
    generation = int(os.environ["HOROVOD_GENERATION"])
    assert int(hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="ones")[0]) == hvd.size()
    if members.included():
        hvd.barrier(process_set=members)
    if generation in (GENERATIONS // 10, GENERATIONS):
        if hvd.rank() == 0:
            report(store, generation)
            while not (FOLDER / str(generation)).exists():
                time.sleep(0.02)
        else:
            hvd.barrier()
    if generation == GENERATIONS:
        return state.step
    state.step += 1
    state.commit()
    if hvd.rank() == 0:
        hvd.allreduce_async(numpy.ones(1000), name="pending")
    raise HorovodInternalError("planted") if generation % 2 else HostsUpdatedInterrupt(False)


steps = train(_elastic.ObjectState(step=0))
assert steps == GENERATIONS, steps
