"""Makes the operations of a graph, or of eager execution, from tensors; defines their gradients.

Contains no collective: an operation holds the parameters, and native code submits them to libhorovod.
"""

from __future__ import annotations

import re
import struct
import weakref
from collections import Counter
from typing import Any, Callable, List, Optional, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from horovod import _basics
from horovod._frontend import whole_op, whole_root
from horovod._ops import Average, Kind, Max, Min, Product, Sum, check_complex
from horovod.numpy._arrays import check_mask
from horovod.process_sets import ProcessSet, id_of
from horovod.tensorflow import _calls
from horovod.tensorflow._native import operations

DTYPES = frozenset(
    [
        tf.uint8,
        tf.int8,
        tf.uint16,
        tf.int16,
        tf.int32,
        tf.int64,
        tf.uint32,
        tf.uint64,
        tf.float16,
        tf.bfloat16,
        tf.float32,
        tf.float64,
        tf.bool,
        tf.complex64,
        tf.complex128,
    ]
)


def _pairs(tensors: Sequence[tf.Tensor], is_in_rows: bool = False) -> List[tf.Tensor]:
    """Returns the tensors, with complex numbers as the pairs of reals that the runtime sends. `is_in_rows`: the
    operation refuses a number without dimensions."""
    return [
        tensor
        if not tensor.dtype.is_complex
        else tf.math.real(tensor)
        if is_in_rows and tensor.shape.rank == 0
        else tf.stack([tf.math.real(tensor), tf.math.imag(tensor)], axis=-1)
        for tensor in tensors
    ]


def _from_pairs(results: Sequence[tf.Tensor], like: Sequence[tf.Tensor]) -> List[tf.Tensor]:
    """Inverts `_pairs`."""
    return [
        tf.complex(result[..., 0], result[..., 1]) if tensor.dtype.is_complex else result
        for result, tensor in zip(results, like)
    ]


def _check_op(tensors: Sequence[tf.Tensor], kind: Kind, op: int) -> None:
    for tensor in tensors:
        if tensor.dtype.is_complex:
            check_complex(kind.name.lower(), kind, op)


def bits_of(factor: float, what: str) -> int:
    """Returns the bits of a double as a node's attribute; 0 for a factor of 1."""
    if not hasattr(factor, "__float__"):
        raise ValueError(
            f"{what}: a prescale or postscale factor is {factor!r}, a {type(factor).__name__}; give a number."
        )
    factor = float(factor)
    if not factor:
        raise ValueError(f"{what}: a prescale or postscale factor of 0 leaves nothing to reduce.")
    return 0 if factor == 1.0 else struct.unpack("<q", struct.pack("<d", factor))[0]


def to_tensor(value: Any, what: str) -> tf.Tensor:
    """Returns `value` as a tensor. Raises ValueError for an unsupported type."""
    check_mask(value, what)
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"{what}: expected a dense tensor, or what can become one, not a {type(value).__name__}."
        ) from None
    if tensor.dtype.base_dtype not in DTYPES:
        raise ValueError(f"{what}: tensors of type {tensor.dtype.name} are not supported.")
    return tensor


def to_splits(splits: Any) -> tf.Tensor:
    """Returns the number of rows for each rank, as int64. Raises ValueError unless it is a vector of
    integers."""
    if splits is None:
        return tf.zeros([0], tf.int64)
    tensor = to_tensor(splits, "alltoall: splits") if not isinstance(splits, str) else None
    if tensor is None or not tensor.dtype.is_integer or tensor.shape.rank not in (1, None):
        raise ValueError(f"alltoall: splits is {splits!r}; give whole numbers, one for each rank.")
    return tf.cast(tensor, tf.int64)


def node_name(op: str, name: Optional[str], tensors: Sequence[tf.Tensor], ignore_name_scope: bool = False) -> str:
    """Returns the name by which ranks match the operation, or '' for a number at run time.

    In graphs the name depends on the graph alone, so that an additional trace on one rank does not change it. A name
    that already exists in the graph gets a number, in the order of construction.
    """
    if tf.executing_eagerly():
        return name or ""
    graph = tf.compat.v1.get_default_graph()
    # The name of a branch ends in a number that differs between ranks (unique_fn_name of TensorFlow). Remove it.
    own = re.sub(r"_\d+$", "", getattr(graph, "name", None) or "")
    prefix = f"{own}/" if own else ""
    if name is not None:
        scope = graph.get_name_scope()
        scoped = f"{scope}/{name}" if scope and not ignore_name_scope else name
        return _unique(graph, op, prefix + scoped)
    return _unique(graph, op, f"{prefix}{op}_{source_name(tensors[0])}")


def source_name(tensor: Any) -> str:
    """Returns the part of a request's name that comes from the name of the first tensor."""
    source = re.sub(r"[^A-Za-z0-9_./-]", "_", getattr(tensor, "name", "") or "")
    # The names of captured constants are numbers, which also differ between ranks. Replace them.
    return re.sub(r"(^|/)\d+(_\d+)?$", r"\1captured", source)


# For each graph: the number of requests for each operation and name.
_asked: weakref.WeakKeyDictionary[tf.Graph, Counter] = weakref.WeakKeyDictionary()


def _unique(graph: tf.Graph, op: str, name: str) -> str:
    asked = _asked.setdefault(graph, Counter())
    chosen = name
    while asked[op, chosen]:
        chosen = f"{name}_{asked[op, name]}"
        asked[op, name] += 1
    asked[op, chosen] += 1
    return chosen


def name_of_batch(op: Any) -> str:
    """Returns the name of an operation that replaces the operations of all iterations; `op` is the traced operation."""
    return _unique(tf.compat.v1.get_default_graph(), "batch", f"{_given_name(op) or op.type}.batch")


def _given_name(op: Any) -> str:
    name = op.get_attr("tensor_name")
    return name.decode() if isinstance(name, bytes) else name


def _run(collective: str, tensor_name: str, given: Optional[str], call: Optional[tf.Tensor], **arguments: Any) -> Any:
    """Runs a collective, or adds its node to the graph. The node has the name that the caller gave, as far as
    TensorFlow accepts its characters. `call`: see _calls.py; without it, a kernel derives the function calls around the
    node from the node's name in this graph."""
    make = getattr(operations, f"horovod_{collective}")
    if tf.executing_eagerly():
        return make(tensor_name=tensor_name, **arguments)
    op = f"Horovod{collective.capitalize()}"
    _refuse_xla(op)
    wanted = re.sub(r"[^A-Za-z0-9_./-]", "_", given or "").strip("/_-")
    graph = tf.compat.v1.get_default_graph()
    node = graph.unique_name(wanted or op)
    arguments.update(tensor_name=tensor_name, name=f"{node}/")
    if call is None:
        call = _calls.number(graph)
    if call is None:
        return make(node=node, **arguments)
    return getattr(operations, f"horovod_{collective}_in_call")(call=call, **arguments)


def _refuse_xla(op: str) -> None:
    """Raises tf.errors.InvalidArgumentError while TensorFlow traces a function with jit_compile=True."""
    graph = tf.compat.v1.get_default_graph()
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"{op} in the function '{getattr(graph, 'name', '')}': XLA cannot compile the collectives "
            "of Horovod; call them outside of functions with jit_compile=True, or leave jit_compile "
            "out.",
        )


def rows_unknown(result: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Sets the static shape of a result, except its first dimension."""
    if not tf.executing_eagerly() and like.shape.rank:
        result.set_shape([None] + like.shape[1:].as_list())
    return result


def _shaped(results: List[tf.Tensor], like: Sequence[tf.Tensor]) -> List[tf.Tensor]:
    """Sets the static shapes of results that have the shapes of `like`: TensorFlow 2.4 does not infer them."""
    if not tf.executing_eagerly():
        for result, tensor in zip(results, like):
            if result.shape.rank is None:
                result.set_shape(tensor.shape)
    return results


def _shapes_of(tensors: Sequence[tf.Tensor]) -> List[int]:
    """Returns the static shapes of a graph's tensors: for each tensor the number of dimensions, then the dimensions.
    Returns an empty list if a shape is unknown, and in eager execution, where each attribute value would create a new
    kernel."""
    if tf.executing_eagerly() or not all(t.shape.is_fully_defined() for t in tensors):
        return []
    return [number for tensor in tensors for number in (tensor.shape.rank, *tensor.shape.as_list())]


def allreduce(
    tensors: Sequence[tf.Tensor],
    name: str,
    op: int,
    prescale: int,
    postscale: int,
    process_set: int,
    is_last: bool = False,
    given: Optional[str] = None,
    call: Optional[tf.Tensor] = None,
) -> List[tf.Tensor]:
    """Makes an allreduce of the tensors. `given`: the name from the caller, here and in the functions below.
    `is_last`: a thread of TensorFlow may briefly wait for the result, because no other work can run meanwhile. `call`:
    the number of a gradient's call, see `_described`."""
    op = whole_op(op)
    _check_op(tensors, Kind.ALLREDUCE, op)
    sent = _pairs(tensors)
    results = _run(
        "allreduce",
        name,
        given,
        call,
        tensors=sent,
        shapes=_shapes_of(sent),
        reduce_op=op,
        prescale_bits=prescale,
        postscale_bits=postscale,
        process_set=process_set,
        is_last=int(is_last or tf.executing_eagerly()),
    )
    return _from_pairs(_shaped(results, sent), tensors)


def broadcast(
    tensors: Sequence[tf.Tensor],
    name: str,
    root_rank: int,
    process_set: int,
    given: Optional[str] = None,
    call: Optional[tf.Tensor] = None,
) -> List[tf.Tensor]:
    root_rank = whole_root(root_rank)
    sent = _pairs(tensors)
    results = _run("broadcast", name, given, call, tensors=sent, root_rank=root_rank, process_set=process_set)
    return _from_pairs(_shaped(results, sent), tensors)


def allgather(
    tensors: Sequence[tf.Tensor],
    name: str,
    process_set: int,
    given: Optional[str] = None,
    call: Optional[tf.Tensor] = None,
) -> List[tf.Tensor]:
    sent = _pairs(tensors, True)
    results = _run("allgather", name, given, call, tensors=sent, process_set=process_set)
    return _from_pairs([rows_unknown(result, like) for result, like in zip(results, sent)], tensors)


def reducescatter(
    tensors: Sequence[tf.Tensor],
    name: str,
    op: int,
    prescale: int,
    postscale: int,
    process_set: int,
    given: Optional[str] = None,
) -> List[tf.Tensor]:
    op = whole_op(op)
    _check_op(tensors, Kind.REDUCESCATTER, op)
    sent = _pairs(tensors, True)
    results = _run(
        "reducescatter",
        name,
        given,
        None,
        tensors=sent,
        reduce_op=op,
        prescale_bits=prescale,
        postscale_bits=postscale,
        process_set=process_set,
    )
    return _from_pairs([rows_unknown(result, like) for result, like in zip(results, sent)], tensors)


def alltoall(
    tensor: tf.Tensor,
    splits: tf.Tensor,
    name: str,
    process_set: int,
    given: Optional[str] = None,
    call: Optional[tf.Tensor] = None,
) -> Tuple[tf.Tensor, tf.Tensor]:
    (sent,) = _pairs([tensor], True)
    results, received = _run(
        "alltoall", name, given, call, tensors=[sent], splits=tf.cast(splits, tf.int64), process_set=process_set
    )
    return _from_pairs([rows_unknown(results[0], sent)], [tensor])[0], received


def number(what: int, process_set: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """Returns a number that is evaluated when the graph runs. `what`: 0 rank, 1 local rank, 2 size, 3 local size, 4
    included, 5 whether the check of replicas with the number `process_set` is due."""
    if not tf.executing_eagerly():
        _refuse_xla("HorovodNumber")
    result = operations.horovod_number(what=what, process_set=process_set, name=name)
    if not tf.executing_eagerly():
        result.set_shape([])
    return result


# ---- Gradients ----------------------------------------------------------------------------------


def _described(op: Any) -> Tuple[str, int, Optional[tf.Tensor]]:
    """Returns the name, the process set and the number of the call for the gradient of an operation."""
    name, process_set = _given_name(op), op.get_attr("process_set")
    if tf.executing_eagerly():
        return name and name + ".gradient", process_set, None
    # One operation may have several gradients in a graph, one for each loss, so make the name unique.
    graph = tf.compat.v1.get_default_graph()
    unique = _unique(graph, "gradient", f"{name or op.type}.gradient")
    return unique, process_set, _calls.number_of_gradient(op, graph)


def _register(collective: str) -> Callable[[Callable[..., List[Any]]], Callable[..., List[Any]]]:
    """Returns a decorator that registers a gradient function. The function gets the operation and the gradients of its
    results, and returns the gradients of its tensors and splits."""

    def register(gradient: Callable[..., List[Any]]) -> Callable[..., List[Any]]:
        name = f"Horovod{collective.capitalize()}"
        tf.RegisterGradient(name)(gradient)
        tf.RegisterGradient(f"{name}InCall")(lambda op, *grads: [*gradient(op, *grads), None])
        return gradient

    return register


@_register("allreduce")
def _allreduce_gradient(op: Any, *grads: Any) -> List[tf.Tensor]:
    if op.get_attr("reduce_op") in (Min, Max, Product):
        raise NotImplementedError("An allreduce with Min, Max or Product has no gradient; use tf.stop_gradient.")
    name, process_set, call = _described(op)
    return allreduce(
        list(grads),
        name,
        op.get_attr("reduce_op"),
        op.get_attr("prescale_bits"),
        op.get_attr("postscale_bits"),
        process_set,
        call=call,
    )


@_register("broadcast")
def _broadcast_gradient(op: Any, *grads: Any) -> List[tf.Tensor]:
    name, process_set, call = _described(op)
    averaged = allreduce(list(grads), name, Average, 0, 0, process_set, call=call)
    is_root = tf.equal(number(0), op.get_attr("root_rank"))
    return [tf.where(is_root, grad, tf.zeros_like(grad)) for grad in averaged]


def _place_in(process_set: int) -> int:
    from horovod import _ops

    return _ops.ask("hvd_process_set_rank", process_set) if process_set else _basics.rank()


@_register("allgather")
def _allgather_gradient(op: Any, *grads: Any) -> List[tf.Tensor]:
    name, process_set, call = _described(op)
    rows = tf.stack([tf.shape(tensor)[0] for tensor in op.inputs[: len(grads)]])
    everybody = allgather([rows[tf.newaxis]], name and name + ".rows", process_set, call=call)[0]
    starts = tf.reduce_sum(everybody[: _place_in(process_set)], 0)
    averaged = allreduce(list(grads), name, Average, 0, 0, process_set, call=call)
    return [grad[starts[i] : starts[i] + rows[i]] for i, grad in enumerate(averaged)]


@_register("reducescatter")
def _reducescatter_gradient(op: Any, *grads: Any) -> List[tf.Tensor]:
    name, process_set, call = _described(op)
    factor = 1.0
    for attribute in ("prescale_bits", "postscale_bits"):
        bits = op.get_attr(attribute)
        factor *= struct.unpack("<d", struct.pack("<q", bits))[0] if bits else 1.0
    gathered = allgather(list(grads), name, process_set, call=call)
    scaled = [grad if factor == 1.0 else grad * tf.cast(factor, grad.dtype) for grad in gathered]
    if op.get_attr("reduce_op") != Sum:
        return scaled
    size = number(2, process_set)
    return [grad * tf.cast(size, grad.dtype) for grad in scaled]


@_register("alltoall")
def _alltoall_gradient(op: Any, grad: Any, unused: Any) -> List[Any]:
    name, process_set, call = _described(op)
    return [alltoall(grad, op.outputs[1], name, process_set, call=call)[0], None]


def group_of(process_set: ProcessSet) -> int:
    """Returns the set's number. Raises ValueError unless Horovod is initialised and the set is
    registered."""
    _basics.rank()
    return id_of(process_set)
