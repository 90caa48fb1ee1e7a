"""LossScaleOptimizer of Keras around a distributed optimizer: all ranks make a step, or none does.

LossScaleOptimizer applies gradients only if they are finite. Ranks that decided this alone would skip a reduction
in which other ranks wait, and would have different loss scales."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator, List, Type

from horovod._keras._frameworks import backend_of, major_of


def wrapped(optimizer: Any) -> Iterator[Any]:
    """Yields the optimizer, then the optimizer that it wraps, and so on."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


def class_of(keras: Any) -> Type[Any]:
    """Returns LossScaleOptimizer."""
    return (keras.optimizers if major_of(keras) >= 3 else keras.mixed_precision).LossScaleOptimizer


def prepare(keras: Any) -> None:
    """Patches LossScaleOptimizer, which Model.compile puts around optimizers. Behaviour changes only for optimizers
    that wrap a distributed optimizer."""
    if major_of(keras) >= 3:
        base = class_of(keras)
        prepare_class(keras, base)
        _patch(base, "__init__", functools.partial(_initializing, keras))
        return
    base = class_of(keras)
    for owner in [base, *base.__subclasses__()]:  # one class for legacy optimizers, and one for other optimizers
        if "apply_gradients" in vars(owner):
            _patch(owner, "apply_gradients", functools.partial(_applying, keras))


def prepare_class(keras: Any, made: Type[Any]) -> None:
    """Patches `check_finite` in a Keras 3 class that is LossScaleOptimizer or derives from it, and in its bases."""
    base = class_of(keras)
    for owner in made.__mro__:
        if issubclass(owner, base) and "check_finite" in vars(owner):
            _patch(owner, "check_finite", functools.partial(_checking, keras))


def _initializing(keras: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        prepare_class(keras, type(self))
        original(self, *args, **kwargs)

    return __init__


def _patch(owner: Type[Any], name: str, make: Callable[[Any], Any]) -> None:
    original = vars(owner)[name]
    if not getattr(original, "_hvd_prepared", False):
        patched = functools.wraps(original)(make(original))
        patched._hvd_prepared = True  # type: ignore[attr-defined]
        setattr(owner, name, patched)


def _distributed(optimizer: Any) -> Any:
    """Returns the distributed optimizer whose ranks must agree, or None."""
    return next((each for each in wrapped(optimizer) if hasattr(type(each), "_hvd")), None)


def _checking(keras: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def check_finite(self: Any, grads: Any) -> Any:
        # Keras calls this before its condition, in each pass, with gradients that the ranks have not yet reduced.
        ours = _distributed(self)
        if ours is None or "_hvd_checks" in self.__dict__ or (ours is self and ours.has_reduced_all()):
            return original(self, grads)  # also for a derived class that calls this method of its base
        self.__dict__["_hvd_checks"] = True  # writes to __dict__, because __setattr__ would track the value
        try:
            finite = original(self, grads)
        finally:
            del self.__dict__["_hvd_checks"]
        ops = keras.ops
        return ops.equal(_total(keras, ours, ops.cast(ops.logical_not(finite), "int32")), 0)

    return check_finite


def _applying(keras: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        ours, pairs = _distributed(self), list(grads_and_vars)
        if ours is None:
            return original(self, pairs, *args, **kwargs)
        from horovod.tensorflow._pass_count import count_of

        # The loss scale does not change until all passes of a step have been added.
        passes = ours._hvd_passes()
        return passes.apply(
            lambda pairs: original(self, _agreed(keras, ours, pairs), *args, **kwargs),
            pairs,
            count_of(ours, passes.steps),
        )

    return apply_gradients


def _agreed(keras: Any, ours: Any, pairs: List[Any]) -> List[Any]:
    """Returns the pairs of gradients and variables; all ranks get a gradient that is not finite if one rank has one."""
    import tensorflow as tf

    if not ours._hvd["reduction"].takes_steps and not ours._hvd["local"]:
        return pairs  # the ranks have already reduced these gradients
    there = [i for i, (grad, _) in enumerate(pairs) if grad is not None]
    if not there:
        return pairs
    values = [getattr(pairs[i][0], "values", pairs[i][0]) for i in there]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])
    failed = _total(keras, ours, tf.cast(tf.logical_not(finite), tf.int32))
    grad, variable = pairs[there[0]]
    pairs[there[0]] = (
        tf.where(failed > 0, tf.constant(float("nan"), values[0].dtype), tf.convert_to_tensor(grad)),
        variable,
    )
    return pairs


def _total(keras: Any, ours: Any, flag: Any) -> Any:
    """Returns the number of ranks with this flag, as a sum, to which a rank that has joined adds 0."""
    return backend_of(keras).total(flag, f"keras.overflows.{ours._hvd_name()}", ours.process_set)
