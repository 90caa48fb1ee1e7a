"""The version and the framework of a Keras, marks of gradients, and variables of layers."""

from __future__ import annotations

import importlib
from typing import Any

from horovod.process_sets import ProcessSet


def major_of(keras: Any) -> int:
    """Returns the major version of Keras."""
    return int(getattr(keras, "__version__", "2").split(".")[0])  # tf.keras of Keras 2 has no version


def framework_of(keras: Any) -> str:
    """Returns the framework of this Keras: tensorflow, torch or jax. Raises ImportError for others."""
    name = keras.backend.backend() if major_of(keras) >= 3 else "tensorflow"
    if name not in ("tensorflow", "torch", "jax"):
        raise ImportError(
            f"Horovod's module for Keras works on the backends tensorflow, torch and jax, not on "
            f"{name}; choose one by the variable KERAS_BACKEND."
        )
    return name


def backend_of(keras: Any) -> Any:
    """Returns the module that reduces and broadcasts tensors of this Keras's framework."""
    return importlib.import_module(f"horovod._keras.on_{framework_of(keras)}")


def mark_reduced(grad: Any) -> None:
    """Marks this gradient as reduced over all ranks. A tensor computed from the gradient has no mark."""
    if grad is not None:
        grad._hvd_reduced = True


def mark_allreduced(tensor: Any, process_set: ProcessSet) -> Any:
    """Marks the result of an allreduce over this process set that a script has called, and returns it."""
    tensor._hvd_allreduced = process_set.process_set_id  # a number, which copies and pickles preserve
    return tensor


def is_allreduced(grad: Any, process_set: ProcessSet) -> bool:
    """Returns whether a script has reduced this gradient by an allreduce over this process set."""
    return getattr(grad, "_hvd_allreduced", None) == process_set.process_set_id


def is_reduced(grad: Any) -> bool:
    return getattr(grad, "_hvd_reduced", False)


def variables_of(local_layers: Any) -> list:
    """Returns the trainable variables of a built layer or of layers. Raises ValueError for others."""
    if local_layers is None:
        return []
    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
    if not all(hasattr(layer, "trainable_variables") for layer in layers):
        raise ValueError("local_layers is a layer of Keras, or a list of them.")
    return [variable for layer in layers for variable in layer.trainable_variables]
