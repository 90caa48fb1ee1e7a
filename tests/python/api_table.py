"""The public names of Horovod for each framework: their signatures, and why a framework lacks a name.

`api_test.py --write FRAMEWORK...` refreshes the pages of docs/api, which have the signatures. ABSENT and VALUES
are written by hand.
"""

import ast
import pathlib
import re

PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "api"

# The frameworks, as in `import horovod.NAME`.
FRAMEWORKS = ["torch", "tensorflow", "tensorflow.keras", "keras", "mxnet", "jax", "numpy"]


def _signature(shown):
    """Returns the arguments without their types, of a block of code on a page, or what `api_reference.signature_of`
    returns for other objects."""
    if "(" not in shown:
        return shown.partition("# ")[2] or "class"
    arguments = ast.parse(re.sub(r"^ *hvd\.[\w.]+", "def f", shown) + ": pass").body[0].args
    for each in ast.walk(arguments):
        if isinstance(each, ast.arg):
            each.annotation = None
    return f"({ast.unparse(arguments)})"


def signatures():
    """Returns {name: {framework: signature}} of the pages of docs/api."""
    found = {}
    for framework in FRAMEWORKS:
        for section in (PAGES / f"{framework}.md").read_text(encoding="utf-8").split("\n## ")[1:]:
            other = {"Values": "value", "Modules": "module"}.get(section.partition("\n")[0])
            for entry in section.split("\n### ")[1:]:
                name, shown = entry.split("\n\n", 2)[:2]
                found.setdefault(name, {})[framework] = other or _signature(shown)
    return dict(sorted(found.items()))


# (frameworks, names that they lack, reason).
ABSENT = [
    # Names of one framework.
    ("tensorflow tensorflow.keras keras mxnet jax numpy",
     "recv recv_async send send_async",
     "messages between two ranks are offered for PyTorch, whose programs run pipelines"),
    ("tensorflow tensorflow.keras keras mxnet jax numpy",
     "SyncBatchNorm broadcast_optimizer_state sparse_allreduce_async elastic.ElasticIterable elastic.ElasticSampler "
     "elastic.TorchState elastic.get_handler_registry elastic.set_handler_registry",
     "made for PyTorch's modules, optimizers, sparse tensors and samplers"),
    ("torch tensorflow.keras keras mxnet jax numpy",
     "BroadcastGlobalVariablesHook DistributedGradientTape LocalGradientAggregationHelper "
     "LocalGradientAggregationHelperEager PartialDistributedGradientTape SyncBatchNormalization "
     "broadcast_object_fn broadcast_variables check_num_rank_power_of_2 elastic.TensorFlowKerasState "
     "elastic.TensorFlowState gradient_aggregation gradient_aggregation_eager gradient_tape grouped_broadcast "
     "handle_average_backwards_compatibility local_rank_op local_size_op process_set_included_op rank_op "
     "refs_to_vars size_op split_list util vars_to_refs",
     "made for TensorFlow's variables, tapes, sessions and graphs"),
    ("torch tensorflow mxnet jax numpy",
     "PartialDistributedOptimizer callbacks callbacks.BestModelCheckpoint "
     "callbacks.BroadcastGlobalVariablesCallback callbacks.LearningRateScheduleCallback "
     "callbacks.LearningRateWarmupCallback callbacks.MetricAverageCallback elastic.CommitStateCallback "
     "elastic.KerasState elastic.UpdateBatchStateCallback elastic.UpdateEpochStateCallback load_model",
     "made for Keras's models and callbacks"),
    ("torch tensorflow tensorflow.keras keras jax numpy", "DistributedTrainer", "made for Gluon's Trainer"),
    ("torch tensorflow tensorflow.keras keras mxnet numpy", "horovod_errors",
     "made for functions that JAX has compiled"),
    ("torch mxnet jax numpy", "broadcast_global_variables", "made for graphs of TensorFlow 1"),
    # Tensors that nobody can change.
    ("tensorflow tensorflow.keras keras jax", "allreduce_ grouped_allreduce_",
     "tensors of TensorFlow and JAX cannot be changed in place"),
    ("jax", "broadcast_", "arrays of JAX cannot be changed in place"),
    # Handles.
    ("tensorflow tensorflow.keras keras mxnet jax",
     "allgather_async allreduce_async allreduce_async_ alltoall_async broadcast_async broadcast_async_ "
     "grouped_allreduce_async poll reducescatter_async synchronize",
     "these frameworks order operations themselves; handles are for PyTorch and numpy"),
    ("tensorflow tensorflow.keras keras mxnet jax",
     "grouped_allgather_async grouped_allreduce_async_ grouped_reducescatter_async",
     "these frameworks order operations themselves; handles are for PyTorch"),
    ("numpy", "grouped_allreduce_ grouped_allgather_async grouped_allreduce_async_ grouped_reducescatter_async",
     "the forms for one array, or `grouped_allreduce_async`, do the same"),
    # Names that another name replaces.
    ("jax", "grouped_allgather grouped_allreduce grouped_reducescatter",
     "`allgather`, `allreduce` and `reducescatter` take trees of arrays"),
    ("tensorflow tensorflow.keras keras", "broadcast_parameters",
     "`broadcast_variables` or `BroadcastGlobalVariablesCallback` do it"),
    ("numpy", "broadcast_parameters", "`broadcast_` for each array does it"),
    ("tensorflow.keras keras", "alltoall broadcast_ grouped_allgather grouped_allreduce grouped_reducescatter",
     "the module of the framework below Keras, such as horovod.tensorflow, has them"),
    ("numpy", "Compression DistributedOptimizer", "numpy has no optimizers, and arrays travel in their own type"),
    ("mxnet", "elastic elastic.ObjectState elastic.State elastic.leave_seconds elastic.run",
     "Horovod has no elastic training for MXNet"),
    ("numpy", "elastic elastic.ObjectState elastic.State elastic.leave_seconds elastic.run",
     "numpy has no model to restore; horovod.common.elastic has the classes"),
    # Modules that scripts import names from.
    ("tensorflow.keras keras mxnet jax numpy", "optimizer sync_batch_norm",
     "modules that Horovod has for PyTorch and TensorFlow"),
    ("tensorflow.keras keras jax numpy", "functions mpi_ops",
     "modules that Horovod has for PyTorch, TensorFlow and MXNet"),
    ("tensorflow.keras keras numpy", "compression", "`Compression` has the classes"),
]

# Descriptions of public names that are neither functions nor classes.
VALUES = {
    "Adasum": "Reduction `op`: Adasum's combination of gradients, which needs no smaller learning rate.",
    "Average": "Reduction `op`: the sum over the ranks, divided by their number.",
    "Max": "Reduction `op`: the largest value of each element.",
    "Min": "Reduction `op`: the smallest value of each element.",
    "Product": "Reduction `op`: the product over the ranks.",
    "Sum": "Reduction `op`: the sum over the ranks.",
    "__version__": "The version of this package.",
}
