#!/usr/bin/python3
"""Ranks reduce "step.0". Then the rank of --rank delays the others in "step.1" as --then requests: nap (sleep in a
function until GO) or stop (SIGSTOP)."""

import argparse
import os
import signal
import sys
import time

import torch

import horovod.torch as hvd


def nap_before_the_step(go):
    while not os.path.exists(go):
        time.sleep(0.05)


parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, required=True)
parser.add_argument("--then", required=True)
parser.add_argument("--go", required=True)
options = parser.parse_args()

hvd.init()
ones = torch.ones(1000)
hvd.allreduce(ones, op=hvd.Sum, name="step.0")
print("ready", os.getpid(), flush=True)
if hvd.rank() == options.rank:
    if options.then == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        nap_before_the_step(options.go)
try:
    total = hvd.allreduce(ones, op=hvd.Sum, name="step.1")
except hvd.HorovodInternalError as error:
    print("allreduce:", error, file=sys.stderr, flush=True)
    sys.exit(1)
assert total[0].item() == hvd.size()
print("done", flush=True)
