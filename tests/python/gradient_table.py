"""Gradients through the public collectives of all frameworks: which collectives have gradients, and their values.

The names come from api_table.py, so a new collective needs a gradient or a reason here. A framework's test file
subclasses GradientTableCase.
"""

import inspect

import api_table
import numpy
import rank_base

SIGNATURES = api_table.signatures()
KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
COLUMNS = (2, 3)  # tensors per group

# Frameworks, names ("*": all), and the reason why their results have no gradient, as in Horovod.
WITHOUT = [
    (
        "torch",
        "allgather_async allreduce_async alltoall_async broadcast_async grouped_allgather_async "
        "grouped_allreduce_async grouped_reducescatter_async reducescatter_async",
        "a handle is outside of autograd",
    ),
    (
        "torch",
        "allreduce_ allreduce_async_ broadcast_ broadcast_async_ grouped_allreduce_ grouped_allreduce_async_",
        "they change their argument",
    ),
    ("tensorflow", "broadcast_", "it assigns to variables"),
    ("tensorflow.keras keras", "*", "they take and return values, outside of tapes and graphs"),
    ("mxnet", "*", "MXNet's autograd does not record them"),
    ("numpy", "*", "numpy has no gradients"),
]
# Functions that do not move tensors.
OTHERS = {
    "allgather_object",
    "broadcast_object",
    "broadcast_object_fn",  # moves Python objects
    "broadcast_global_variables",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "broadcast_variables",
    "BroadcastGlobalVariablesHook",
    "sparse_allreduce_async",  # moves states and sparse gradients
}


def kind_of(name):
    return name.replace("grouped_", "").replace("_async", "").rstrip("_")


def collectives(framework):
    """Returns the framework's public functions that reduce or move tensors."""
    return [name for name, forms in SIGNATURES.items() if kind_of(name) in KINDS and framework in forms]


def reason_without(framework, name):
    """Returns the reason why the result has no gradient, or None."""
    return next(
        (
            reason
            for frameworks, names, reason in WITHOUT
            if framework in frameworks.split() and (names == "*" or name in names.split())
        ),
        None,
    )


def differentiable(framework):
    return [name for name in collectives(framework) if reason_without(framework, name) is None]


def given(kind, size, rank, columns):
    """Returns the input of a rank; its number of rows does not divide evenly."""
    rows = {"allgather": rank + 1, "alltoall": 2 * size}.get(kind, 2 * size + 1)
    return numpy.arange(rows * columns, dtype="float64").reshape(rows, columns) + rank


def weights(kind, size, rank, columns):
    """Returns the gradient of a rank's result."""
    rows = {"allgather": size * (size + 1) // 2, "alltoall": 2 * size, "reducescatter": 2 + (rank == 0)}.get(
        kind, 2 * size + 1
    )
    return numpy.arange(rows * columns, dtype="float64").reshape(rows, columns) * (rank + 1) + rank


def want(kind, size, rank, columns, arguments):
    """Returns the gradient of a rank's input, computed from the `weights` of all ranks."""
    everybody = [weights(kind, size, other, columns) for other in range(size)]
    factor = arguments.get("prescale_factor", 1) * (size if arguments.get("sums") else 1)
    if kind == "reducescatter":
        return numpy.concatenate(everybody) * factor
    if kind == "alltoall":
        return numpy.concatenate([each[2 * rank : 2 * rank + 2] for each in everybody])
    mean = numpy.stack(everybody).sum(0) / size
    if kind == "allreduce":
        return mean * factor
    if kind == "allgather":
        start = rank * (rank + 1) // 2
        return mean[start : start + rank + 1]
    return mean * (rank == size - 1)  # a broadcast from the last rank


def cases(function, kind, size):
    """Returns the keyword arguments of the call; the test removes `sums` before the call."""
    if kind == "broadcast":
        return [{"root_rank": size - 1}]
    if "op" in inspect.signature(function).parameters:
        return [{}, {"sums": True}, {"sums": True, "prescale_factor": 3.0}]
    return [{}]


class GradientTableCase(rank_base.RankBase):
    """Tests each row of the table. A framework gives `framework`, `hvd`, and `gradients`."""

    framework, hvd, tolerance = None, None, 1e-5

    def gradients(self, function, inputs, factors):
        """Calls function(a list of tensors), which returns a list, with the numpy arrays `inputs`. Returns for each
        kind of call the gradients of sum(result * factor) as a list of arrays; None for a missing gradient."""
        raise NotImplementedError

    def test_every_collective_passes_gradients_on(self):
        for name in differentiable(self.framework):
            kind, function = kind_of(name), getattr(self.hvd, name)
            columns = COLUMNS if name.startswith("grouped_") else COLUMNS[:1]
            for case in cases(function, kind, self.size):
                arguments = {key: value for key, value in case.items() if key != "sums"}
                if case.get("sums"):
                    arguments["op"] = self.hvd.Sum

                def call(tensors, name=name, function=function, arguments=arguments):
                    if name.startswith("grouped_"):
                        return list(function(tensors, **arguments))
                    return [function(tensors[0], **arguments)]

                with self.subTest(collective=name, **case):
                    for got in self.gradients(
                        call,
                        [given(kind, self.size, self.rank, each) for each in columns],
                        [weights(kind, self.size, self.rank, each) for each in columns],
                    ):
                        self.assertEqual(len(got), len(columns))
                        for gradient, each in zip(got, columns):
                            self.assertIsNotNone(gradient)
                            numpy.testing.assert_allclose(
                                gradient, want(kind, self.size, self.rank, each, case), rtol=self.tolerance
                            )

    def test_the_table_has_every_collective_of_every_framework(self):
        words = ("reduce", "gather", "broadcast", "alltoall", "scatter")
        named = {
            name for name in SIGNATURES if any(word in name.lower() for word in words) and "callbacks." not in name
        }
        self.assertEqual({name for name in named if kind_of(name) not in KINDS}, OTHERS)
        for framework in api_table.FRAMEWORKS:
            public = collectives(framework)
            self.assertTrue(public, framework)
            for frameworks, names, _ in WITHOUT:
                if framework in frameworks.split() and names != "*":
                    self.assertEqual(set(names.split()) - set(public), set(), framework)
        for framework in ("torch", "tensorflow", "jax"):
            self.assertEqual({kind_of(name) for name in differentiable(framework)}, set(KINDS))
        for name in collectives(self.framework):
            self.assertTrue(callable(getattr(self.hvd, name)), name)
