"""Collectives inside traced functions: one primitive of JAX, for which XLA runs our handler.

If this JAX lacks handlers, or the program is not for the CPU, XLA calls back to the host. A token keeps the calls of a
program in the order of the function's calls: without it, XLA would choose another order when a constant differs between
ranks. JAX lowers an inner function once, so that its calls share their names. A trace without a compilation
(`jax.eval_shape`) or a compilation for other shapes changes no name, because lowering numbers the unnamed calls of each
program.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Sequence, Tuple

import jax
import numpy
from jax._src import core as _core
from jax._src import dispatch, effects
from jax._src.interpreters import pxla
from jax.experimental import io_callback
from jax.extend import core
from jax.interpreters import mlir

from horovod.jax import _derivatives, _native, _values
from horovod.jax._request import Request, perform
from horovod.numpy._arrays import number_of
from horovod.process_sets import id_of


class _Program:
    """A program that JAX lowers, and the number of unnamed calls in it so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._counts: Dict[Tuple[str, int], int] = {}

    def next_name(self, prefix: str, process_set: int) -> str:
        """Returns a name for an unnamed call: equal on all ranks with programs that make the same calls."""
        key = (prefix, process_set)
        self._counts[key] = self._counts.get(key, 0) + 1
        return f"{self.name}.{self._counts[key]}"


def _program_of(ctx: Any) -> _Program:
    # All parts of a lowering share one list of objects that JAX keeps alive with the program.
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
    # jax.checkpoint repeats the call for the gradient, possibly while the first call is in flight.
    return base + ".remat" * str(ctx.name_stack).count("rematted_computation")


def _check_devices(request: Request, devices: int) -> None:
    if devices > len(jax.local_devices()):
        raise NotImplementedError(_values.of_all_processes(request.label))
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
    return call_handler(
        ctx,
        _native.TARGET,
        operands,
        kind=numpy.int64(request.kind),
        program=program.name,
        name=request.full_name(_base_name(ctx, program, request)),
        process_set=numpy.int64(id_of(request.process_set)),
        reduce_op=numpy.int64(request.reduce_op),
        root_rank=numpy.int64(request.root_rank),
        prescale=numpy.float64(request.prescale),
        postscale=numpy.float64(request.postscale),
    )


def call_handler(ctx: Any, target: str, operands: Sequence[Any], **attributes: Any) -> Any:
    """Lowers a call of a native handler, in the order of the program's calls."""
    lowering = jax.ffi.ffi_lowering(target, has_side_effect=True)
    count = len(ctx.tokens_in)  # 0 for a call without an order
    tokens = [_core.abstract_token] * count
    inner = ctx.replace(avals_in=[*tokens, *ctx.avals_in], avals_out=[*tokens, *ctx.avals_out])
    results = lowering(
        inner,
        *(token for _, token in ctx.tokens_in.items()),
        *operands,
        **attributes,
    )
    if count:
        _set_token(ctx, results[0])
    return results[count:]


def _set_token(ctx: Any, token: Any) -> None:
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({_ordered_effect: token})))


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
    return call_python(ctx, run, types, operands)


def call_python(ctx: Any, run: Callable[..., Any], types: Tuple[Any, ...], operands: Sequence[Any]) -> Any:
    """Lowers a call of `run`, which returns arrays of these types, in the order of the program's calls."""
    lowering = mlir.lower_fun(lambda *arrays: io_callback(run, types, *arrays, ordered=True), multiple_results=True)
    # Order the callback by the token of our effect, instead of the token of io_callback's effect.
    inner = ctx.replace(tokens_in=mlir.TokenSet({_io_effect: ctx.tokens_in.get(_ordered_effect)}))
    results = lowering(inner, *operands)
    _set_token(ctx, inner.tokens_out.get(_io_effect))
    return results


def _make_primitive(lower: Callable[..., Any], effect: Callable[[], Any], **lowering: Any) -> Any:
    made = core.Primitive("horovod")
    made.multiple_results = True

    def abstract(*arrays: Any, request: Request, shapes: Tuple[Tuple[int, ...], ...]) -> Any:
        return [array.update(shape=shape) for array, shape in zip(arrays, shapes)], {effect()}

    def run_now(*arrays: Any, request: Request, shapes: Any) -> Any:
        results = perform(request, request.name, [numpy.asarray(array) for array in arrays])
        return [_values.as_jax(result) for result in results]

    made.def_effectful_abstract_eval(abstract)
    made.def_impl(run_now)
    register_lowering(made, lower, **lowering)
    _derivatives.register(made)
    return made


def register_lowering(primitive: Any, lower: Callable[..., Any], **lowering: Any) -> None:
    # Each call of a program has a unique name, so two calls must not share one lowering.
    if "cacheable" in inspect.signature(mlir.register_lowering).parameters:
        lowering["cacheable"] = False
    mlir.register_lowering(primitive, lower, **lowering)


def has_order() -> bool:
    """Returns whether the call that JAX traces now runs in the order of the program's calls."""
    return effect_of_handler() is _ordered_effect


def effect_of_handler() -> Any:
    """Returns the effect of the call that JAX traces now."""
    pmap_refuses_order = hasattr(pxla, "stage_parallel_callable") and not getattr(
        jax.config, "jax_pmap_shmap_merge", False
    )
    return _unordered_effect if pmap_refuses_order and _core.get_axis_env().axis_sizes else _ordered_effect


(_io_effect,) = jax.make_jaxpr(lambda: io_callback(lambda: None, (), ordered=True))().effects


class CollectiveEffect(type(_io_effect)):  # type: ignore[misc]
    """The effect of calls that run in program order: other ranks wait for a call even if this program does not use its
    result."""


class UnorderedCollectiveEffect(effects.Effect):
    """The effect of calls without an order: jax.pmap refuses ordered effects where it makes programs by itself (before
    JAX 0.8), and a named axis in the trace may be the axis of such a jax.pmap."""

    def __str__(self) -> str:
        return "Horovod"


_ordered_effect, _unordered_effect = CollectiveEffect(), UnorderedCollectiveEffect()
for _allowed in (
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _allowed.add_type(CollectiveEffect)
    _allowed.add_type(UnorderedCollectiveEffect)


def _begin_each_program_anew() -> None:
    """Begins each program with the same tokens. JAX passes the token of a program to the next program, so the token of
    a failed program would fail all later programs, even after a restart of Horovod. Programs run one after another, and
    need no token for their order. All programs therefore begin with one token for each list of devices: JAX would copy
    a new token to the devices for each program."""
    tokens = dispatch.RuntimeTokenSet
    take, keep = tokens.get_token_input, tokens.set_token_result
    first: Dict[Tuple[Any, ...], Any] = {}

    def get_token_input(self: Any, effect: Any, devices: Any) -> Any:
        if effect is not _ordered_effect:
            return take(self, effect, devices)
        key = tuple(devices)
        if key not in first:
            first[key] = take(self, effect, devices)
        return first[key]

    def set_token_result(self: Any, effect: Any, token: Any) -> None:
        if effect is not _ordered_effect:
            keep(self, effect, token)

    tokens.get_token_input, tokens.set_token_result = get_token_input, set_token_result


_begin_each_program_anew()
_problem = _native.load()
_primitive: Any = None if _problem else _make_primitive(_lower_to_handler, effect_of_handler, platform="cpu")
_callback_primitive: Any = _make_primitive(_lower_to_callback, lambda: _ordered_effect)


def uses_ffi() -> bool:
    """Returns whether compiled programs call the native handler instead of Python."""
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
