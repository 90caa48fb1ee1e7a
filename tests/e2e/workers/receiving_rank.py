"""Ranks 0 and 1 wait for a message of rank 2, which kills itself once both wait."""

import os
import signal

import torch

import horovod.torch as hvd

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ignores the launcher, which ends the job after rank 2
hvd.init()
tensor = torch.zeros(1)
if hvd.rank() == 2:
    for other in (0, 1):
        hvd.recv(tensor, other)
    os.kill(os.getpid(), signal.SIGKILL)
hvd.send(tensor, 2)
try:
    hvd.recv(torch.zeros(100000), 2 if hvd.rank() == 0 else None)
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} stopped waiting: {error}", flush=True)
    raise
