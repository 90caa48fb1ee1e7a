"""Collectives on JAX arrays, inside `jax.jit` and `jax.grad` or not.

Rules for all of them:

* Every rank must make the same call under the same name. Unnamed calls are named by their order
  (inside `jit`: the order in which they are traced), so all ranks must then make them in the same
  order.
* Arrays are on any device, and travel through host memory; of type uint8 to uint64, int8 to int64,
  float16, bfloat16, float32, float64 or bool. Results are new arrays.
* Inside `jit`, on the CPU, XLA calls the runtime itself, without Python; no thread of XLA's waits for
  other ranks, whatever the order in which it runs a program. Calls of one name must follow one
  another. Where XLA cannot (HOROVOD_JAX_FFI=0, an old JAX, another device) Python is called back, in
  the order of the program. Results have the shapes that ranks with equal inputs give. A compiled
  program keeps the process set that it was traced with. `vmap` and `pmap` are refused.
* ValueError: a bad argument, a name that is in flight, or ranks that disagree (every rank gets
  it, and Horovod stays usable). HorovodInternalError: a rank died or shut down, or Horovod is
  not initialised. Inside `jit` JAX raises an error of its own with these words, which
  `hvd.horovod_errors` and `hvd.elastic.run` turn into these.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple, Union, overload

import jax
import jax.numpy as jnp
import numpy
from jax import Array

from horovod import _basics, _ops
from horovod._frontend import ReduceOp, whole_op, whole_root
from horovod._ops import Average, Kind, Max, Min, Product, Sum
from horovod.jax import _compiled
from horovod.jax._compiled import Request
from horovod.numpy import _collectives as host
from horovod.numpy._arrays import number_of
from horovod.process_sets import ProcessSet, global_process_set, id_of


def _is_traced(*arrays: Any) -> bool:
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def _on_host(request: Request, function: Callable[..., Sequence[Any]], arrays: Sequence[Any],
             shapes: Sequence[Tuple[int, ...]]) -> Sequence[Array]:
    """Calls `function` with numpy arrays now, or traces an operation that performs `request` when the
    traced program runs. Results have the types of `arrays`, and, if traced, the `shapes`."""
    if not _is_traced(*arrays):
        return [jnp.asarray(result) for result in function(*map(numpy.asarray, arrays))]
    if not request.prescale or not request.postscale:
        raise ValueError(f"{request.name}: a prescale or postscale factor of 0 leaves nothing to "
                         "reduce.")
    for array in arrays:
        if number_of(array.dtype) is None:
            raise ValueError(f"{request.name}: arrays of type {array.dtype} are not supported.")
    return _compiled.call(request, function, arrays, shapes)


def _differentiable(forward: Callable[..., Any], backward: Callable[..., Any],
                    arrays: Sequence[Any]) -> Any:
    """Returns forward(*arrays). `backward` returns the tuple of gradients from the gradients of the
    results."""
    if not _is_traced(*arrays):
        return forward(*arrays)
    function = jax.custom_vjp(forward)
    function.defvjp(lambda *given: (forward(*given), None),
                    lambda _, grads: tuple(backward(grads)))
    return function(*arrays)


def _name(op: str, name: Optional[str], process_set: ProcessSet) -> str:
    # The name is chosen when the program is traced, so that each run of it uses the same name.
    return name if name is not None else _ops.auto_name(op, id_of(process_set))[len(op) + 1 :]


def allreduce(tensor: Any, name: Optional[str] = None, op: ReduceOp = Average,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set) -> Any:
    """Returns the array, or the tree of arrays, reduced over all ranks, element by element.

    `tensor`: the same shapes and types on all ranks; a tree is one request. `op`: Average, Sum, Min,
    Max, Product or Adasum; an average of integers is truncated towards zero. `prescale_factor`
    multiplies the inputs and `postscale_factor` the results; neither may be 0. Differentiable, except
    with Min, Max and Product: all ranks must then differentiate too.
    """
    op = whole_op(op)
    leaves, tree = jax.tree_util.tree_flatten(tensor)
    if not leaves:
        return tensor
    leaves = [leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf) for leaf in leaves]
    name = _name("grouped_allreduce", name, process_set)

    def reduce(suffix: str, arrays: Sequence[Any]) -> Sequence[Array]:
        def run(*values: Any) -> Sequence[Any]:
            return host.grouped_allreduce(values, None, name + suffix, op, prescale_factor,
                                          postscale_factor, process_set)

        request = Request(Kind.ALLREDUCE, f"grouped_allreduce.{name}{suffix}", id_of(process_set),
                          op, 0, float(prescale_factor), float(postscale_factor))
        return tuple(_on_host(request, run, arrays, [array.shape for array in arrays]))

    def backward(grads: Sequence[Any]) -> Sequence[Array]:
        if op in (Min, Max, Product):
            raise NotImplementedError(
                "An allreduce with Min, Max or Product has no gradient; use jax.lax.stop_gradient."
            )
        return reduce(".gradient", grads)

    reduced = _differentiable(lambda *given: reduce("", given), backward, leaves)
    return jax.tree_util.tree_unflatten(tree, reduced)


def allgather(tensor: Any, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> Array:
    """Returns the arrays of all ranks, concatenated along the first dimension in rank order.

    `tensor`: at least one dimension; the first may differ between ranks (not inside `jit`), the
    others and the type must agree. Differentiable: the gradient is that of one's own rows, averaged over
    the ranks.
    """
    tensor = jnp.asarray(tensor)
    name = _name("allgather", name, process_set)
    shape = tuple(tensor.shape)

    def forward(given: Any) -> Array:
        request = Request(Kind.ALLGATHER, f"allgather.{name}", id_of(process_set))
        return _on_host(request, lambda value: [host.allgather(value, name, process_set)], [given],
                        [(shape[0] * process_set.size(), *shape[1:]) if shape else ()])[0]

    def backward(grad: Any) -> Sequence[Array]:
        averaged = allreduce(grad, f"{name}.gradient", Average, process_set=process_set)
        start = shape[0] * process_set.rank()
        if not _is_traced(averaged):  # a compiled program has as many rows on each rank
            rows = host.allgather(numpy.array([shape[0]]), f"{name}.gradient.rows", process_set)
            start = int(rows[: process_set.rank()].sum())
        return (averaged[start : start + shape[0]],)

    return _differentiable(forward, backward, [tensor])


def broadcast(tensor: Any, root_rank: int, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> Array:
    """Returns the array of the rank `root_rank` on every rank.

    `tensor`: any shape, the same shape and type on all ranks. `root_rank` is a rank of the job.
    Differentiable: the root gets the gradient averaged over the ranks, the others zeros.
    """
    tensor = jnp.asarray(tensor)
    name = _name("broadcast", name, process_set)

    def forward(given: Any) -> Array:
        request = Request(Kind.BROADCAST, f"broadcast.{name}", id_of(process_set),
                          root_rank=whole_root(root_rank))
        return _on_host(request,
                        lambda value: [host.broadcast(value, root_rank, name, process_set)],
                        [given], [given.shape])[0]

    def backward(grad: Any) -> Sequence[Array]:
        averaged = allreduce(grad, f"{name}.gradient", Average, process_set=process_set)
        return (averaged if _basics.rank() == root_rank else jnp.zeros_like(averaged),)

    return _differentiable(forward, backward, [tensor])


@overload
def alltoall(tensor: Any, splits: None = None, name: Optional[str] = None,
             process_set: ProcessSet = global_process_set) -> Array: ...


@overload
def alltoall(tensor: Any, splits: Sequence[int], name: Optional[str] = None,
             process_set: ProcessSet = global_process_set) -> Tuple[Array, Array]: ...


def alltoall(tensor: Any, splits: Optional[Sequence[int]] = None, name: Optional[str] = None,
             process_set: ProcessSet = global_process_set) -> Union[Array, Tuple[Array, Array]]:
    """Sends rows of `tensor` to every rank, and returns the rows received, in rank order.

    `splits`: how many rows go to each rank (not inside `jit`); None sends equal parts. Returns the
    array alone without `splits`, else the pair of it and the int32 array of rows received from each
    rank. Differentiable without `splits`.
    """
    if splits is not None:
        output, received = host.alltoall(numpy.asarray(tensor), splits, name, process_set)
        return jnp.asarray(output), jnp.asarray(received)
    name = _name("alltoall", name, process_set)

    def move(suffix: str, given: Any) -> Array:
        request = Request(Kind.ALLTOALL, f"alltoall.{name}{suffix}", id_of(process_set))
        return _on_host(request,
                        lambda value: [host.alltoall(value, None, name + suffix, process_set)],
                        [given], [given.shape])[0]

    return _differentiable(lambda given: move("", given),
                           lambda grad: (move(".gradient", grad),), [jnp.asarray(tensor)])


def reducescatter(tensor: Any, name: Optional[str] = None, op: ReduceOp = Average,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> Array:
    """Reduces as `allreduce` does, and returns this rank's share of the rows.

    `tensor`: at least one dimension; where the rows do not divide evenly, the first ranks get one
    more. `op`: Average or Sum. Differentiable outside `jit`, and inside where rows divide evenly:
    the gradient of an average is gathered as it is, that of a sum times the number of ranks.
    """
    tensor = jnp.asarray(tensor)
    name = _name("reducescatter", name, process_set)
    op = whole_op(op)
    shape, ranks = tuple(tensor.shape), process_set.size()
    rows = shape[0] // ranks + (process_set.rank() < shape[0] % ranks) if shape else 0

    def forward(given: Any) -> Array:
        def run(value: Any) -> Sequence[Any]:
            return [host.reducescatter(value, name, op, process_set, prescale_factor,
                                       postscale_factor)]

        request = Request(Kind.REDUCESCATTER, f"reducescatter.{name}", id_of(process_set), op, 0,
                          float(prescale_factor), float(postscale_factor))
        return _on_host(request, run, [given], [(rows, *shape[1:])])[0]

    def backward(grad: Any) -> Sequence[Array]:
        factor = prescale_factor * postscale_factor * (ranks if op == Sum else 1)
        return (allgather(grad * factor, f"{name}.gradient", process_set),)

    return _differentiable(forward, backward, [tensor])
