"""Collectives inside compiled programs: one primitive of JAX, which XLA runs by our handler.

The handler never waits for other ranks, so programs need no order among their collectives: ranks match
them by name. Where this JAX cannot, or the program is not for the CPU, the host is called back in the
order of the program.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence, Tuple

import jax
import numpy
from jax.experimental import io_callback

from horovod.jax import _native


class Request(NamedTuple):
    """The arguments of a call besides its arrays, as in include/horovod/horovod.h."""

    kind: int
    name: str
    process_set: int
    reduce_op: int = 1
    root_rank: int = 0
    prescale: float = 1.0
    postscale: float = 1.0


def _make_primitive() -> Any:
    from jax._src import effects
    from jax.extend import core
    from jax.interpreters import batching, mlir

    class CollectiveEffect(effects.Effect):
        """An effect: other ranks wait for this call, even if this program does not use its result."""

        def __str__(self) -> str:
            return "Horovod"

    effect = CollectiveEffect()
    for allowed in (effects.lowerable_effects, effects.control_flow_allowed_effects,
                    effects.custom_derivatives_allowed_effects):
        allowed.add_type(CollectiveEffect)
    made = core.Primitive("horovod")
    made.multiple_results = True

    def abstract(*arrays: Any, request: Request, shapes: Tuple[Tuple[int, ...], ...]) -> Any:
        return [array.update(shape=shape) for array, shape in zip(arrays, shapes)], {effect}

    def lower(ctx: Any, *operands: Any, request: Request, shapes: Any) -> Any:
        devices = getattr(ctx.module_context.axis_context, "num_devices", 1)
        if devices > 1:
            raise NotImplementedError(
                f"{request.name}: a program on {devices} devices of this process cannot contain "
                "Horovod's collectives; start one rank for each device.")
        lowering = jax.ffi.ffi_lowering(_native.TARGET, has_side_effect=True)
        attributes = {key: numpy.int64(value) if isinstance(value, int) else
                      numpy.float64(value) if isinstance(value, float) else value
                      for key, value in request._asdict().items()}
        return lowering(ctx, *operands, **attributes)

    def refuse_vmap(*_: Any, request: Request, **__: Any) -> Any:
        raise NotImplementedError(
            f"{request.name}: Horovod's collectives cannot be inside jax.vmap; give them the whole "
            "batch as one array.")

    made.def_effectful_abstract_eval(abstract)
    made.def_impl(jax.jit(made.bind, static_argnames=("request", "shapes")))
    mlir.register_lowering(made, lower, platform="cpu")
    batching.primitive_batchers[made] = refuse_vmap
    return made


_problem = _native.load()
_primitive: Any = None if _problem else _make_primitive()


def uses_ffi() -> bool:
    """Returns whether compiled programs call the native handler, and not Python."""
    return _primitive is not None and jax.default_backend() == "cpu"


def call(request: Request, function: Callable[..., Sequence[Any]], arrays: Sequence[Any],
         shapes: Sequence[Tuple[int, ...]]) -> Sequence[Any]:
    """Traces an operation that performs `request` when the traced program runs; `function` does the same
    on numpy arrays. Results have the types of `arrays` and the `shapes`."""
    if uses_ffi():
        return _primitive.bind(*arrays, request=request, shapes=tuple(map(tuple, shapes)))

    def run(*values: Any) -> Sequence[Any]:
        results = function(*map(numpy.asarray, values))
        for result, shape in zip(results, shapes):
            if result.shape != tuple(shape):
                raise ValueError(
                    f"the result has the shape {result.shape} and not {tuple(shape)}, which ranks "
                    "with equal inputs would give: inside jax.jit shapes are fixed"
                )
        return tuple(results)

    types = tuple(jax.ShapeDtypeStruct(shape, array.dtype) for shape, array in zip(shapes, arrays))
    return io_callback(run, types, *arrays, ordered=True)
