"""The public names of Horovod for each framework: their signatures, and why a framework lacks a name.

`api_test.py --write FRAMEWORK...` refreshes SIGNATURES and the pages of docs/api. ABSENT and VALUES are
written by hand.
"""

# The frameworks, as in `import horovod.NAME`.
FRAMEWORKS = ["torch", "tensorflow", "tensorflow.keras", "keras", "mxnet", "jax", "numpy"]

# Name: frameworks, separated by spaces ("all" for every one), and the arguments that the name takes there.
SIGNATURES = {
    "Adasum": {"all": "value"},
    "Average": {"all": "value"},
    "BroadcastGlobalVariablesHook": {"tensorflow": "(root_rank, device='')"},
    "Compression": {"torch tensorflow tensorflow.keras keras mxnet jax": "class"},
    "DistributedGradientTape": {
        "tensorflow":
            "(gradtape, device_dense='', device_sparse='', compression=Compression.none, sparse_as_dense=False, "
            "op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, "
            "process_set=global_process_set, scale_local_gradients=True)",
    },
    "DistributedOptimizer": {
        "torch":
            "(optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1, "
            "op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, "
            "process_set=global_process_set)",
        "tensorflow":
            "(optimizer, name=None, use_locking=False, device_dense='', device_sparse='', "
            "compression=Compression.none, sparse_as_dense=False, backward_passes_per_step=1, op=Average, "
            "gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, groups=None, "
            "process_set=global_process_set, scale_local_gradients=True)",
        "tensorflow.keras":
            "(optimizer, name=None, device_dense='', device_sparse='', compression=None, sparse_as_dense=False, "
            "gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, "
            "average_aggregated_gradients=False, num_groups=0, groups=None, process_set=global_process_set, "
            "scale_local_gradients=True)",
        "keras":
            "(optimizer, name=None, device_dense='', device_sparse='', compression=None, sparse_as_dense=False, "
            "gradient_predivide_factor=1.0, op=Average, num_groups=0, groups=None, backward_passes_per_step=1, "
            "average_aggregated_gradients=False, process_set=global_process_set, scale_local_gradients=True)",
        "mxnet": "(optimizer, gradient_predivide_factor=1.0, num_groups=0, process_set=global_process_set)",
        "jax":
            "(optimizer, name=None, op=Average, gradient_predivide_factor=1.0, process_set=global_process_set, "
            "compression=Compression.none)",
    },
    "DistributedTrainer": {
        "mxnet":
            "(params, optimizer, optimizer_params=None, compression=Compression.none, "
            "gradient_predivide_factor=1.0, prefix=None, num_groups=0, process_set=global_process_set)",
    },
    "HorovodInternalError": {"all": "as RuntimeError"},
    "LocalGradientAggregationHelper": {
        "tensorflow":
            "(backward_passes_per_step, allreduce_func, sparse_as_dense=False, "
            "average_aggregated_gradients=False, rank=None, optimizer_type=None, process_set=global_process_set, "
            "scale_local_gradients=True, name='')",
    },
    "LocalGradientAggregationHelperEager": {
        "tensorflow":
            "(backward_passes_per_step, allreduce_func, sparse_as_dense=False, "
            "average_aggregated_gradients=False, process_set=global_process_set, scale_local_gradients=True)",
    },
    "Max": {"all": "value"},
    "Min": {"all": "value"},
    "PartialDistributedGradientTape": {
        "tensorflow":
            "(gradtape, device_dense='', device_sparse='', compression=Compression.none, sparse_as_dense=False, "
            "op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, "
            "process_set=global_process_set, local_layers=None, scale_local_gradients=True)",
    },
    "PartialDistributedOptimizer": {
        "tensorflow.keras":
            "(optimizer, name=None, device_dense='', device_sparse='', compression=None, sparse_as_dense=False, "
            "gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, "
            "average_aggregated_gradients=False, num_groups=0, groups=None, process_set=global_process_set, "
            "local_layers=None, scale_local_gradients=True)",
        "keras":
            "(optimizer, name=None, device_dense='', device_sparse='', compression=None, sparse_as_dense=False, "
            "gradient_predivide_factor=1.0, op=Average, groups=None, process_set=global_process_set, "
            "local_layers=None, scale_local_gradients=True, backward_passes_per_step=1, "
            "average_aggregated_gradients=False, num_groups=0)",
    },
    "ProcessSet": {"all": "(ranks_or_comm=None, *, ranks=None)"},
    "Product": {"all": "value"},
    "Sum": {"all": "value"},
    "SyncBatchNorm": {"torch": "as _BatchNorm"},
    "SyncBatchNormalization": {"tensorflow": "(fused=False, **kwargs)"},
    "__version__": {"all": "value"},
    "add_process_set": {"all": "(process_set)"},
    "allgather": {
        "torch jax numpy": "(tensor, name=None, process_set=global_process_set)",
        "tensorflow": "(tensor, name=None, ignore_name_scope=False, process_set=global_process_set)",
        "tensorflow.keras keras": "(value, name=None)",
        "mxnet": "(tensor, name=None, priority=0, process_set=global_process_set)",
    },
    "allgather_async": {"torch numpy": "(tensor, name=None, process_set=global_process_set)"},
    "allgather_object": {
        "torch tensorflow.keras keras mxnet jax numpy": "(obj, name=None, process_set=global_process_set)",
        "tensorflow": "(obj, session=None, name=None, process_set=global_process_set)",
    },
    "allreduce": {
        "torch":
            "(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, "
            "postscale_factor=1.0, process_set=global_process_set)",
        "tensorflow":
            "(tensor, average=None, device_dense='', device_sparse='', compression=Compression.none, op=None, "
            "prescale_factor=1.0, postscale_factor=1.0, name=None, process_set=global_process_set, "
            "ignore_name_scope=False)",
        "tensorflow.keras keras":
            "(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None, "
            "compression=None)",
        "mxnet":
            "(tensor, average=None, name=None, priority=0, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set, op=None)",
        "jax":
            "(tensor, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set)",
        "numpy":
            "(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set)",
    },
    "allreduce_": {
        "torch numpy":
            "(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=None)",
        "mxnet":
            "(tensor, average=None, name=None, priority=0, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set, op=None)",
    },
    "allreduce_async": {
        "torch numpy":
            "(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set)",
    },
    "allreduce_async_": {
        "torch numpy":
            "(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=None)",
    },
    "alltoall": {
        "torch jax numpy": "(tensor, splits=None, name=None, process_set=global_process_set)",
        "tensorflow": "(tensor, splits=None, name=None, ignore_name_scope=False, process_set=global_process_set)",
        "mxnet": "(tensor, splits=None, name=None, priority=0, process_set=global_process_set)",
    },
    "alltoall_async": {"torch numpy": "(tensor, splits=None, name=None, process_set=global_process_set)"},
    "barrier": {"all": "(process_set=global_process_set)"},
    "broadcast": {
        "torch jax numpy": "(tensor, root_rank, name=None, process_set=global_process_set)",
        "tensorflow": "(tensor, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set)",
        "tensorflow.keras keras": "(value, root_rank, name=None)",
        "mxnet": "(tensor, root_rank, name=None, priority=0, process_set=global_process_set)",
    },
    "broadcast_": {
        "torch numpy": "(tensor, root_rank, name=None, process_set=global_process_set)",
        "tensorflow": "(variables, root_rank, name=None, process_set=global_process_set)",
        "mxnet": "(tensor, root_rank, name=None, priority=0, process_set=global_process_set)",
    },
    "broadcast_async": {"torch numpy": "(tensor, root_rank, name=None, process_set=global_process_set)"},
    "broadcast_async_": {"torch numpy": "(tensor, root_rank, name=None, process_set=global_process_set)"},
    "broadcast_global_variables": {"tensorflow tensorflow.keras keras": "(root_rank)"},
    "broadcast_object": {
        "torch tensorflow.keras keras mxnet jax numpy": "(obj, root_rank=0, name=None, process_set=global_process_set)",
        "tensorflow": "(obj, root_rank=0, session=None, name=None, process_set=global_process_set)",
    },
    "broadcast_object_fn": {"tensorflow": "(root_rank=0, session=None, name=None, process_set=global_process_set)"},
    "broadcast_optimizer_state": {"torch": "(optimizer, root_rank, model=None)"},
    "broadcast_parameters": {
        "torch": "(params, root_rank)",
        "mxnet": "(params, root_rank=0, prefix=None)",
        "jax": "(params, root_rank=0)",
    },
    "broadcast_variables": {"tensorflow": "(variables, root_rank, process_set=global_process_set, inplace=False)"},
    "callbacks": {"tensorflow.keras keras": "module"},
    "callbacks.BestModelCheckpoint": {
        "tensorflow.keras":
            "(monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', save_freq='epoch', "
            "filepath=None)",
        "keras":
            "(monitor='val_loss', verbose=0, mode='auto', save_freq='epoch', save_weights_only=False, "
            "filepath=None)",
    },
    "callbacks.BroadcastGlobalVariablesCallback": {
        "tensorflow.keras keras": "(root_rank, device='', local_variables=None)",
    },
    "callbacks.LearningRateScheduleCallback": {
        "tensorflow.keras keras":
            "(initial_lr=None, multiplier=None, start_epoch=0, end_epoch=None, staircase=True, "
            "momentum_correction=True, steps_per_epoch=None, lr=None)",
    },
    "callbacks.LearningRateWarmupCallback": {
        "tensorflow.keras keras":
            "(initial_lr=None, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0, "
            "lr=None)",
    },
    "callbacks.MetricAverageCallback": {"tensorflow.keras keras": "(device='')"},
    "ccl_built": {"all": "()"},
    "check_num_rank_power_of_2": {"tensorflow": "(num_rank)"},
    "compression": {"torch tensorflow mxnet jax": "module"},
    "cross_rank": {"all": "()"},
    "cross_size": {"all": "()"},
    "cuda_built": {"all": "()"},
    "ddl_built": {"all": "()"},
    "elastic": {"torch tensorflow tensorflow.keras keras jax": "module"},
    "elastic.CommitStateCallback": {"tensorflow.keras keras": "(state, batches_per_commit=1)"},
    "elastic.ElasticIterable": {"torch": "(source, seed=0, drop_last=False)"},
    "elastic.ElasticSampler": {"torch": "(dataset, shuffle=True, seed=0)"},
    "elastic.KerasState": {"tensorflow.keras keras": "(model, optimizer=None, **kwargs)"},
    "elastic.ObjectState": {
        "torch tensorflow tensorflow.keras keras jax": "(bcast_object=None, get_rank=None, **kwargs)",
    },
    "elastic.State": {"torch tensorflow tensorflow.keras keras jax": "(bcast_object=None, get_rank=None)"},
    "elastic.TensorFlowKerasState": {"tensorflow": "(model, optimizer=None, backend=None, **kwargs)"},
    "elastic.TensorFlowState": {"tensorflow": "(variables=None, session=None, **kwargs)"},
    "elastic.TorchState": {"torch": "(model=None, optimizer=None, *, snapshot=True, **kwargs)"},
    "elastic.UpdateBatchStateCallback": {"tensorflow.keras keras": "(state)"},
    "elastic.UpdateEpochStateCallback": {"tensorflow.keras keras": "(state)"},
    "elastic.get_handler_registry": {"torch": "()"},
    "elastic.leave_seconds": {"torch tensorflow tensorflow.keras keras jax": "()"},
    "elastic.run": {"torch tensorflow tensorflow.keras keras jax": "(func)"},
    "elastic.set_handler_registry": {"torch": "(registry)"},
    "functions": {"torch tensorflow mxnet": "module"},
    "global_process_set": {"all": "value"},
    "gloo_built": {"all": "()"},
    "gloo_enabled": {"all": "()"},
    "gradient_aggregation": {"tensorflow": "module"},
    "gradient_aggregation_eager": {"tensorflow": "module"},
    "gradient_tape": {"tensorflow": "module"},
    "grouped_allgather": {
        "torch numpy": "(tensors, name=None, process_set=global_process_set)",
        "tensorflow": "(tensors, name=None, ignore_name_scope=False, process_set=global_process_set)",
        "mxnet": "(tensors, name=None, priority=0, process_set=global_process_set)",
    },
    "grouped_allgather_async": {"torch": "(tensors, name=None, process_set=global_process_set)"},
    "grouped_allreduce": {
        "torch":
            "(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, "
            "postscale_factor=1.0, process_set=global_process_set)",
        "tensorflow":
            "(tensors, average=None, device_dense='', device_sparse='', compression=Compression.none, op=None, "
            "prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set, ignore_name_scope=False, "
            "name=None)",
        "mxnet":
            "(tensors, average=None, name=None, priority=0, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set, op=None)",
        "numpy":
            "(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set)",
    },
    "grouped_allreduce_": {
        "torch":
            "(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set)",
        "mxnet":
            "(tensors, average=None, name=None, priority=0, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set, op=None)",
    },
    "grouped_allreduce_async": {
        "torch numpy":
            "(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set)",
    },
    "grouped_allreduce_async_": {
        "torch":
            "(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
            "process_set=global_process_set)",
    },
    "grouped_broadcast": {
        "tensorflow": "(tensors, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set)",
    },
    "grouped_reducescatter": {
        "torch":
            "(tensors, name=None, compression=Compression.none, op=Average, process_set=global_process_set, "
            "prescale_factor=1.0, postscale_factor=1.0)",
        "tensorflow":
            "(tensors, device_dense='', compression=Compression.none, op=Average, process_set=global_process_set,"
            " prescale_factor=1.0, postscale_factor=1.0, name=None, ignore_name_scope=False)",
        "mxnet":
            "(tensors, op=Average, name=None, priority=0, process_set=global_process_set, prescale_factor=1.0, "
            "postscale_factor=1.0)",
        "numpy":
            "(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, "
            "postscale_factor=1.0)",
    },
    "grouped_reducescatter_async": {
        "torch":
            "(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, "
            "postscale_factor=1.0)",
    },
    "handle_average_backwards_compatibility": {"tensorflow": "(op, average)"},
    "horovod_errors": {"jax": "()"},
    "init": {"all": "(comm=None, process_sets=None)"},
    "is_homogeneous": {"all": "()"},
    "is_initialized": {"all": "()"},
    "join": {"all": "(device=-1)"},
    "load_model": {
        "tensorflow.keras keras":
            "(filepath, custom_optimizers=None, custom_objects=None, compression=None, legacy_opts=False)",
    },
    "local_rank": {"all": "()"},
    "local_rank_op": {"tensorflow": "(name=None)"},
    "local_size": {"all": "()"},
    "local_size_op": {"tensorflow": "(name=None)"},
    "metrics": {"all": "(scope='rank')"},
    "mpi_built": {"all": "()"},
    "mpi_enabled": {"all": "()"},
    "mpi_ops": {"torch tensorflow mxnet": "module"},
    "mpi_threads_supported": {"all": "()"},
    "nccl_built": {"all": "()"},
    "optimizer": {"torch tensorflow": "module"},
    "poll": {"torch numpy": "(handle)"},
    "process_set_included_op": {"tensorflow": "(process_set_id=0, name=None)"},
    "rank": {"all": "()"},
    "rank_op": {"tensorflow": "(name=None)"},
    "recv": {"torch": "(tensor, rank=None, tag=0, process_set=global_process_set, timeout=None)"},
    "recv_async": {"torch": "(tensor, rank=None, tag=0, process_set=global_process_set, timeout=None)"},
    "reducescatter": {
        "torch":
            "(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set, "
            "prescale_factor=1.0, postscale_factor=1.0)",
        "tensorflow":
            "(tensor, device_dense='', compression=Compression.none, op=Average, name=None, "
            "process_set=global_process_set, ignore_name_scope=False, prescale_factor=1.0, postscale_factor=1.0)",
        "tensorflow.keras keras": "(value, name=None, op=Average)",
        "mxnet":
            "(tensor, op=Average, name=None, priority=0, process_set=global_process_set, prescale_factor=1.0, "
            "postscale_factor=1.0)",
        "jax numpy":
            "(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, "
            "postscale_factor=1.0)",
    },
    "reducescatter_async": {
        "torch numpy":
            "(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, "
            "postscale_factor=1.0)",
    },
    "refs_to_vars": {"tensorflow": "(refs)"},
    "remove_process_set": {"all": "(process_set)"},
    "rocm_built": {"all": "()"},
    "send": {"torch": "(tensor, rank, tag=0, process_set=global_process_set, timeout=None)"},
    "send_async": {"torch": "(tensor, rank, tag=0, process_set=global_process_set, timeout=None)"},
    "shutdown": {"all": "()"},
    "size": {"all": "()"},
    "size_op": {"tensorflow": "(process_set_id=0, name=None)"},
    "sparse_allreduce_async": {"torch": "(tensor, name, op, process_set=global_process_set)"},
    "split_list": {"tensorflow": "(l, n)"},
    "start_timeline": {"all": "(file_path, mark_cycles=False)"},
    "stop_timeline": {"all": "()"},
    "sync_batch_norm": {"torch tensorflow": "module"},
    "synchronize": {"torch numpy": "(handle)"},
    "total": {"all": "(n, name=None, process_set=global_process_set)"},
    "util": {"tensorflow": "module"},
    "vars_to_refs": {"tensorflow": "(vars)"},
}

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
