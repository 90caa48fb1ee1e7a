"""Facades of the frameworks for table_case: they convert arrays from numpy and back.

A facade has `hvd`, the module; `dtypes`, the names of all types that its functions take; `refused`, an array of a type
that none takes; `disagreement`, the exception of a call, or of a read of its result, if ranks disagree; `refusal`, the
exception for an argument that is wrong on this rank; `make(values, dtype)`, an array of numbers; `read(array)`, numbers
and the dtype's name; `ways(function)`, how to call a function of lists of arrays; `beside`, public names that
table_case does not call with every type, with the file that tests each; `takes_empty_lists`, the functions that
return an empty list for an empty list; `shapes`, more shapes of reduced and broadcast arrays; and `least_rows`, numbers
of rows of rank 0 where ranks have different numbers of them, empty for a module whose compiled programs refuse that.
"""

import numpy

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
EVERY = INTEGERS + FLOATS + ["bool"]
COMPLEX = ["complex64", "complex128"]


def wide(array):
    """Returns the numbers in the widest type of their kind."""
    return array.astype("complex128" if array.dtype.kind == "c" else "float64")


class Facade:
    dtypes = EVERY + COMPLEX
    disagreement = ValueError
    refusal = ValueError
    takes_empty_lists = ()
    shapes = [(), (1,), (0,), (4, 0), (70001,)]
    least_rows = [0, 1]

    def ways(self, function):
        return [function]

    def dtype(self, name):
        import ml_dtypes

        return ml_dtypes.bfloat16 if name == "bfloat16" else name

    def variable(self, array):
        """Returns the argument of an in-place function."""
        return array

    def prefix(self, kind, name):
        """Returns the prefix that the module adds to the name of a call with one array."""
        return f"grouped_{kind}" if "grouped" in name else kind


class Numpy(Facade):
    def __init__(self):
        import horovod.numpy as hvd

        self.hvd, self.refused = hvd, numpy.ones(2, "longdouble")
        self.beside = {}
        try:
            import ml_dtypes  # noqa: F401
        except ImportError:
            self.dtypes = [name for name in self.dtypes if name != "bfloat16"]

    def make(self, values, dtype):
        return numpy.array(values, self.dtype(dtype) if dtype == "bfloat16" else dtype)

    def read(self, array):
        return wide(array), array.dtype.name


class Torch(Facade):
    def __init__(self):
        import torch

        import horovod.torch as hvd

        self.hvd, self.torch = hvd, torch
        self.refused = torch.zeros(2, dtype=torch.complex32)
        self.dtypes = [name for name in self.dtypes if hasattr(torch, name)]
        self.beside = {
            "Compression": "ops_test.py",
            "DistributedOptimizer": "optimizer_test.py",
            "SyncBatchNorm": "layers_test.py",
            "broadcast_optimizer_state": "optimizer_state_test.py",
            "broadcast_parameters": "optimizer_state_test.py",
            "sparse_allreduce_async": "ops_test.py",
            **dict.fromkeys(["recv", "recv_async", "send", "send_async"], "messages_test.py"),
        }

    def make(self, values, dtype):
        return self.torch.tensor(values.tolist()).reshape(values.shape).to(getattr(self.torch, dtype))

    def read(self, array):
        name = str(array.dtype).split(".")[-1]
        if name in ("uint16", "uint32", "uint64"):  # torch supports few operations on these types
            return array.numpy().astype("float64"), name
        return (array if array.is_complex() else array.double()).numpy(), name


class Jax(Facade):
    least_rows = []

    def __init__(self):
        import jax

        import horovod.jax as hvd

        self.hvd, self.jax = hvd, jax
        self.refused = numpy.ones(2, "S1")
        self.beside = {
            "DistributedOptimizer": "jax_test.py",
            "broadcast_parameters": "jax_test.py",
            "horovod_errors": "jax_compiled_test.py",
            "Compression": "jax_test.py",
        }

    def make(self, values, dtype):
        return self.jax.numpy.asarray(numpy.array(values, self.dtype(dtype)))

    def read(self, array):
        return wide(numpy.asarray(array)), array.dtype.name

    def ways(self, function):
        return [function, self.jax.jit(function)]

    def prefix(self, kind, name):
        return "grouped_allreduce" if kind == "allreduce" else kind


class TensorFlow(Facade):
    def __init__(self):
        import tensorflow

        import horovod.tensorflow as hvd

        self.hvd, self.tf = hvd, tensorflow
        self.refused = tensorflow.constant(["a", "b"])
        self.disagreement = tensorflow.errors.FailedPreconditionError
        self.refusal = tensorflow.errors.InvalidArgumentError
        self.takes_empty_lists = ("grouped_allreduce", "grouped_reducescatter")
        self.beside = {
            "BroadcastGlobalVariablesHook": "tensorflow_training_test.py",
            "Compression": "tensorflow_test.py",
            "DistributedGradientTape": "tensorflow_training_test.py",
            "DistributedOptimizer": "tensorflow_training_test.py",
            "PartialDistributedGradientTape": "tensorflow_training_test.py",
            "SyncBatchNormalization": "tensorflow_training_test.py",
            "broadcast_global_variables": "tensorflow_training_test.py",
            "broadcast_object_fn": "tensorflow_test.py",
            "broadcast_variables": "tensorflow_test.py",
            "LocalGradientAggregationHelper": "tensorflow_training_test.py",
            "LocalGradientAggregationHelperEager": "tensorflow_training_test.py",
            "check_num_rank_power_of_2": "tensorflow_test.py",
            "handle_average_backwards_compatibility": "tensorflow_test.py",
            "refs_to_vars": "tensorflow_test.py",
            "split_list": "tensorflow_test.py",
            "vars_to_refs": "tensorflow_test.py",
            "local_rank_op": "tensorflow_test.py",
            "local_size_op": "tensorflow_test.py",
            "process_set_included_op": "tensorflow_test.py",
            "rank_op": "tensorflow_test.py",
            "size_op": "tensorflow_test.py",
        }

    def dtype(self, name):
        return self.tf.as_dtype(name).as_numpy_dtype

    def make(self, values, dtype):
        return self.tf.constant(numpy.array(values, self.dtype(dtype)))

    def read(self, array):
        return wide(self.tf.convert_to_tensor(array).numpy()), array.dtype.name

    def variable(self, array):
        return self.tf.Variable(array)

    def ways(self, function):
        return [function, self.tf.function(function)]

    def prefix(self, kind, name):
        return kind  # a group with one tensor counts as a single tensor


class Mxnet(Facade):
    dtypes = ["uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool"]
    shapes = [(1,), (7001,)]  # an empty shape is an unknown one
    least_rows = [1]
    _bfloat16 = numpy.dtype([("bfloat16", numpy.uint16)])

    def __init__(self):
        import mxnet

        import horovod.mxnet as hvd

        self.hvd, self.mx = hvd, mxnet
        self.disagreement = (ValueError, mxnet.MXNetError)
        self.refused = mxnet.nd.ones((2, 2)).tostype("row_sparse")
        self.beside = {
            "Compression": "mxnet_test.py",
            "DistributedOptimizer": "mxnet_test.py",
            "DistributedTrainer": "mxnet_test.py",
            "broadcast_parameters": "mxnet_test.py",
        }

    def make(self, values, dtype):
        if dtype != "bfloat16":
            return self.mx.nd.array(values, dtype=dtype)
        if not numpy.size(values):  # MXNet's operators take a size of 0 for an unknown one
            return self.mx.nd.empty(numpy.shape(values), dtype=self._bfloat16)
        return self.mx.nd.array(values).astype(self._bfloat16)

    def read(self, array):
        dtype = numpy.dtype(array.dtype)
        if dtype == self._bfloat16 and not array.size:
            return numpy.zeros(array.shape), "bfloat16"
        if dtype == self._bfloat16:
            return self.mx.nd.amp_cast(array, dtype="float32").asnumpy().astype("float64"), "bfloat16"
        return array.asnumpy().astype("float64"), dtype.name


class Keras:
    """Facade of horovod.keras and horovod.tensorflow.keras, on top of their backend's facade."""

    def __init__(self, hvd, below):
        self.hvd, self._below = hvd, below
        self.beside = dict.fromkeys(
            [
                "Compression",
                "DistributedOptimizer",
                "PartialDistributedOptimizer",
                "broadcast_global_variables",
                "load_model",
            ],
            "keras_test.py",
        )

    def __getattr__(self, name):
        return getattr(self._below, name)

    def ways(self, function):
        return [function]
