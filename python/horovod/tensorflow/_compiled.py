"""Compiles the kernels for TensorFlow 2.12 and older, whose C API lacks asynchronous kernels.

The first import of `horovod.tensorflow` compiles `_async_kernels.cpp` against the headers of the installed TensorFlow,
and keeps the result in `$XDG_CACHE_HOME/horovod` (`~/.cache/horovod`). Each synchronous kernel would block a thread:
ranks that reach collectives in different orders would deadlock.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from typing import Iterator, List

import tensorflow as tf


def load() -> None:
    """Opens the compiled kernels if TensorFlow needs them. Raises ImportError if the compilation fails."""
    from tensorflow.python import _pywrap_tensorflow_internal

    internal = ctypes.CDLL(_pywrap_tensorflow_internal.__file__)  # already open
    if hasattr(internal, "TF_NewAsyncKernelBuilder"):
        return
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_async_kernels.cpp")
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    if not any("-std=" in flag for flag in flags):  # TensorFlow before 2.10: its functions then take absl::string_view
        flags.append("-std=c++14")
    try:
        with open(source, "rb") as file:
            made_from = [file.read(), flags, tf.version.GIT_VERSION, platform.machine(), platform.libc_ver()]
        key = hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]
        with _own_folder() as folder:
            path = os.path.join(folder, f"tensorflow-{tf.__version__}-{key}.so")
            if not os.path.exists(path):
                _compile(source, flags, path)
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except (OSError, subprocess.SubprocessError) as error:
        raise ImportError(
            f"TensorFlow {tf.__version__} has no asynchronous kernels in its C API, and "
            f"horovod.tensorflow could not compile or load its own for it ({error}); install g++, or name another "
            "compiler in CXX, or use TensorFlow 2.13 or later."
        ) from None


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    """Yields a folder that only this user can write, to one process of a host at a time if the file system supports
    locks. Falls back to a temporary folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(cache, "horovod")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.stat(folder)
        is_own = status.st_uid == os.geteuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK)
    except OSError:
        is_own = False
    if not is_own:
        with tempfile.TemporaryDirectory(prefix="horovod-") as temporary:
            yield temporary
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # without a lock, two processes may compile at the same time
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)


def _compile(source: str, flags: List[str], path: str) -> None:
    compiler = shlex.split(os.environ.get("CXX", ""))
    if not compiler:
        compiler = [next(filter(shutil.which, ("g++", "c++", "clang++")), "g++")]
    unfinished = f"{path}.{platform.node()}.{os.getpid()}"
    done = subprocess.run(
        [*compiler, "-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-w", source, *flags, "-o", unfinished],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "error" in line.lower()] or done.stdout.splitlines()
        raise OSError(f"{' '.join(done.args[:-1])}: {lines[0] if lines else f'exit code {done.returncode}'}")
    os.replace(unfinished, path)
