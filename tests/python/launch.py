"""Runs a program as the ranks of a job, or skips where this interpreter has no torch.

    python3 launch.py LAUNCHER [ARGUMENT...] -- PROGRAM [ARGUMENT...]

PROGRAM is a Python program and gets this interpreter.
"""

import importlib.util
import os
import sys

at = sys.argv.index("--")
launcher, program = sys.argv[1:at], sys.argv[at + 1 :]
if importlib.util.find_spec("torch") is None:
    # Said here, because the launcher puts the rank in front of what a rank says.
    print(f"SKIP: {sys.executable} has no torch")
    sys.exit(77)
os.execv(launcher[0], launcher + [sys.executable] + program)
