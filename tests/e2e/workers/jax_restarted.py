#!/usr/bin/python3 -B
"""A program of JAX's own distributed runtime that the launcher restarts when the ranks change.

usage: jax_restarted.py CHECKPOINT STOP

All processes meet in jax.distributed, which needs each process to start and to know the others' devices. Rank 0 saves
each step, and all processes end when the file STOP exists. The steps have no collective: on CPUs, JAX's collectives
connect to the address of the host's name, which is 127.0.1.1 on Debian.
"""

import os
import pathlib
import sys
import time

import jax

checkpoint, stop = map(pathlib.Path, sys.argv[1:])
jax.distributed.initialize(
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
)
rank, size = jax.process_index(), jax.process_count()
assert len(jax.devices()) == size, jax.devices()
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
print(f"generation {os.environ['HOROVOD_GENERATION']}: rank {rank} of {size} begins in step {step}", flush=True)
while not stop.exists():
    step = int(jax.jit(lambda number: number + 1)(step))
    if rank == 0:
        new = checkpoint.with_suffix(".new")
        new.write_text(str(step))
        new.rename(checkpoint)
    time.sleep(0.1)
print(f"rank {rank} of {size} ends", flush=True)
