"""The rules with which JAX differentiates and batches a collective inside a traced function.

The derivative of a linear collective is the same collective of the tangents. The transposition of a collective follows
Horovod's convention: the gradient that reaches this rank is averaged over the ranks, except for sums.
"""

from __future__ import annotations

import re
from typing import Any, List, Sequence

import jax
import jax.numpy as jnp
import numpy
from jax.interpreters import ad, batching

from horovod import _basics
from horovod._ops import Adasum, Average, Kind, Sum
from horovod.jax._request import Request, perform


def is_linear(request: Request) -> bool:
    return request.kind not in (Kind.ALLREDUCE, Kind.REDUCESCATTER) or request.reduce_op in (Average, Sum)


def _of_tangents(request: Request) -> Request:
    count = request.derivatives + 1
    return request._replace(suffix=f"{request.suffix}.tangent{count if count > 1 else ''}", derivatives=0)


def of_gradients(request: Request) -> Request:
    """Returns the request for the gradients of `request`'s results, under a separate name."""
    suffix = re.sub(r"\.tangent(\d*)$", r".gradient\1", request.suffix)
    return request._replace(suffix=suffix if suffix != request.suffix else suffix + ".gradient", derivatives=0)


def _averaged(request: Request, primitive: Any, grad: Any) -> Any:
    average = of_gradients(request)._replace(kind=Kind.ALLREDUCE, reduce_op=Average, root_rank=0)
    return primitive.bind(grad, request=average, shapes=(grad.shape,))[0]


def _rows_before(request: Request, rows: int, is_traced: bool) -> int:
    """Returns the number of rows that the lower ranks have in an allgather where this rank has `rows` rows."""
    rank = request.process_set.rank()
    if is_traced:  # in a compiled program all ranks have equally many rows
        return rows * rank
    counts = perform(
        request._replace(suffix=of_gradients(request).suffix + ".rows"), request.name, [numpy.array([rows])]
    )[0]
    return int(counts[:rank].sum())


def _of_allgather(primitive: Any, request: Request, grad: Any, shape: Sequence[int]) -> Any:
    averaged = _averaged(request, primitive, grad)
    start = _rows_before(request, shape[0], isinstance(averaged, jax.core.Tracer))
    return averaged[start : start + shape[0]]


def _of_broadcast(primitive: Any, request: Request, grad: Any, shape: Sequence[int]) -> Any:
    averaged = _averaged(request, primitive, grad)
    return averaged if _basics.rank() == request.root_rank else jnp.zeros_like(averaged)


def _of_alltoall(primitive: Any, request: Request, grad: Any, shape: Sequence[int]) -> Any:
    return primitive.bind(grad, request=of_gradients(request), shapes=(tuple(shape),))[0]


def _of_reducescatter(primitive: Any, request: Request, grad: Any, shape: Sequence[int]) -> Any:
    factor = request.prescale * request.postscale
    factor *= request.process_set.size() if request.reduce_op == Sum else 1
    gather = of_gradients(request)._replace(kind=Kind.ALLGATHER, prescale=1.0, postscale=1.0)
    return primitive.bind(grad * jnp.asarray(factor, grad.dtype), request=gather, shapes=(tuple(shape),))[0]


_TRANSPOSED = {
    Kind.ALLGATHER: _of_allgather,
    Kind.BROADCAST: _of_broadcast,
    Kind.ALLTOALL: _of_alltoall,
    Kind.REDUCESCATTER: _of_reducescatter,
}


def register(primitive: Any) -> None:
    """Registers the rules for the primitive, whose parameters are `request` and `shapes`."""

    def differentiate(primals: Any, tangents: Any, *, request: Request, shapes: Any) -> Any:
        if not is_linear(request):
            raise NotImplementedError(
                f"{request.label}: a reduction with Min, Max, Product or Adasum has no derivative here; use "
                "jax.lax.stop_gradient."
            )
        again = request._replace(derivatives=request.derivatives + 1)
        results = primitive.bind(*primals, request=again, shapes=shapes)
        real = [i for i, primal in enumerate(primals) if jnp.issubdtype(primal.dtype, jnp.inexact)]
        given = [ad.instantiate_zeros(tangents[i]) for i in real]
        moved = (
            primitive.bind(*given, request=_of_tangents(request), shapes=tuple(tuple(results[i].shape) for i in real))
            if real
            else []
        )
        moved_of = dict(zip(real, moved))
        return results, [moved_of.get(i, tangent) for i, tangent in enumerate(tangents)]

    def transpose(grads: Any, *given: Any, request: Request, shapes: Any) -> Any:
        grads = [ad.instantiate_zeros(grad) for grad in grads]
        if request.kind == Kind.ALLREDUCE:
            moved: List[Any] = primitive.bind(
                *grads, request=of_gradients(request), shapes=tuple(tuple(grad.shape) for grad in grads)
            )
        else:
            moved = [_TRANSPOSED[request.kind](primitive, request, grads[0], given[0].aval.shape)]
        return [grad if ad.is_undefined_primal(one) else None for grad, one in zip(moved, given)]

    def batch(arrays: Any, dims: Any, *, request: Request, shapes: Any) -> Any:
        by_element = request.kind == Kind.BROADCAST or (request.kind == Kind.ALLREDUCE and request.reduce_op != Adasum)
        if not by_element:
            raise NotImplementedError(
                f"{request.label}: collectives that move rows, and Adasum, cannot be inside jax.vmap; give them "
                "the whole batch as one array."
            )
        first = [array if dim is None else jnp.moveaxis(array, dim, 0) for array, dim in zip(arrays, dims)]
        results = primitive.bind(*first, request=request, shapes=tuple(tuple(array.shape) for array in first))
        return results, [None if dim is None else 0 for dim in dims]

    ad.primitive_jvps[primitive] = differentiate
    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = batch
