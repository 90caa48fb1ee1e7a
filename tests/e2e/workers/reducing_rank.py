#!/usr/bin/python3
"""A rank that reduces forever, with a forked child that keeps all its sockets open. At GO the rank of --rank ends as
--then requests: exit3, leave3, kill or segv."""

import argparse
import ctypes
import os
import signal
import sys
import time

import torch

import horovod.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, required=True)
parser.add_argument("--then", required=True)
parser.add_argument("--go", required=True)
options = parser.parse_args()

hvd.init()
if os.fork() == 0:
    time.sleep(600)
    os._exit(0)
print("ready", flush=True)
ones = torch.ones(1000)
while True:
    if hvd.rank() == options.rank and os.path.exists(options.go):
        if options.then == "exit3":
            os._exit(3)
        if options.then == "leave3":  # runs Python's exit handlers, like a normal end
            sys.exit(3)
        if options.then == "segv":
            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        total = hvd.allreduce(ones, op=hvd.Sum, name="ones")
    except Exception as error:  # the error that a user's program gets
        print("allreduce:", error, file=sys.stderr, flush=True)
        sys.exit(1)
    assert total[0].item() == hvd.size()
