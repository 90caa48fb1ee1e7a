"""`python -m horovod.runner.launch ...` is `horovodrun ...`, for scripts that start jobs so."""

from __future__ import annotations

import os
import sys

from horovod.runner import _program


def run_commandline() -> None:
    """Becomes the launcher, with this process's arguments. FileNotFoundError where there is none."""
    program = _program.find()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
