"""Collectives on JAX arrays, inside `jax.jit` and `jax.grad` or not.

Rules for all of them:

* Every rank must make the same call under the same name. Unnamed calls are named by their order, so all ranks must then
  make them in the same order. Inside `jit` the order is that of the program, and the name begins with the program's:
  `grouped_allreduce.jit_step.2`. An additional trace or compilation on one rank, by `jax.eval_shape` or for a smaller
  last batch, changes no name.
* Arrays may be on any device, and travel through host memory. Array types: uint8 to uint64, int8 to int64, float16,
  bfloat16, float32, float64, bool, complex64 or complex128 (reduced by Sum and Average only). Results are new arrays of
  the same type: JAX arrays, numpy arrays where JAX has no such type (64 bits without jax_enable_x64), and numbers of
  Python for such numbers. A value that JAX would cut inside `jit` raises OverflowError.
* Inside `jit`, on the CPU, XLA calls the runtime itself, without Python, and no thread of XLA's waits for other ranks.
  The calls of a program run in the order in which its functions make them, each when the previous call is complete,
  even if a constant differs between ranks; a tree is one call. All ranks must run their programs in the same order,
  because JAX begins a program when the previous one has ended. On JAX before 0.8, calls inside a named axis
  (`jax.pmap`, `jax.shard_map`, `jax.vmap` with `axis_name`) have no order among them. Where XLA cannot
  (HOROVOD_JAX_FFI=0, an old JAX, another device), it calls back to Python, in the same order. Results have the shapes
  that result from equal inputs on all ranks. A compiled program keeps the process set that it was traced with.
* `jax.grad`, `jax.jvp`, `jax.hessian` and others differentiate sums, averages and collectives that move rows, to any
  order. `jax.vmap` of a reduction or a broadcast is the same collective on the batch; other collectives refuse it.
  `jax.pmap`, `jax.shard_map` and sharded arrays on several devices of a process are refused.
* ValueError: a bad argument, a name that is in flight, or ranks that disagree (every rank gets it, and Horovod stays
  usable). HorovodInternalError: a rank died or shut down, or Horovod is not initialised. Inside `jit`, JAX raises its
  own error with the same message, which `hvd.horovod_errors` and `hvd.elastic.run` convert.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple, Union, overload

import jax
import jax.numpy as jnp
from jax import Array

from horovod._frontend import ReduceOp, whole_op, whole_root
from horovod._ops import Adasum, Average, Kind, check_complex
from horovod.jax import _compiled, _dropped, _values
from horovod.jax._request import Request, perform
from horovod.numpy import _collectives as host
from horovod.process_sets import ProcessSet, global_process_set, id_of


def _call(request: Request, values: Sequence[Any], shapes: Callable[..., Sequence[Tuple[int, ...]]]) -> Sequence[Any]:
    """Returns the results of the collective for the values. `shapes`: a function from the arguments to the shapes of
    the results, which a traced function must know."""
    _dropped.check()
    if not _compiled.is_tracing(*values):
        arrays = [_values.on_host(value, request.label) for value in values]
        results = perform(request, request.name, arrays)
        return [_values.like(result, value) for result, value in zip(results, values)]
    arrays = [_values.traced(value, request.label) for value in values]
    if any(map(_is_complex, arrays)):
        return _call_with_pairs(request, arrays, shapes(*arrays))
    return _compiled.call(request, arrays, shapes(*arrays))


def _is_complex(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.complexfloating)


def _call_with_pairs(request: Request, arrays: Sequence[Any], shapes: Sequence[Tuple[int, ...]]) -> Sequence[Any]:
    """Does the work of `_call` in a traced function, and sends complex numbers as pairs of reals."""
    check_complex(request.label, request.kind, request.reduce_op)
    for array in arrays:
        if not array.ndim and request.kind not in (Kind.ALLREDUCE, Kind.BROADCAST):
            return _compiled.call(request, [array.real], shapes)  # refuses a number without rows
    pairs = [jnp.stack([array.real, array.imag], axis=-1) if _is_complex(array) else array for array in arrays]
    results = _compiled.call(
        request, pairs, [(*shape, 2) if _is_complex(array) else shape for array, shape in zip(arrays, shapes)]
    )
    return [
        jax.lax.complex(result[..., 0], result[..., 1]) if _is_complex(array) else result
        for array, result in zip(arrays, results)
    ]


def _request(kind: Kind, name: Optional[str], process_set: ProcessSet, **others: Any) -> Request:
    id_of(process_set)  # raises an error for a set that was not added
    return Request(kind, name, process_set, **others)


def _one(request: Request, value: Any, shape: Callable[[Any], Tuple[int, ...]]) -> Any:
    return _call(request, [_array(value)], lambda array: [shape(array)])[0]


def _array(value: Any) -> Any:
    """Returns the value itself if it is an array or a number, else the array that JAX makes of it."""
    if hasattr(value, "dtype") or isinstance(value, (bool, int, float, complex)):
        return value
    return _values.traced(value, "a list")


def allreduce(
    tensor: Any,
    name: Optional[str] = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the array, or the tree of arrays, reduced over all ranks, element by element.

    `tensor`: the same shapes and types on all ranks; a tree is one request. `op`: Average, Sum, Min,
    Max, Product or Adasum; an average of integers is truncated towards zero (its sum wraps
    around only in 64 bits), and a NaN of any rank is the result. `prescale_factor`
    multiplies the inputs and `postscale_factor` the results; neither may be 0. Differentiable to any order and
    in both modes with Average and Sum, and by `jax.grad` with Adasum; not with Min, Max and Product. All ranks
    must then differentiate too. `jax.vmap` reduces the batch as one array, except with Adasum. Complex numbers
    are reduced by Sum and Average only.
    """
    op = whole_op(op)
    leaves, tree = jax.tree_util.tree_flatten(tensor)
    if not leaves:
        return tensor
    request = _request(
        Kind.ALLREDUCE,
        name,
        process_set,
        reduce_op=op,
        prescale=float(prescale_factor),
        postscale=float(postscale_factor),
    )

    def reduce(*values: Any) -> Sequence[Any]:
        return tuple(_call(request, values, lambda *arrays: [array.shape for array in arrays]))

    values = list(map(_array, leaves))
    if op == Adasum and _compiled.is_tracing(*values):  # Adasum is not linear
        reduce = _with_gradient(
            reduce,
            lambda grads: allreduce(
                list(grads), name and f"{name}.gradient", op, prescale_factor, postscale_factor, process_set
            ),
        )
        values = [_values.traced(value, request.label) for value in values]
    return jax.tree_util.tree_unflatten(tree, reduce(*values))


def _with_gradient(forward: Callable[..., Any], backward: Callable[[Any], Any]) -> Callable[..., Any]:
    """Returns `forward` as a function; `backward` computes its gradients from the gradients of the results."""
    function = jax.custom_vjp(forward)
    function.defvjp(lambda *given: (function(*given), None), lambda _, grads: tuple(backward(grads)))
    return function


def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Array:
    """Returns the arrays of all ranks, concatenated along the first dimension in rank order.

    `tensor`: at least one dimension; the first may differ between ranks (not inside `jit`), the others and the type
    must agree. Differentiable: the gradient is that of this rank's rows, averaged over the ranks.
    """
    return _one(
        _request(Kind.ALLGATHER, name, process_set),
        tensor,
        lambda array: (array.shape[0] * process_set.size(), *array.shape[1:]) if array.shape else (),
    )


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Returns the array of the rank `root_rank` on every rank.

    `tensor`: any shape, the same shape and type on all ranks. `root_rank` is a rank of the job.
    Differentiable: the root gets the gradient averaged over the ranks, the others zeros.
    """
    if _values.is_key(tensor):
        data = broadcast(jax.random.key_data(tensor), root_rank, name, process_set)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(tensor))
    request = _request(Kind.BROADCAST, name, process_set, root_rank=whole_root(root_rank))
    return _one(request, tensor, lambda array: array.shape)


@overload
def alltoall(
    tensor: Any, splits: None = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Array: ...


@overload
def alltoall(
    tensor: Any, splits: Sequence[int], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tuple[Array, Array]: ...


def alltoall(
    tensor: Any,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[Array, Tuple[Array, Array]]:
    """Sends rows of `tensor` to every rank, and returns the rows received, in rank order.

    `splits`: how many rows go to each rank (not inside `jit`); None sends equal parts. Returns the
    array alone without `splits`, else the pair of it and the int32 array of rows received from each
    rank. Differentiable without `splits`.
    """
    if splits is not None:
        given = _array(tensor)
        output, received = host.alltoall(
            _values.on_host(given, f"alltoall.{name or 'noname'}"), splits, name, process_set
        )
        return _values.like(output, given), jnp.asarray(received)
    return _one(_request(Kind.ALLTOALL, name, process_set), tensor, lambda array: array.shape)


def reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """Reduces as `allreduce` does, and returns this rank's share of the rows.

    `tensor`: at least one dimension; where the rows do not divide evenly, the first ranks get one more. `op`: Average
    or Sum. Differentiable: the gradient is gathered; for a sum, it is multiplied by the number of ranks.
    """
    request = _request(
        Kind.REDUCESCATTER,
        name,
        process_set,
        reduce_op=whole_op(op),
        prescale=float(prescale_factor),
        postscale=float(postscale_factor),
    )

    def shape(array: Any) -> Tuple[int, ...]:
        ranks, rank = process_set.size(), process_set.rank()
        rows = array.shape[0] // ranks + (rank < array.shape[0] % ranks) if array.shape else 0
        return (rows, *array.shape[1:])

    return _one(request, tensor, shape)
