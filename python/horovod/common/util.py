"""Checks of available features and small helpers, under the module name that scripts import."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from horovod import _basics
from horovod._frontend import choose_op

__all__ = [
    "EXTENSIONS",
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "cuda_built",
    "ddl_built",
    "env",
    "extension_available",
    "get_average_backwards_compatibility_fun",
    "get_ext_suffix",
    "get_extension_full_path",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "rocm_built",
    "split_list",
]

EXTENSIONS = ["tensorflow", "torch", "mxnet"]

# Programs that exit with 0 if a framework finds a GPU.
_GPU_PROGRAMS = {
    "torch": "import torch; raise SystemExit(not torch.cuda.is_available())",
    "tensorflow": "import tensorflow; raise SystemExit(not tensorflow.config.list_physical_devices('GPU'))",
    "mxnet": "import mxnet; raise SystemExit(mxnet.context.num_gpus() == 0)",
}


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether a framework, such as "torch", is installed. Does not import it."""
    return importlib.util.find_spec(ext_base_name) is not None


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError unless the framework of `ext_name`, such as "horovod.torch", is installed. No
    code is compiled against the framework, so the other arguments have no effect."""
    framework = ext_name.rpartition(".")[2]
    if not extension_available(framework):
        raise ImportError(f"{ext_name} needs {framework}, which is not installed for {sys.executable}.")


def check_installed_version(name: str, version: str, exception: Optional[Exception] = None) -> None:
    """Does nothing, because no code of this package is compiled against one version of a framework."""


def get_ext_suffix() -> str:
    """Returns the ending of this Python's compiled modules."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Returns the path of a compiled module in the folder of `pkg_path`."""
    return os.path.join(os.path.dirname(pkg_path), *args) + get_ext_suffix()


@functools.lru_cache(maxsize=None)
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether a framework, such as "torch", finds a GPU. Starts a separate process for the test."""
    if ext_base_name not in _GPU_PROGRAMS or not extension_available(ext_base_name):
        return False
    if not (_basics.cuda_built() or _basics.rocm_built()):
        return False
    done = subprocess.run(
        [sys.executable, "-c", _GPU_PROGRAMS[ext_base_name]],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return done.returncode == 0


@contextlib.contextmanager
def env(**kwargs: Optional[str]) -> Iterator[None]:
    """Sets environment variables for the duration of a `with` block; None removes one."""
    before = {name: os.environ.get(name) for name in kwargs}
    try:
        _set_variables(kwargs.items())
        yield
    finally:
        _set_variables(before.items())


def _set_variables(variables: Any) -> None:
    for name, value in variables:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Optional[int], Optional[bool]], int]:
    """Returns a function of `op` and the deprecated argument `average` that returns the reduction.
    `reduce_ops` has no effect."""
    return lambda op, average: choose_op(average, op)


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Returns whether the version `ver`, such as "2.15.1", is `target` or later. Raises ValueError for a `target` that
    is not three numbers."""
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", target):
        raise ValueError(f"target is {target!r}; give three numbers, such as '2.15.0'.")
    return _numbers(ver) >= _numbers(target)


def _numbers(version: str) -> Tuple[int, ...]:
    found = re.match(r"([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?", version)
    if found is None:
        raise ValueError(f"{version!r} is no version; give one such as '2.15.0'.")
    return tuple(int(part or 0) for part in found.groups())


def mpi_built(verbose: bool = False) -> bool:
    """Returns whether the MPI library can be opened on this machine. All these functions accept `verbose` for
    existing scripts."""
    return _basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """Returns whether jobs without MPI work on this machine."""
    return _basics.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    """Returns whether NCCL works on this machine."""
    return bool(_basics.nccl_built())


def ddl_built(verbose: bool = False) -> bool:
    """Returns whether IBM's DDL works on this machine."""
    return _basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """Returns whether Intel's oneCCL works on this machine."""
    return _basics.ccl_built()


def cuda_built(verbose: bool = False) -> bool:
    """Returns whether tensors in CUDA memory work on this machine."""
    return _basics.cuda_built()


def rocm_built(verbose: bool = False) -> bool:
    """Returns whether tensors in ROCm memory work on this machine."""
    return _basics.rocm_built()


def is_iterable(x: Any) -> bool:
    """Returns whether the object is iterable."""
    return hasattr(x, "__iter__")


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether a number of ranks is 1, 2, 4 and so on."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[Any], n: int) -> List[Sequence[Any]]:  # noqa: E741
    """Returns `l` in `n` parts of about equal length, the longer parts first; parts may be empty."""
    short, longer = divmod(len(l), n)
    starts = [part * short + min(part, longer) for part in range(n + 1)]
    return [l[a:b] for a, b in zip(starts, starts[1:])]
