#!/usr/bin/python3
"""Rank 0 waits for what rank 1 does not submit, gets a Ctrl-C, says how long that took, and waits
again: now rank 1 comes. The file named by the argument tells it so."""
import os
import pathlib
import signal
import sys
import threading
import time

import torch

import horovod.torch as hvd

go = pathlib.Path(sys.argv[1])
struck = 0.0


def strike():
    global struck
    time.sleep(0.3)  # the main thread is in its wait, most likely asleep
    struck = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, signal.default_int_handler)
hvd.init()
if hvd.rank() == 0:
    handle = hvd.allreduce_async(torch.ones(3), name="late", op=hvd.Sum)
    threading.Thread(target=strike).start()
    try:
        hvd.synchronize(handle)
        sys.exit("nobody interrupted it")
    except KeyboardInterrupt:
        print(f"interrupted after {(time.monotonic() - struck) * 1000:.0f} ms", flush=True)
    go.touch()
    handle = hvd.allreduce_async(torch.ones(3), name="after", op=hvd.Sum)
    total = hvd.synchronize(handle)
else:
    while not go.exists():
        time.sleep(0.01)
    hvd.allreduce(torch.ones(3), name="late", op=hvd.Sum)
    total = hvd.allreduce(torch.ones(3), name="after", op=hvd.Sum)
assert total.tolist() == [2, 2, 2]
