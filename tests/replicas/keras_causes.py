#!/usr/bin/env python3
"""Planted causes in Keras: horovodrun -np 2 python3 tests/replicas/keras_causes.py [--only REGEX].

KERAS_BACKEND chooses the backend of Keras 3."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import causes
import keras
import numpy
from causes import fails, silent, warns

import horovod.keras as hvd
import horovod.numpy

WEIGHTS = "other weights.*Broadcast"
ON_TENSORFLOW, ON_JAX = (keras.backend.backend() == backend for backend in ("tensorflow", "jax"))
# In graphs of TensorFlow the ranks match gradients by names that contain the layers' numbers, and on PyTorch by a name
# that contains the optimizer's class.
with_other_names = fails("alone of ranks 0 and 1 reduces .*dense") if ON_TENSORFLOW else silent
with_other_classes = warns("other options: the class is .* on rank") if ON_TENSORFLOW else lambda plant: plant
with_frozen = (lambda plant: plant) if ON_JAX else warns(WEIGHTS)


def warns_of_option(pattern):
    """On JAX the ranks compare no options, and later find other weights."""
    return warns(WEIGHTS if ON_JAX else f"other options: {pattern}")


def network(seed=0, layers=()):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Dense(5, activation="tanh"), *layers, keras.layers.Dense(2)])
    model.build((None, 6))
    return model


def sgd(**options):
    return keras.optimizers.SGD(**{"learning_rate": 0.1, "momentum": 0.9, **options})


class After(keras.callbacks.Callback):
    """Calls `change(model)` on the last rank after a batch."""

    def __init__(self, change, number):
        super().__init__()
        self.change, self.number = change, number

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.number and hvd.rank() == hvd.size() - 1:
            self.change(self.model)


def fit(model, optimizer, rank, steps=6, callbacks=(), loss="mse", **keywords):
    model.compile(hvd.DistributedOptimizer(optimizer, **keywords), loss)
    random = numpy.random.RandomState(rank)
    x, y = random.randn(4 * steps, 6).astype("float32"), random.randn(4 * steps, 2).astype("float32")
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=list(callbacks))
    model.get_weights()  # JAX raises a program's error here
    return model


def train_with(rank, make=sgd, change=None, after=2, seed=0, broadcast=True, layers=(), **keywords):
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)] if broadcast else []
    callbacks += [After(change, after)] if change else []
    return fit(network(seed, layers), make(), rank, callbacks=callbacks, **keywords)


def set_first(model, change):
    model.set_weights([change(value) if index == 0 else value for index, value in enumerate(model.get_weights())])


# Warnings.


@warns(f"DistributedOptimizer, after reduction 2: .*{WEIGHTS}")
def seeds_and_no_broadcast(rank):
    train_with(rank, seed=rank, broadcast=False)


@warns(WEIGHTS)
def a_broadcast_and_then_another_model(rank):
    """The callback broadcasts one model, and the program trains its copy."""
    model = train_with(rank, seed=rank)
    other = network(5 + rank)
    assert model.count_params() == other.count_params()
    fit(other, sgd(), rank)


@warns(WEIGHTS)
def weights_that_rank_0_loads(rank):
    model = train_with(rank)
    other = network(7).get_weights()
    if rank == 0:
        model.set_weights(other)
    fit(model, sgd(), rank)


@warns("the norm of .*kernel.* is .* on rank")
def weights_changed_by_a_callback(rank):
    train_with(rank, change=lambda model: set_first(model, lambda value: 1.01 * value))


@warns(WEIGHTS)
def rows_permuted(rank):
    train_with(rank, change=lambda model: set_first(model, lambda value: value[::-1]))


@with_other_classes
def another_class(rank):
    train_with(rank, make=lambda: sgd() if rank else keras.optimizers.Adagrad(0.1), broadcast=False)


@warns_of_option("learning_rate is 0.1 on rank.* 0.* and 0.2 on rank")
def another_learning_rate(rank):
    train_with(rank, make=lambda: sgd(learning_rate=0.2 if rank == hvd.size() - 1 else 0.1), broadcast=False)


@warns_of_option("momentum")
def another_momentum(rank):
    train_with(rank, make=lambda: sgd(momentum=0.5 if rank else 0.9))


@warns_of_option("beta_2")
def another_beta(rank):
    train_with(rank, make=lambda: keras.optimizers.Adam(0.01, beta_2=0.9 if rank else 0.99))


@warns_of_option("weight_decay")
def another_weight_decay(rank):
    train_with(rank, make=lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1 * (1 + rank)))


@warns_of_option("learning_rate")
def a_schedule_of_one_rank(rank):
    def change(model):
        model.optimizer.learning_rate = 0.05

    train_with(rank, change=change)


@warns_of_option("decay_steps of learning_rate is 2 on rank.* 0.* and 3 on rank")
def a_schedule_with_other_steps(rank):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2 + (rank == hvd.size() - 1), 0.5)
    train_with(rank, make=lambda: sgd(learning_rate=schedule))


@with_frozen
def a_frozen_layer_that_differs(rank):
    model = network(rank)
    for mine, other in zip(model.layers[1].weights, network().layers[1].weights):
        mine.assign(other)
    model.layers[0].trainable = False
    fit(model, sgd(), rank)


@warns(WEIGHTS)
def two_passes_and_no_broadcast(rank):
    model = network(rank)
    fit(model, sgd(), rank, steps=12, backward_passes_per_step=2)


# Trainings without a difference: no warning.


@silent
def equal_replicas(rank):
    train_with(rank, seed=rank)


@silent
def equal_seeds_and_no_broadcast(rank):
    train_with(rank, broadcast=False)


@silent
def a_schedule(rank):
    train_with(rank, make=lambda: sgd(learning_rate=keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)))


@silent
def optimizers_with_other_names(rank):
    train_with(rank, make=lambda: sgd(name=f"of_rank_{rank}"))


@silent
def statistics_of_batches(rank):
    train_with(rank, layers=[keras.layers.BatchNormalization()])


@silent
def dropout(rank):
    train_with(rank, seed=rank, layers=[keras.layers.Dropout(0.5)])


@silent
def a_frozen_layer(rank):
    model = network()
    model.layers[0].trainable = False
    fit(model, sgd(), rank)


@silent
def two_passes(rank):
    model = network()
    fit(model, keras.optimizers.Adam(0.01), rank, steps=12, backward_passes_per_step=2)


@silent
def a_loss_scale(rank):
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        train_with(rank, seed=rank)
    finally:
        keras.mixed_precision.set_global_policy("float32")


@silent
def two_models(rank):
    models = [network(), network(1)]
    for _ in range(2):
        for model in models:
            fit(model, sgd(), rank)


@silent
def training_that_continues(rank):
    model = train_with(rank, seed=rank)
    random = numpy.random.RandomState(rank)
    x, y = random.randn(24, 6).astype("float32"), random.randn(24, 2).astype("float32")
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)


# Errors.


@fails("group sizes" if ON_JAX else "(?i)of shape")
def frozen_on_one_rank(rank):
    model = network()
    model.layers[0].trainable = rank == 0
    fit(model, sgd(), rank)


@with_other_names
def one_more_model_on_one_rank(rank):
    if rank == 0:
        network()
    train_with(rank, seed=rank)


@fails("(?i)shape")
def another_shape(rank):
    fit(network(layers=[keras.layers.Dense(3 + rank)]), sgd(), rank)


if __name__ == "__main__":
    sys.exit(causes.main(horovod.numpy))
