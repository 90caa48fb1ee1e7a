"""Runs a program as the ranks of a job. Skips if this interpreter lacks torch (or MODULE), or if torch finds
fewer than COUNT GPUs.

    python3 launch.py [--gpus COUNT] [--needs MODULE] LAUNCHER [ARGUMENT...] -- PROGRAM [ARGUMENT...]

PROGRAM is a Python program and gets this interpreter.
"""

import importlib.util
import os
import sys

needed = "torch"
gpus = 0
if sys.argv[1] == "--gpus":
    gpus = int(sys.argv[2])
    del sys.argv[1:3]
if sys.argv[1] == "--needs":
    needed = sys.argv[2]
    del sys.argv[1:3]
at = sys.argv.index("--")
launcher, program = sys.argv[1:at], sys.argv[at + 1 :]
if importlib.util.find_spec(needed) is None:
    # Print the skip here, because the launcher would prefix a rank's line with the rank.
    print(f"SKIP: {sys.executable} has no {needed}")
    sys.exit(77)
if gpus:
    import torch

    if torch.cuda.device_count() < gpus:
        print(f"SKIP: torch finds {torch.cuda.device_count()} GPUs here, and {gpus} are needed")
        sys.exit(77)
os.execv(launcher[0], launcher + [sys.executable] + program)
