"""Numbers the calls of a `tf.function`, and the iterations of a loop, in a graph of TensorFlow 1.

A session may run all calls of a function through one copy of its graph; their collectives then share one node and one
name. Such a function captures the number of its call as an additional input, whose value the caller provides; the
operations add the number to the name by which ranks match. Iterations of a loop share a node too, and a session runs
several at once, in any order: the number of the iteration is a tensor of the loop. In functions, TensorFlow itself
orders the iterations.

The functions of `tf.data` have no such number. If `tf.data` makes several calls of a function at once, it must not
contain a collective.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections import Counter
from types import FrameType
from typing import Any, Iterator, Optional

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow
from tensorflow.python.ops.control_flow_ops import WhileContext

_NOT_FUNCTIONS = (control_flow.CondBranchFuncGraph, control_flow.WhileCondFuncGraph, control_flow.WhileBodyFuncGraph)
_BASE = 1000003  # base of the numbers of nested calls: outer * _BASE + inner

# For each function: the number of its call.
_captured: weakref.WeakKeyDictionary[tf.Graph, tf.Tensor] = weakref.WeakKeyDictionary()
# For each loop: the number of its iteration.
_counters: weakref.WeakKeyDictionary[WhileContext, tf.Tensor] = weakref.WeakKeyDictionary()
# For each graph: the number of calls of each function in it.
_called: weakref.WeakKeyDictionary[tf.Graph, Counter] = weakref.WeakKeyDictionary()


def number(graph: tf.Graph) -> Optional[tf.Tensor]:
    """Returns the number of the call and of the iterations in which operations of `graph` run, as a tensor that the
    graph may use. None outside of functions and loops, and where the program runs eagerly. Raises
    tf.errors.InvalidArgumentError in a function of which tf.data makes several calls at once."""
    _refuse_parallel_dataset(graph)
    if tf.compat.v1.executing_eagerly_outside_functions():
        return None
    found = None
    for each in _numbers(graph):
        found = each if found is None else found * _BASE + each
    return found


def _numbers(graph: tf.Graph) -> Iterator[tf.Tensor]:
    """Yields the number of the function's call, then the numbers of the loops around the operation, outermost first."""
    if not isinstance(graph, FuncGraph):
        yield from _numbers_of_contexts(graph._get_control_flow_context())
    elif not isinstance(graph, _NOT_FUNCTIONS):
        yield _input(graph)
    else:
        yield from _numbers(graph.outer_graph)
        if isinstance(graph, control_flow.WhileBodyFuncGraph) and not graph._add_control_dependencies:
            counter = next(op for op in graph.get_operations() if op.type == "Placeholder")
            yield tf.cast(counter.outputs[0], tf.int64)


def _numbers_of_contexts(context: Any) -> Iterator[tf.Tensor]:
    """Yields the numbers of loops whose operations lie in the graph itself (tf.compat.v1.disable_control_flow_v2)."""
    if context is None:
        return
    yield from _numbers_of_contexts(context.outer_context)
    if isinstance(context, WhileContext):
        if context not in _counters:
            _counters[context] = _counter_of(context)
        yield tf.cast(_counters[context], tf.int64)


def _counter_of(context: WhileContext) -> tf.Tensor:
    """Adds an iteration counter to a loop, as TensorFlow does for gradients."""
    with tf.control_dependencies(None):
        outer = context.outer_context
        if outer is not None:
            outer.Enter()
        _, following = context.AddForwardLoopCounter(None)
        if outer is not None:
            outer.Exit()
    return following.op.inputs[0]


def _refuse_parallel_dataset(graph: tf.Graph) -> None:
    if not isinstance(graph, FuncGraph):
        return
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        maker = type(frame.f_locals.get("self"))
        if re.search("Parallel|MapAndBatch", maker.__name__) and issubclass(maker, tf.data.Dataset):
            break
        frame = frame.f_back
    else:
        return
    raise tf.errors.InvalidArgumentError(
        None,
        None,
        f"Horovod in the function '{graph.name}' of tf.data: with num_parallel_calls, tf.data makes several calls at "
        "once, in an order that differs between ranks; leave num_parallel_calls out there, or call the collective in "
        "the training step.",
    )


def _input(function: FuncGraph) -> tf.Tensor:
    captured = _captured.get(function)
    if captured is None:
        with function.as_default():
            captured = _captured[function] = tf.compat.v1.placeholder(tf.int64, [])
        function.add_capture(_OfEachCall(function), captured)
    return captured


def number_of_gradient(op: Any, graph: tf.Graph) -> Optional[tf.Tensor]:
    """Returns the call number for the gradient of an operation. The number contains the number of the operation's call,
    because one function computes the gradients of all calls. Several gradients of one call are several calls of that
    function, each with its own number."""
    if not op.type.endswith("InCall"):
        return None
    forward = op.inputs[-1]  # a tape passes another object in place of the operation, without the attribute `graph`
    function = _function(graph)
    if not isinstance(function, FuncGraph) or function is _function(forward.graph):
        return forward
    return forward * _BASE + _input(function)


def _function(graph: tf.Graph) -> tf.Graph:
    while isinstance(graph, _NOT_FUNCTIONS):
        graph = graph.outer_graph
    return graph


class _OfEachCall:
    """A captured input that becomes the number of a call where TensorFlow makes the call.

    A tape reads the captured inputs of its gradient function only once, and passes them to all calls of that function:
    a plain tensor would be one number for several gradients. The attributes are those that TensorFlow reads from a
    captured tensor."""

    dtype = tf.int64
    shape = tf.TensorShape([])
    graph = None

    def __init__(self, function: FuncGraph) -> None:
        self._id = ops.uid()
        self._name = re.sub(r"_\d+$", "", function.name or "")

    def __tf_tracing_type__(self, context: Any) -> tf.TensorSpec:
        return tf.TensorSpec([], tf.int64)

    def next(self) -> tf.Tensor:
        """Returns the number of the next call, which the default graph makes."""
        graph = tf.compat.v1.get_default_graph()
        called = _called.setdefault(_function(graph), Counter())
        called[self._name] += 1
        inner = tf.constant(called[self._name], tf.int64)
        outer = number(graph)
        return inner if outer is None else outer * _BASE + inner


tf.register_tensor_conversion_function(_OfEachCall, lambda input_, dtype=None, name=None, as_ref=False: input_.next())
