"""The check of replicas (horovod._replicas) for the optimizers of optax.

A compiled program calls a native handler with the parameters before each reduction. The handler counts the reductions,
and calls Python only before those at which the ranks compare. A comparison therefore needs no new trace.
"""

from __future__ import annotations

import _thread
import ctypes
import itertools
import logging
import zlib
from typing import Any, Dict, List, Tuple

import jax
import jax.numpy as jnp
import numpy
from jax.extend import core
from jax.interpreters import ad, batching

from horovod import _identity, _ops
from horovod._replicas import Check, Options
from horovod.exceptions import HorovodDisagreementError
from horovod.jax import _compiled, _native, _values
from horovod.numpy._arrays import DTYPES
from horovod.numpy._replicas import ArrayModel, is_comparable
from horovod.process_sets import ProcessSet

_Named = List[Tuple[str, Any]]
_numbers = itertools.count()
# Checks and names of parameters, by model. Kept forever: a program may still run when the optimizer is freed.
_models: Dict[int, Tuple[ReplicaCheck, Tuple[str, ...]]] = {}
_names: Dict[Tuple[str, ...], Tuple[str, ...]] = {}  # one copy for the optimizers of equal models
_DTYPES = {int(number): dtype for dtype, number in DTYPES.items()}
_DTYPES[int(_ops.Dtype.BFLOAT16)] = numpy.dtype(jnp.bfloat16)


class _Model(ArrayModel):
    """The parameters that the program has given to `update`."""

    def __init__(self) -> None:
        self.names: List[str] = []
        self.named: _Named = []

    def order(self) -> List[List[str]]:
        return [self.names]

    def parameters(self) -> _Named:
        return self.named

    def options(self) -> Options:
        return []  # a function of optax hides its options


class ReplicaCheck(Check):
    """The check of an optimizer. The counter is shared with the native handler, since a compiled program counts its
    reductions without Python."""

    remedy = (
        "Write params = hvd.broadcast_parameters(params, root_rank=0) when the parameters are complete and their "
        "checkpoint is loaded"
    )

    def __init__(self, process_set: ProcessSet) -> None:
        # The number of reductions, and the reduction before which this check runs.
        self._counter = (ctypes.c_int64 * 2)(0, 1)
        self._number = next(_numbers)
        self._values = _Model()
        self._has_said = False
        super().__init__(self._values, process_set)

    def restart(self) -> None:
        super().restart()
        self._counter[:] = [0, 1]

    def _are_alike(self, lists: List[List[str]]) -> bool:
        self.next_count = 0  # there is nothing to compare
        return True  # the reduction of different trees raises its own error

    def before_update(self, gradients: List[Any], params: Any) -> None:
        """Called before each reduction, also of a traced function. Without parameters to compare, takes part in the
        exchanges: other ranks may have some."""
        if params is None:
            self._say_once(
                logging.WARNING,
                "cannot compare the parameters of the ranks: the program calls update(gradients, state) "
                "without them; write update(gradients, state, params).",
            )
        if not _compiled.is_tracing(*gradients):
            if self._count():
                self.compare([(name, _values.on_host(leaf, name)) for name, leaf in _named(params)])
        elif _compiled.uses_ffi() and _compiled.has_order():
            self._trace([(name, leaf) for name, leaf in _named(params) if leaf.dtype.kind != "c"])
        else:
            self._say_once(
                logging.INFO,
                "does not compare the parameters of the ranks in this compiled program, which calls no native handler.",
            )
            if _compiled.has_order():
                self._trace([])

    def _say_once(self, level: int, words: str) -> None:
        if not self._has_said and self._action != "off" and _identity.rank() == 0:
            logging.getLogger("horovod").log(level, "hvd.DistributedOptimizer %s", words)
        self._has_said = True

    def _trace(self, named: _Named) -> None:
        names = tuple(name for name, _ in named)
        names = _names.setdefault(names, names)
        model = self._number << 32 | zlib.crc32(repr(names).encode())
        _models[model] = (self, names)
        if _compiled.uses_ffi():
            _native.count(model, self._counter, _compare)
        self.line_of_program = self._line()
        _primitive.bind(*[_values.traced(leaf, name) for name, leaf in named], model=model)

    def _count(self) -> bool:
        """Counts a reduction. Returns whether the ranks exchange before it."""
        self._counter[0] += 1
        return bool(self._counter[0] == self._counter[1])

    def compare(self, named: _Named) -> None:
        """Compares these parameters before the reduction that the counter has reached."""
        number = self._counter[0]
        self.count = number - 1
        if self.count and self.count == self.next_count:
            self.note_reduction()
        self._values.names, self._values.named = [name for name, _ in named], named
        try:
            self.begin()
            self.read_order()
        finally:
            self._values.named = []
            self._counter[1] = number + 1 if self.is_open else self.next_count + 1


def _named(params: Any) -> _Named:
    """Returns the leaves to compare, with their names."""
    return [
        (jax.tree_util.keystr(path), leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
        if hasattr(leaf, "dtype") and not _values.is_key(leaf) and is_comparable(leaf.dtype)
        if isinstance(leaf, jax.core.Tracer) or not _values.is_global(leaf)
    ]


class _Parameter(ctypes.Structure):
    """Parameter in jax_ops/library.h."""

    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int64), ("bytes", ctypes.c_int64)]


def _array(parameter: Any) -> numpy.ndarray:
    dtype = _DTYPES[parameter.dtype]
    if not parameter.bytes:
        return numpy.empty(0, dtype)
    return numpy.frombuffer((ctypes.c_char * parameter.bytes).from_address(parameter.data), dtype)


@ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(_Parameter), ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
)
def _compare(model: int, parameters: Any, count: int, error: int, size: int) -> int:
    try:
        check, names = _models[model]
        check.compare([(name, _array(parameters[index])) for index, name in enumerate(names)])
    except BaseException as failure:
        if isinstance(failure, KeyboardInterrupt):
            _thread.interrupt_main()  # raises it again, after the program's end
        text = (str(failure) or type(failure).__name__).encode(errors="replace")[: size - 1]
        ctypes.memmove(error, text + b"\0", len(text) + 1)
        return 1 if isinstance(failure, HorovodDisagreementError) else -1  # HVD_INVALID_ARGUMENT
    return 0


def _run_now(*arrays: Any, model: int) -> List[Any]:
    check, names = _models[model]
    if check._count():
        check.compare([(name, numpy.asarray(array)) for name, array in zip(names, arrays)])
    return []


def _lower(ctx: Any, *operands: Any, model: int) -> Any:
    if not _compiled.uses_ffi():
        return _compiled.call_python(ctx, lambda: tuple(_run_now(model=model)), (), ())
    return _compiled.call_handler(ctx, _native.COMPARISON, operands, model=numpy.int64(model))


def _make_primitive() -> Any:
    made = core.Primitive("horovod_compare")
    made.multiple_results = True
    made.def_effectful_abstract_eval(lambda *arrays, model: ([], {_compiled.effect_of_handler()}))
    made.def_impl(_run_now)
    _compiled.register_lowering(made, _lower)
    ad.primitive_jvps[made] = lambda primals, tangents, model: (made.bind(*primals, model=model), [])
    batching.primitive_batchers[made] = lambda arrays, dims, model: (made.bind(*arrays, model=model), [])
    return made


_primitive = _make_primitive()
