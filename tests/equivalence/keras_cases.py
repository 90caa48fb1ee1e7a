#!/usr/bin/env python3
"""Trainings with Keras 2, and Keras 3 on TensorFlow, PyTorch or JAX:
KERAS_BACKEND=torch horovodrun -np 2 python3 tests/equivalence/keras_cases.py [--only REGEX]."""

import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import cases
import keras
import keras_fit
import numpy

import horovod.keras as hvd

TABLE = cases.Table()
KERAS_3 = int(keras.__version__.split(".")[0]) >= 3
if not KERAS_3:  # before 2.13, the package has the optimizers of an older Keras
    from tensorflow import keras
BACKEND = keras.backend.backend()
OVERFLOWS = [(1, 0), (3, -1)]
HALF = 2e-3  # rounding of activations and gradients in float16
DOUBLE = 1e-7 if BACKEND == "torch" else None  # Keras on PyTorch reduces losses in float32


def case(only=True, **options):
    """Adds a training to the table if `only` is true."""
    return TABLE.case(layers=options.pop("layers", "1_KiB"), **options) if only else (lambda train: train)


def network(training):
    model = keras.Sequential(
        [
            keras.Input((training.inputs,), dtype=training.dtype),
            keras.layers.Dense(cases.WIDTH, "tanh"),
            keras.layers.Dense(2),
        ]
    )
    model.set_weights(list(training.initial().values()))
    return model


def sgd(rate=0.1, **keywords):
    return keras.optimizers.SGD(rate, momentum=0.9, **keywords)


def distribute(training, optimizer, **keywords):
    return hvd.DistributedOptimizer(optimizer, **keywords) if training.is_distributed else optimizer


def compiled(training, model, optimizer, **keywords):
    """Compiles a model for this run, without XLA, because XLA rounds differently from TensorFlow."""
    if BACKEND == "tensorflow":
        keywords["jit_compile"] = False
    if training.is_distributed:  # the callback broadcasts after the first batch
        model.set_weights(hvd.broadcast_object(model.get_weights(), root_rank=0))
    model.compile(optimizer, **{"loss": "mse", **keywords})
    return model


def fit(training, model, steps=3, first=0, passes=1, callbacks=(), **options):
    """Trains by Model.fit. `passes`: batches per step, which one process gets as one batch."""
    rows = [training.batch(step, **options) for step in range(first, first + steps * passes)]
    x, y = (numpy.concatenate(each) for each in zip(*rows))
    callbacks = list(callbacks)
    if training.is_distributed:
        callbacks.insert(0, hvd.callbacks.BroadcastGlobalVariablesCallback(0))
        passes = 1
    model.fit(x, y, batch_size=passes * len(rows[0][0]), shuffle=False, verbose=0, callbacks=callbacks)
    return model


def numbers(tensor):
    return numpy.array(keras.ops.convert_to_numpy(tensor) if KERAS_3 else tensor.numpy())


def weights_of(model, **others):
    return {**{str(index): value.copy() for index, value in enumerate(model.get_weights())}, **others}


def updates_of(model):
    optimizer = model.optimizer
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    return int(numbers(optimizer.iterations))


@case(layers="1_KiB 8_MiB")
def fit_of_a_model(training):
    model = fit(training, compiled(training, network(training), distribute(training, sgd())))
    return weights_of(model, updates=updates_of(model))


@case(double=True, tolerance=DOUBLE)
def fit_with_adam(training):
    return weights_of(
        fit(training, compiled(training, network(training), distribute(training, keras.optimizers.Adam(0.01))))
    )


@case(double=True, tolerance=DOUBLE)
def fit_with_weights_of_samples(training):
    """Each rank has other weights; the sum of a batch's weights is 0 first on rank 0, and then on all ranks."""
    rows = [training.batch(step) for step in range(4)]
    x, y = (numpy.concatenate(each) for each in zip(*rows))
    weights = numpy.concatenate(
        [
            [float((row + step) % 3 + rank) * (step + rank > 0 and step < 3) for row in range(cases.ROWS)]
            for step in range(4)
            for rank in training.ranks
        ]
    )
    size = len(rows[0][0])
    if training.is_distributed:
        weights = keras_fit.shares(weights, size)
    else:
        sums = weights.reshape(4, size).sum(1).repeat(size)
        weights = numpy.divide(weights, sums, out=numpy.zeros_like(weights), where=sums > 0)
    loss = keras.losses.MeanSquaredError(reduction="sum")
    model = compiled(training, network(training), distribute(training, sgd()), loss=loss)
    model.fit(x, y, sample_weight=weights, batch_size=size, shuffle=False, verbose=0)
    return weights_of(model)


@case()
def fit_with_accumulation(training):
    keywords = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    return weights_of(
        fit(training, compiled(training, network(training), distribute(training, sgd(), **keywords)), passes=2)
    )


@case(tolerance=cases.FLOAT16)
def fit_with_compression(training):
    keywords = {"compression": hvd.Compression.fp16}
    return weights_of(fit(training, compiled(training, network(training), distribute(training, sgd(), **keywords))))


def clipping(training, **keywords):
    return weights_of(fit(training, compiled(training, network(training), distribute(training, sgd(**keywords)))))


@case()
def fit_with_clipnorm(training):
    return clipping(training, clipnorm=0.1)


@case()
def fit_with_global_clipnorm(training):
    return clipping(training, global_clipnorm=0.1)


@case()
def fit_with_clipvalue(training):
    return clipping(training, clipvalue=0.02)


@case()
def fit_with_a_schedule(training):
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    return weights_of(fit(training, compiled(training, network(training), distribute(training, sgd(rate)))))


@case()
def fit_with_a_warm_up(training):
    """The rate rises from the rate for one rank to the rate for all ranks."""
    largest, epochs = 0.05 * training.size, 3
    model = compiled(training, network(training), distribute(training, sgd(largest)))
    for epoch in range(epochs):
        x, y = training.batch(epoch)
        callbacks = []
        if training.is_distributed:
            callbacks = [hvd.callbacks.LearningRateWarmupCallback(largest, epochs, momentum_correction=False)]
        else:
            model.optimizer.learning_rate = 0.05 * (1 + (epoch + 1) * (training.size - 1) / epochs)
        model.fit(x, y, batch_size=len(x), verbose=0, callbacks=callbacks, epochs=epoch + 1, initial_epoch=epoch)
    return weights_of(model)


@case()
def averages_of_weights(training):
    optimizer = sgd(use_ema=True, ema_momentum=0.9)
    model = fit(training, compiled(training, network(training), distribute(training, optimizer)))
    averages = model.optimizer._model_variables_moving_average
    return weights_of(model, **{f"average.{index}": numbers(each) for index, each in enumerate(averages)})


@case()
def a_layer_frozen_and_unfrozen(training):
    model = network(training)
    model.layers[0].trainable = False
    fit(training, compiled(training, model, distribute(training, sgd())), 2)
    model.layers[0].trainable = True
    return weights_of(fit(training, compiled(training, model, distribute(training, sgd())), 2, first=2))


def embedding(training, passes=1, **keywords):
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(training.inputs, cases.WIDTH),
            keras.layers.GlobalAveragePooling1D(),
        ]
    )
    model.set_weights([training.initial()["w1"]])
    rows = 4 * len(training.ranks)
    model = compiled(training, model, distribute(training, keras.optimizers.SGD(0.5), **keywords))
    x = numpy.concatenate([training.words(step, 24).reshape(rows, 6) for step in range(4)]).astype("int32")
    y = numpy.ones((len(x), cases.WIDTH), "float32")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)] if training.is_distributed else []
    model.fit(
        x,
        y,
        batch_size=rows if training.is_distributed else rows * passes,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    return weights_of(model)


@case(layers="1_KiB 8_MiB")
def sparse_gradients(training):
    return embedding(training)


@case()
def sparse_gradients_sent_as_dense(training):
    return embedding(training, sparse_as_dense=True)


@case()
def sparse_gradients_and_accumulation(training):
    return embedding(training, 2, backward_passes_per_step=2, average_aggregated_gradients=True)


@case()
def sparse_gradients_sent_as_dense_and_accumulation(training):
    return embedding(training, 2, backward_passes_per_step=2, average_aggregated_gradients=True, sparse_as_dense=True)


# Mixed precision: all ranks skip a step if one rank overflows.


def mixed_network(training, policy):
    keras.mixed_precision.set_global_policy(policy)
    try:
        return network(training)
    finally:
        keras.mixed_precision.set_global_policy(training.dtype)


def mixed(training, optimizer, steps=5):
    model = compiled(training, mixed_network(training, "mixed_float16"), optimizer, loss_weights=[0.1])
    fit(training, model, steps, overflows=OVERFLOWS)
    optimizer = model.optimizer
    scale = getattr(optimizer, "dynamic_scale", None) if KERAS_3 else optimizer.loss_scale
    return weights_of(model, updates=updates_of(model), scale=numbers(scale))


@case(tolerance=HALF)
def mixed_float16(training):
    """The usual script: compile wraps the distributed optimizer in a LossScaleOptimizer."""
    return mixed(training, distribute(training, sgd(1.0)))


def scaled(optimizer):
    if KERAS_3:
        return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=128.0)
    return keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=128.0)


@case(tolerance=HALF)
def mixed_float16_scaled_around_ours(training):
    return mixed(training, scaled(distribute(training, sgd(1.0))))


@case(tolerance=HALF)
def mixed_float16_scaled_inside_ours(training):
    return mixed(training, distribute(training, scaled(sgd(1.0))))


@case(KERAS_3, tolerance=HALF)
def mixed_float16_and_accumulation(training):
    """All ranks skip a pass that overflows on one rank, as Keras skips passes that it accumulates itself."""
    if not training.is_distributed:
        return mixed(training, sgd(1.0, gradient_accumulation_steps=2), 8)
    keywords = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    return mixed(training, distribute(training, sgd(1.0), **keywords), 8)


@case(tolerance=cases.BFLOAT16)
def mixed_bfloat16(training):
    return weights_of(
        fit(training, compiled(training, mixed_network(training, "mixed_bfloat16"), distribute(training, sgd())))
    )


# Files.


def resume(training, make, suffix):
    """Only rank 0 saves, and all ranks load."""
    model = fit(training, compiled(training, network(training), distribute(training, make())), 2)
    folder = tempfile.mkdtemp() if 0 in training.ranks else None
    if training.is_distributed:
        folder = hvd.broadcast_object(folder, root_rank=0)
    path = os.path.join(folder, "model" + suffix)
    if 0 in training.ranks:
        model.save(path)
    if training.is_distributed:
        hvd.barrier()
        model = hvd.load_model(path)
        hvd.barrier()
    else:
        model = keras.models.load_model(path)
    if 0 in training.ranks:
        os.remove(path)
        os.rmdir(folder)
    return weights_of(fit(training, model, 2, first=2))


@case()
def saved_and_loaded(training):
    return resume(training, sgd, ".keras" if KERAS_3 else ".h5")


@case(double=True, tolerance=DOUBLE)
def saved_and_loaded_with_adamw(training):
    return resume(training, lambda: keras.optimizers.AdamW(0.01), ".keras" if KERAS_3 else ".h5")


class KerasTraining(cases.Training):
    """Gives layers the same names on each rank, although rank 0 makes more models."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        keras.backend.clear_session()
        keras.backend.set_floatx(self.dtype)
        keras.mixed_precision.set_global_policy(self.dtype)  # Keras gives losses this type
        if BACKEND == "jax":
            import jax

            jax.config.update("jax_enable_x64", self.double)


if __name__ == "__main__":
    sys.exit(cases.main(hvd, TABLE, KerasTraining))
