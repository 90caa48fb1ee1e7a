"""Loads the operations that graphs may contain, and passes them the open library."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Tuple

import tensorflow as tf

from horovod import _ops
from horovod._library import library
from horovod.tensorflow import _compiled

# In the order of tensorflow_ops/library.h.
_FUNCTIONS = [
    "hvd_submit",
    "hvd_wait",
    "hvd_poll",
    "hvd_get_output",
    "hvd_release",
    "hvd_rank",
    "hvd_local_rank",
    "hvd_process_set_size",
    "hvd_local_size",
    "hvd_process_set_included",
]


def _load() -> Tuple[Any, ctypes.PyDLL]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_operations.so")
    if not os.path.exists(path):
        raise ImportError(f"{path} is missing: build or install Horovod anew.")
    _compiled.load()
    try:
        operations = tf.load_op_library(path)
    except (OSError, tf.errors.OpError, RuntimeError) as error:
        raise ImportError(f"TensorFlow {tf.__version__} cannot load {path}: {error}") from None
    native = ctypes.PyDLL(path)
    native.horovod_tensorflow_problem.restype = ctypes.c_char_p
    problem = native.horovod_tensorflow_problem().decode()
    if problem:
        raise ImportError(
            f"TensorFlow {tf.__version__} in {os.path.dirname(tf.__file__)} cannot run Horovod's "
            f"operations ({problem}); TensorFlow 2.4 to 2.21 can."
        )
    _run_in_any_order()
    _trace_as_written()
    addresses = [library().address_of(name) for name in _FUNCTIONS]
    native.horovod_tensorflow_bind((ctypes.c_void_p * len(addresses))(*addresses))
    native.horovod_tensorflow_forget_names.argtypes = [ctypes.c_int32]
    _ops.also_restart(native.horovod_tensorflow_forget_names)
    native.horovod_tensorflow_is_due.argtypes = [ctypes.c_int32]
    native.horovod_tensorflow_count_down.argtypes = [ctypes.c_int32, ctypes.c_int64]
    native.horovod_tensorflow_count_down.restype = None
    return operations, native


def _trace_as_written() -> None:
    # AutoGraph rewrites each Python function that a tf.function calls, except those of packages in this list. Ours need
    # no rewriting, and it takes most of the time of a first step.
    from tensorflow.python.autograph.core import config

    config.CONVERSION_RULES = (config.DoNotConvert("horovod"), *config.CONVERSION_RULES)


def _run_in_any_order() -> None:
    # A tf.function runs stateful operations one after another in program order, unless they are in this list.
    # Collectives that run so would not overlap, and would not match the collectives of ranks with another order.
    from tensorflow.python.framework import auto_control_deps

    ours = frozenset(
        [
            f"Horovod{collective}{form}"
            for form in ("", "InCall")
            for collective in ("Allreduce", "Broadcast", "Allgather", "Reducescatter", "Alltoall")
        ]
        + ["HorovodNumber"]
    )
    if hasattr(auto_control_deps, "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS"):
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS |= ours
    else:  # TensorFlow 2.4 then skips an operation whose result is unused
        auto_control_deps._ALL_DENYLISTED_OPS |= ours


operations, _library = _load()
is_due, count_down = _library.horovod_tensorflow_is_due, _library.horovod_tensorflow_count_down
