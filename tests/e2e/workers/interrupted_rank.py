#!/usr/bin/python3
"""Rank 0 waits for an operation that rank 1 does not submit, and for another while rank 1 is stopped. Each wait
gets a SIGINT; rank 0 prints the time that its wait needed to end, and continues with rank 1. The argument
is a folder for both ranks: a file in it lets rank 1 submit its operation."""

import os
import pathlib
import signal
import sys
import threading
import time

import torch

import horovod.torch as hvd

folder = pathlib.Path(sys.argv[1])
go = folder / "go"


def interrupt(what, wait):
    struck = 0.0

    def strike():
        nonlocal struck
        time.sleep(0.3)  # the main thread then waits, most likely asleep
        struck = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    striker = threading.Thread(target=strike)
    try:
        striker.start()
        wait()
        sys.exit(f"nobody interrupted {what}")
    except KeyboardInterrupt:
        print(f"{what} interrupted after {(time.monotonic() - struck) * 1000:.0f} ms", flush=True)
    striker.join()


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    while pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)  # polls, because only the parent gets an event from the kernel


signal.signal(signal.SIGINT, signal.default_int_handler)
hvd.init()
pids = hvd.allgather(torch.tensor([os.getpid()])).tolist()
if hvd.rank() == 0:
    handle = hvd.allreduce_async(torch.ones(3), name="late", op=hvd.Sum)
    interrupt("synchronize", lambda: hvd.synchronize(handle))
    stop(pids[1])
    interrupt("metrics", lambda: hvd.metrics("job"))
    hvd.start_timeline(folder / "timeline")
    interrupt("stop_timeline", hvd.stop_timeline)
    os.kill(pids[1], signal.SIGCONT)
    go.touch()
    handle = hvd.allreduce_async(torch.ones(3), name="after", op=hvd.Sum)
    total = hvd.synchronize(handle)
else:
    while not go.exists():
        time.sleep(0.01)
    hvd.allreduce(torch.ones(3), name="late", op=hvd.Sum)
    total = hvd.allreduce(torch.ones(3), name="after", op=hvd.Sum)
assert total.tolist() == [2, 2, 2]
