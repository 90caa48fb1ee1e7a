"""Models of Keras under Horovod: compiling them, and loading them."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any, Dict, List, Optional

from horovod._keras._frameworks import framework_of, major_of
from horovod._keras import _replicas, loss_scale
from horovod._keras.optimizer import Distributed, distribute_in_place, is_distributed


def _knows(function: Any, argument: str) -> bool:
    return argument in inspect.signature(function).parameters


def prepare(keras: Any) -> None:
    """Patches Model.compile: it accepts the arguments of Keras 2, and does not compile steps with reductions by XLA."""
    # Patch the class that defines the method: Keras would treat a method of Model itself as a method of the user.
    owner = next(one for one in keras.Model.__mro__ if "compile" in vars(one))
    compile_ = owner.compile
    if getattr(compile_, "_hvd_prepared", False):
        return
    takes_old = major_of(keras) < 3 or _knows(compile_, "experimental_run_tf_function")
    warned: List[bool] = []

    @functools.wraps(compile_)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not takes_old and "experimental_run_tf_function" in kwargs:
            del kwargs["experimental_run_tf_function"]
            if not warned:
                warned.append(True)
                warnings.warn(
                    f"Keras {keras.__version__} has no experimental_run_tf_function in "
                    "Model.compile; it is left out, and nothing is needed in its place.",
                    stacklevel=2,
                )
        result = compile_(self, *args, **kwargs)
        _without_xla(keras, self)
        _watch(self)
        return result

    compile._hvd_prepared = True  # type: ignore[attr-defined]
    owner.compile = compile


def _without_xla(keras: Any, model: Any) -> None:
    attribute = "jit_compile" if major_of(keras) >= 3 else "_jit_compile"
    if (
        framework_of(keras) == "tensorflow"
        and is_distributed(getattr(model, "optimizer", None))
        and getattr(model, attribute, False)
    ):
        setattr(model, attribute, False)
        warnings.warn(
            "Model.compile: jit_compile is off for this model, since XLA cannot compile steps in "
            "which Horovod reduces gradients.",
            stacklevel=3,
        )


def _watch(model: Any) -> None:
    for optimizer in loss_scale.wrapped(getattr(model, "optimizer", None)):
        if isinstance(optimizer, Distributed):
            _replicas.watch(model, optimizer)


def load(
    keras: Any,
    filepath: Any,
    plan: Dict[str, Any],
    custom_optimizers: Optional[Any],
    custom_objects: Optional[Dict[str, Any]],
) -> Any:
    """Returns the model of `filepath`, with a distributed optimizer in its saved state."""
    objects = {optimizer.__name__: optimizer for optimizer in custom_optimizers or []}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects or None)
    if getattr(model, "optimizer", None) is not None:
        distribute_in_place(keras, model.optimizer, plan)
        _without_xla(keras, model)
        _watch(model)
    return model
