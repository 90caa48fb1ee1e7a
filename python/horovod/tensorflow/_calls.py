"""Numbers the calls of a `tf.function` in a graph of TensorFlow 1.

A session may run the calls of a function as calls of one function, and their collectives then have one node,
hence one name. A function there takes the number of its call as one more captured input, whose value is made
where the function is called; the operations put it into the name by which ranks match.
"""

from __future__ import annotations

import re
import weakref
from collections import Counter
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow

_NOT_FUNCTIONS = (control_flow.CondBranchFuncGraph, control_flow.WhileCondFuncGraph, control_flow.WhileBodyFuncGraph)
_BASE = 1000003  # a call in a call: outer * _BASE + inner

# For each function: the number of its call.
_captured: weakref.WeakKeyDictionary[tf.Graph, tf.Tensor] = weakref.WeakKeyDictionary()
# For each graph: the number of calls of each function in it.
_called: weakref.WeakKeyDictionary[tf.Graph, Counter] = weakref.WeakKeyDictionary()


def number(graph: tf.Graph) -> Optional[tf.Tensor]:
    """Returns the number of the call that runs the function to which `graph` belongs, as a tensor that the graph
    may use. None outside of functions, and where the program runs eagerly."""
    if tf.compat.v1.executing_eagerly_outside_functions():
        return None
    function = _function(graph)
    return _input(function) if isinstance(function, FuncGraph) else None


def _input(function: FuncGraph) -> tf.Tensor:
    captured = _captured.get(function)
    if captured is None:
        with function.as_default():
            captured = _captured[function] = tf.compat.v1.placeholder(tf.int64, [])
        function.add_capture(_OfEachCall(function), captured)
    return captured


def number_of_gradient(op: Any, graph: tf.Graph) -> Optional[tf.Tensor]:
    """The same for the gradient of an operation, where the number has that of the operation's call, since one
    function computes the gradients of all calls. Several gradients of one call are several calls of that function,
    which have numbers of their own."""
    if not op.type.endswith("InCall"):
        return None
    forward = op.inputs[-1]  # a tape gives its own object for the operation, without `graph`
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

    A tape asks only once for the inputs that the function of its gradients captures, and gives them to all calls of
    that function: a tensor would be one number for several gradients. The attributes are those that TensorFlow
    reads from a captured tensor."""

    dtype = tf.int64
    shape = tf.TensorShape([])
    graph = None

    def __init__(self, function: FuncGraph) -> None:
        self._id = ops.uid()
        self._name = re.sub(r"_\d+$", "", function.name or "")

    def __tf_tracing_type__(self, context: Any) -> tf.TensorSpec:
        return tf.TensorSpec([], tf.int64)

    def next(self) -> tf.Tensor:
        """Returns the number of one more call, which the default graph makes."""
        graph = tf.compat.v1.get_default_graph()
        called = _called.setdefault(graph, Counter())
        called[self._name] += 1
        inner = tf.constant(called[self._name], tf.int64)
        outer = number(graph)
        return inner if outer is None else outer * _BASE + inner


tf.register_tensor_conversion_function(_OfEachCall, lambda input_, dtype=None, name=None, as_ref=False: input_.next())
