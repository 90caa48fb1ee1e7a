"""A rank that saves at SIGTERM. One job has a rank of each form: the first process of the rank replaces itself.

usage: saving_rank.py FORM[-WORKERS],... [init]     # the forms of rank 0, 1, ...
FORM: python, script, commands, timeout, wrapper, supervisor (a wrapper that handles SIGTERM too), parent (it leaves a
child behind); WORKERS of torch's DataLoader: fork, spawn
"""

import os
import signal
import subprocess
import sys
import time

SCRIPT = """#!/bin/bash
{command}
echo "after with $?"
"""


def say(text):
    os.write(1, f"{text}\n".encode())


def save(*_):
    # Long enough for torch to notice that a signal ended a worker.
    for _ in range(100):
        time.sleep(0.01)
    say("saved")
    sys.exit(0)


def leave_child():
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, lambda *_: (say("child ends"), os._exit(0)))
        while True:
            signal.pause()


def batches(workers):
    if not workers:
        while True:
            yield 0
    import torch.utils.data

    yield from torch.utils.data.DataLoader(range(1 << 30), num_workers=1, multiprocessing_context=workers)


def train(workers, has_child, has_init):
    if has_child:
        leave_child()
    if has_init:
        import horovod.numpy as hvd

        hvd.init()
    signal.signal(signal.SIGTERM, save)
    is_ready = False
    for _ in batches(workers):
        if not is_ready:
            say("ready")
        is_ready = True
        time.sleep(0.01)


def become(form, *rest):
    command = [sys.executable, __file__, "train", *rest]
    words = " ".join(command)
    if form in ("python", "parent"):
        os.execv(command[0], command)
    if form == "commands":
        os.execv("/bin/sh", ["sh", "-c", f"{words}; echo after with $?"])
    if form == "timeout":
        os.execvp("timeout", ["timeout", "300", *command])
    if form in ("wrapper", "supervisor"):
        os.execv(command[0], [command[0], __file__, "wrap", form, *command])
    script = os.path.join(os.environ["SAVING_FOLDER"], f"rank{os.environ['HOROVOD_RANK']}.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(SCRIPT.format(command=words))
    os.execv("/bin/bash", ["bash", script])


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(sys.argv[3].strip("-"), sys.argv[2] == "parent", "init" in sys.argv[4:])
    elif sys.argv[1] == "wrap":
        if sys.argv[2] == "supervisor":
            signal.signal(signal.SIGTERM, lambda *_: say("supervisor got SIGTERM"))
        say(f"after with {subprocess.call(sys.argv[3:])}")
    else:
        own, _, kind = sys.argv[1].split(",")[int(os.environ["HOROVOD_RANK"])].partition("-")
        become(own, own, kind or "-", *sys.argv[2:])
