"""`python -m horovod.runner.launch ...` is `horovodrun ...`, for scripts that start jobs in this way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any, List, Optional, Sequence

from horovod.runner import _arguments, _calls, _program
from horovod.runner._job import call_on_all


def parse_args(args: Optional[Sequence[str]] = None) -> _arguments.HorovodArgs:
    """Returns the flags and the command of a command line of the original's horovodrun, by default of this process.
    Raises SystemExit for invalid arguments."""
    return _arguments.parse(args)


def _run(args: Any) -> Optional[List[Any]]:
    """Runs a job that `horovod.runner._HorovodArgs` or `parse_args` describes. Returns the results of `run_func` by
    rank, or None for a command. Raises RuntimeError if the job fails."""
    flags = _arguments.flags_of(args)
    if getattr(args, "run_func", None) is not None:
        call = _calls.pack_call(sys.path, args.run_func, (), {})
        least = getattr(args, "min_num_proc", None)
        is_elastic = least is not None or getattr(args, "host_discovery_script", None) is not None
        return call_on_all(
            call, args.num_proc or 1 if least is None else least, flags, args.executable or sys.executable, is_elastic
        )
    is_question = getattr(args, "check_build", None)
    command = [] if is_question else _arguments.command_of(args)
    with subprocess.Popen([_program.find(), *flags, *command]) as launcher:
        try:
            code = launcher.wait()
        except BaseException:
            launcher.send_signal(signal.SIGTERM)
            raise
    if code != 0:
        raise RuntimeError(f"Horovod's job ended with exit code {code}; horovodrun's message says why.")
    return None


def run_commandline() -> None:
    """Replaces this process by the launcher, with this process's arguments. Raises FileNotFoundError if the
    launcher is missing."""
    program = _program.find()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
