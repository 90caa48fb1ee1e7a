"""Arguments and results of collectives as values of JAX, of numpy, or as numbers of Python.

Without jax_enable_x64, JAX makes 32-bit arrays of 64-bit values. Here each value keeps its type; otherwise
OverflowError is raised.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy

from horovod.numpy._arrays import check_mask


def is_key(value: Any) -> bool:
    """Returns whether the value is an array of keys as `jax.random.key` makes them."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def is_global(value: Any) -> bool:
    """Returns whether a part of the array is on devices of other processes (jax.distributed)."""
    return isinstance(value, jax.Array) and not value.is_fully_addressable


def of_all_processes(what: str) -> str:
    """Returns the error about an array of jax.distributed."""
    return (
        f"{what}: a global array of jax.distributed lies on devices of several processes; give this rank's part, "
        "x.addressable_shards[0].data, or use JAX's own collectives."
    )


def on_host(value: Any, what: str) -> numpy.ndarray:
    """Returns the value as a numpy array. `what`: the caller's name in errors."""
    if is_key(value):
        raise ValueError(
            f"{what}: arrays of type {value.dtype} are not supported; send jax.random.key_data of the "
            "key, and make a key of the result by jax.random.wrap_key_data."
        )
    check_mask(value, what)
    if is_global(value):
        raise ValueError(of_all_processes(what))
    array = numpy.asarray(value)
    if array.dtype == object and isinstance(value, int):
        raise OverflowError(f"{what}: {value} has more than 64 bits; send it by broadcast_object or allgather_object.")
    return array


def as_jax(array: Any) -> Any:
    """Returns a JAX array, or the numpy array itself if JAX would change its type."""
    return jnp.asarray(array) if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype else array


def traced(value: Any, what: str) -> Any:
    """Returns the value in the form that JAX uses inside a traced function. Raises OverflowError if JAX's type, of 32
    bits without jax_enable_x64, cannot hold it."""
    if isinstance(value, jax.Array):
        return value
    if is_key(value):
        return value
    given = on_host(value, what)
    type_ = jax.dtypes.canonicalize_dtype(given.dtype)
    if type_ != given.dtype:
        with numpy.errstate(over="ignore", under="ignore"):
            cut = given.astype(type_)
        if given.dtype.kind in "iu":
            is_lost = bool((cut != given).any())
        else:
            is_lost = bool(((numpy.isinf(cut) & ~numpy.isinf(given)) | ((cut == 0) & (given != 0))).any())
        if is_lost:
            raise OverflowError(
                f"{what}: a value of type {given.dtype} does not fit into {numpy.dtype(type_).name}, which JAX makes "
                "of it inside a traced function; set jax_enable_x64, or make the call outside of it."
            )
    return jnp.asarray(value)


def like(result: numpy.ndarray, argument: Any) -> Any:
    """Returns the result of a collective as the same kind of value as the argument: a number of Python for a number,
    numpy for a numpy array of a type that JAX would change, else a JAX array."""
    if isinstance(argument, (bool, int, float, complex)) and not isinstance(argument, numpy.generic):
        return type(argument)(result.item())
    return as_jax(result)
