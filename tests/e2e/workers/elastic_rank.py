#!/usr/bin/python3 -B
"""A rank of an elastic job without a framework: it sums ones over the ranks, and commits each step.

usage: elastic_rank.py STEPS [--slow SECONDS] [--import SECONDS] [--kill PROCESS@STEP] [--raise PROCESS@STEP]
       [--early RANK@STEP] [--listen] [--vanish PROCESS@GENERATION] [--sets]
       [--sets-again] [--lose PROCESS@GENERATION] [--fail-in-reset PROCESS@GENERATION] [--tell STEP]
       [--idle PROCESS@SECONDS] [--pair]

Prints "PROCESS begins GENERATION RANK/SIZE at STEP" when a generation begins, "PROCESS ends with SUM in GENERATION",
and "PROCESS has SECONDS s left" before its host leaves. --kill: the process ends by SIGKILL between a collective
and its commit. --early: the rank of generation 0 returns before other ranks. --listen: prints "PROCESS hears of
CHANGE" when the launcher announces changed hosts; a single rank makes no commit before such a line. --vanish:
the process is a member of this generation, and ends by SIGKILL before it connects to other ranks. --sets: adds process
sets, and prints in each generation a sum of ones over them. --sets-again: a reset callback removes them
and adds them again. --lose: the process ends by SIGKILL before it sends its state to other ranks of the generation.
--fail-in-reset: a reset callback of the process raises an error in the generation. --tell: prints "PROCESS has
committed STEP". --idle: the process sleeps between hvd.init and hvd.elastic.run. --pair: a new process calls a
collective after hvd.init, other ranks in a reset callback.
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
parser.add_argument("--raise-as-rank", default="")
parser.add_argument("--early", default="")
parser.add_argument("--listen", action="store_true")
parser.add_argument("--vanish", default="")
parser.add_argument("--sets", action="store_true")
parser.add_argument("--sets-again", action="store_true")
parser.add_argument("--lose", default="")
parser.add_argument("--fail-in-reset", default="")
parser.add_argument("--tell", type=int, default=0)
parser.add_argument("--idle", default="")
parser.add_argument("--pair", action="store_true")
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
from horovod.runner._store import Store, _target


def is_at(spec, number, step):
    return spec == f"{number}@{step}"


class Listener:
    def __init__(self):
        self.has_heard = threading.Event()

    def on_hosts_updated(self, timestamp, update_res):
        print(f"{process} hears of {update_res.name}", flush=True)
        self.has_heard.set()


def vanish(generation):
    """Requests a place in the generation like hvd.init, and ends once the launcher has assigned it."""
    store = Store.of_environment()
    request = generation + 1  # each earlier init made one request
    store._must("PUT", _target(f"elastic/request/{process}"), f"{request} {generation - 1}".encode())
    store._wait(_target(f"elastic/answer/{process}/{request}"))
    os.kill(os.getpid(), signal.SIGKILL)


def reset():
    generation = int(os.environ["HOROVOD_GENERATION"]) + 1
    if is_at(options.vanish, process, generation):
        vanish(generation)
    hvd.init()


if is_at(options.vanish, process, 0):
    vanish(0)
hvd.init()
sets = [hvd.add_process_set(ranks) for ranks in ([0, 1], [2, 3]) if options.sets]
listener = Listener()
if options.listen:
    elastic.notification_manager.register_listener(listener)


class State(elastic.ObjectState):
    __module__ = elastic.ObjectState.__module__  # marks a state that follows the source, like this package's states

    def sync(self):
        if is_at(options.lose, process, os.environ["HOROVOD_GENERATION"]):
            os.kill(os.getpid(), signal.SIGKILL)
        super().sync()


state = State(step=0, sum=0)


def add_sets_again():
    for index, members in enumerate(sets):
        hvd.remove_process_set(members)
        sets[index] = hvd.add_process_set(members.ranks)


if options.sets_again:
    state.register_reset_callbacks([add_sets_again])


def fail_in_reset():
    if is_at(options.fail_in_reset, process, os.environ["HOROVOD_GENERATION"]):
        raise RuntimeError("as ordered")


state.register_reset_callbacks([fail_in_reset])


def try_sets(generation):
    for members in sets:
        try:
            found = "no member"
            if members.included():
                found = int(hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="members", process_set=members)[0])
        except ValueError as error:
            found = error
        print(f"{process} has {members.ranks} in {generation} as {members.process_set_id}: {found}", flush=True)


def call_collective():
    hvd.allreduce(numpy.ones(1), op=hvd.Sum, name="pair")


if options.pair:
    state.register_reset_callbacks([call_collective])
    if int(os.environ["HOROVOD_GENERATION"]) > 0:
        call_collective()
        print(f"{process} has called a collective", flush=True)
idle, _, seconds = options.idle.partition("@")
if idle == str(process):
    time.sleep(float(seconds))


def train(state):
    generation = os.environ["HOROVOD_GENERATION"]
    print(f"{process} begins {generation} {hvd.rank()}/{hvd.size()} at {state.step}", flush=True)
    try_sets(generation)
    has_news = False
    while state.step < options.steps:
        if any(is_at(spec, hvd.rank(), state.step) for spec in options.raise_as_rank.split(",")):
            raise ValueError("no such sample")
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
        if not has_news and elastic.leave_seconds() is not None:
            has_news = True
            print(f"{process} has {elastic.leave_seconds()} s left", flush=True)
        state.commit()
        if state.step == options.tell:
            print(f"{process} has committed {state.step}", flush=True)


_elastic.run_fn(train, reset)(state)
print(f"{process} ends with {state.sum} in {os.environ['HOROVOD_GENERATION']}", flush=True)
