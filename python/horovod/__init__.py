"""Horovod: distributed training by allreduce.

This module imports no framework and opens no library. Import the module of your framework, such as ``import
horovod.torch as hvd``. `horovod.run` starts jobs from Python.
"""

import importlib
import os
from typing import TYPE_CHECKING

from horovod._version import __version__

# Only the original Horovod has this file: its presence means that both packages lie in one folder.
if os.path.exists(os.path.join(os.path.dirname(__file__), "runner", "js_run.py")):
    raise ImportError(
        f"{os.path.dirname(__file__)} holds files of the original Horovod next to those of this "
        f"version, {__version__}: remove that folder and install this version again."
    )

if TYPE_CHECKING:
    from horovod.runner import run

__all__ = ["__version__", "run"]


def __getattr__(name: str) -> object:
    if name == "run":
        from horovod.runner import run

        globals()["run"] = run
        return run
    if name in ("common", "runner"):
        return importlib.import_module(f"horovod.{name}")
    raise AttributeError(f"module 'horovod' has no attribute '{name}'")
