"""Collectives inside traced functions: one primitive of JAX, which XLA runs by our handler.

The handler never waits for other ranks, so a program needs no order among its collectives: ranks match
them by name. Where this JAX cannot, or the program is not for the CPU, the host is called back in the
order of the program. A JAX that traces without a compilation, as `jax.eval_shape` does, or that compiles again for
other shapes changes no name: unnamed calls are numbered in each program, when the program is lowered.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Sequence, Tuple

import jax
import numpy
from jax._src import core as _core
from jax._src import effects
from jax.experimental import io_callback
from jax.extend import core
from jax.interpreters import mlir

from horovod.jax import _derivatives, _native, _values
from horovod.jax._request import Request, perform
from horovod.numpy._arrays import number_of
from horovod.process_sets import id_of


class CollectiveEffect(effects.Effect):
    """An effect: other ranks wait for this call, even if this program does not use its result."""

    def __str__(self) -> str:
        return "Horovod"


class _Program:
    """A program that JAX lowers, and how many unnamed calls it contains so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._counts: Dict[Tuple[str, int], int] = {}

    def next_name(self, prefix: str, process_set: int) -> str:
        """Returns a name for an unnamed call: equal on all ranks whose programs make the same calls."""
        key = (prefix, process_set)
        self._counts[key] = self._counts.get(key, 0) + 1
        return f"{self.name}.{self._counts[key]}"


def _program_of(ctx: Any) -> _Program:
    # All parts of a lowering share the list of what JAX keeps alive with the program.
    kept = ctx.module_context.keepalives
    for each in kept:
        if isinstance(each, _Program):
            return each
    program = _Program(ctx.module_context.module.operation.attributes["sym_name"].value)
    kept.append(program)
    _native.note_compilation(program.name)
    return program


def _base_name(ctx: Any, program: _Program, request: Request) -> str:
    base = request.name or program.next_name(request.prefix, id_of(request.process_set))
    # jax.checkpoint computes the call again for the gradient, perhaps while the first one is in flight.
    return base + ".remat" * str(ctx.name_stack).count("rematted_computation")


def _check_devices(request: Request, devices: int) -> None:
    if devices > 1:
        raise NotImplementedError(
            f"{request.label}: a program on {devices} devices of this process, as jax.pmap, jax.shard_map and "
            "sharded arrays make it, cannot contain Horovod's collectives; start one rank for each device."
        )


def _devices_of(ctx: Any) -> int:
    context = ctx.module_context.axis_context
    if hasattr(context, "mesh"):  # jax.shard_map
        return int(context.mesh.size)
    if hasattr(context, "num_devices"):
        return int(context.num_devices or 1)
    return int(context.axis_env.nreps)  # jax.pmap


def _lower_to_handler(ctx: Any, *operands: Any, request: Request, shapes: Any) -> Any:
    _check_devices(request, _devices_of(ctx))
    program = _program_of(ctx)
    lowering = jax.ffi.ffi_lowering(_native.TARGET, has_side_effect=True)
    return lowering(
        ctx,
        *operands,
        kind=numpy.int64(request.kind),
        program=program.name,
        name=request.full_name(_base_name(ctx, program, request)),
        process_set=numpy.int64(id_of(request.process_set)),
        reduce_op=numpy.int64(request.reduce_op),
        root_rank=numpy.int64(request.root_rank),
        prescale=numpy.float64(request.prescale),
        postscale=numpy.float64(request.postscale),
    )


def _lower_to_callback(ctx: Any, *operands: Any, request: Request, shapes: Any) -> Any:
    _check_devices(request, _devices_of(ctx))
    base = _base_name(ctx, _program_of(ctx), request)

    def run(*values: Any) -> Sequence[Any]:
        results = perform(request, base, [numpy.asarray(value) for value in values])
        for result, shape in zip(results, shapes):
            if result.shape != tuple(shape):
                raise ValueError(
                    f"the result has the shape {result.shape} and not {tuple(shape)}, which ranks "
                    "with equal inputs would give: inside jax.jit shapes are fixed"
                )
        return tuple(results)

    types = tuple(jax.ShapeDtypeStruct(shape, array.dtype) for shape, array in zip(shapes, ctx.avals_in))
    lowering = mlir.lower_fun(lambda *arrays: io_callback(run, types, *arrays, ordered=True), multiple_results=True)
    # The token of our effect orders the callback in place of the token of io_callback's effect.
    inner = ctx.replace(tokens_in=mlir.TokenSet({_io_effect: ctx.tokens_in.get(_callback_effect)}))
    results = lowering(inner, *operands)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({_callback_effect: inner.tokens_out.get(_io_effect)})))
    return results


def _make_primitive(effect: Any, lower: Callable[..., Any], **lowering: Any) -> Any:
    made = core.Primitive("horovod")
    made.multiple_results = True

    def abstract(*arrays: Any, request: Request, shapes: Tuple[Tuple[int, ...], ...]) -> Any:
        return [array.update(shape=shape) for array, shape in zip(arrays, shapes)], {effect}

    def run_now(*arrays: Any, request: Request, shapes: Any) -> Any:
        results = perform(request, request.name, [numpy.asarray(array) for array in arrays])
        return [_values.as_jax(result) for result in results]

    made.def_effectful_abstract_eval(abstract)
    made.def_impl(run_now)
    # Each call of a program has a name of its own, so that no two can share one lowering.
    if "cacheable" in inspect.signature(mlir.register_lowering).parameters:
        lowering["cacheable"] = False
    mlir.register_lowering(made, lower, **lowering)
    _derivatives.register(made)
    return made


def _make_native() -> Any:
    for allowed in (
        effects.lowerable_effects,
        effects.control_flow_allowed_effects,
        effects.custom_derivatives_allowed_effects,
        effects.remat_allowed_effects,
    ):
        allowed.add_type(CollectiveEffect)
    return _make_primitive(CollectiveEffect(), _lower_to_handler, platform="cpu")


# The effect of calls in the order of the program.
(_io_effect,) = jax.make_jaxpr(lambda: io_callback(lambda: None, (), ordered=True))().effects


class OrderedCollectiveEffect(type(_io_effect)):  # type: ignore[misc]
    """The same for collectives, which jax.checkpoint may compute again."""


effects.remat_allowed_effects.add_type(OrderedCollectiveEffect)
_callback_effect = OrderedCollectiveEffect()
_problem = _native.load()
_primitive: Any = None if _problem else _make_native()
_callback_primitive: Any = _make_primitive(_callback_effect, _lower_to_callback)


def uses_ffi() -> bool:
    """Returns whether compiled programs call the native handler, and not Python."""
    return _primitive is not None and jax.default_backend() == "cpu"


def is_tracing(*arrays: Any) -> bool:
    """Returns whether a call with these arrays belongs to a function that JAX traces."""
    return not _core.trace_state_clean() or any(isinstance(array, jax.core.Tracer) for array in arrays)


def _manual_devices() -> int:
    """Returns the number of devices of the jax.shard_map, or of the jax.pmap of newer versions, that is traced."""
    mesh = jax.sharding.get_abstract_mesh() if hasattr(jax.sharding, "get_abstract_mesh") else None
    sizes = zip(mesh.axis_sizes, mesh.axis_types) if mesh is not None and mesh.axis_names else ()
    return int(numpy.prod([size for size, type_ in sizes if "manual" in str(type_).lower()], dtype=int))


def call(request: Request, arrays: Sequence[Any], shapes: Sequence[Tuple[int, ...]]) -> Sequence[Any]:
    """Traces an operation that performs `request` when the traced function runs. Results have the types of
    `arrays` and the `shapes`."""
    if not request.prescale or not request.postscale:
        raise ValueError(f"{request.label}: a prescale or postscale factor of 0 leaves nothing to reduce.")
    for array in arrays:
        if number_of(array.dtype) is None:
            raise ValueError(f"{request.label}: arrays of type {array.dtype} are not supported.")
    _check_devices(request, _manual_devices())
    primitive = _primitive if uses_ffi() else _callback_primitive
    return primitive.bind(*arrays, request=request, shapes=tuple(map(tuple, shapes)))
