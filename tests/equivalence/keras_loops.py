"""Cases of Keras on TensorFlow: loops with a tape, models with their own train_step, optimizers of Keras 2."""

import functools

import numpy
import tensorflow as tf
from keras_cases import KERAS_3, case, compiled, distribute, fit, keras, network, sgd, weights_of

import horovod.tensorflow.keras as hvd
from horovod.tensorflow import DistributedGradientTape


def tape_of(training, tape):
    return DistributedGradientTape(tape) if training.is_distributed else tape


def batches(training, steps=3):
    return [tuple(map(tf.constant, training.batch(step))) for step in range(steps)]


def broadcast(training, model):
    if training.is_distributed:
        hvd.broadcast_model(model) if hasattr(hvd, "broadcast_model") else [
            variable.assign(hvd.broadcast(variable, 0)) for variable in model.weights
        ]
    return model


@case(layers="1_KiB 8_MiB")
def loop_with_a_tape(training):
    model, optimizer = broadcast(training, network(training)), sgd()

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        gradients = tape_of(training, tape).gradient(loss, model.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    optimizer.build(model.trainable_variables)
    for x, y in batches(training):
        step(x, y)
    return weights_of(model)


@case()
def a_tape_and_an_optimizer_of_ours(training):
    """The gradients are reduced once, although both the tape and the optimizer could reduce them."""
    model, optimizer = broadcast(training, network(training)), distribute(training, sgd())
    for x, y in batches(training):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        gradients = tape_of(training, tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return weights_of(model)


class OwnStep(keras.Model):
    """A model with a custom train_step, which clips."""

    def __init__(self, layers, wrap):
        super().__init__()
        self.stack, self.wrap = layers, wrap

    def call(self, x):
        for layer in self.stack:
            x = layer(x)
        return x

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = self.wrap(tape).gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def own_step(training, wrap, optimizer):
    model = OwnStep(network(training).layers, wrap)
    model(tf.zeros((1, training.inputs)))
    return weights_of(fit(training, compiled(training, model, optimizer)))


@case()
def own_train_step_with_our_tape(training):
    return own_step(training, lambda tape: tape_of(training, tape), sgd())


@case(warns="" if KERAS_3 else "apply_gradients")
def own_train_step(training):
    """Keras 3 reduces when it applies gradients; Keras 2 warns that nothing reduces."""
    return own_step(training, lambda tape: tape, distribute(training, sgd()))


def alternating(training, make, traced=False):
    """Passes whose losses have different variables: each variable gets the sum of its own gradients."""
    values = training.initial()["w1"]
    pair = [(keras if KERAS_3 else tf).Variable(value) for value in (values, -2 * values)]
    if training.is_distributed:
        for variable in pair:
            variable.assign(hvd.broadcast(tf.convert_to_tensor(variable), 0))
    optimizer = distribute(training, make(), backward_passes_per_step=2)

    def step(x, chosen):
        def loss():
            return tf.reduce_mean(tf.square(tf.matmul(x, tf.convert_to_tensor(pair[chosen])) - 1.0))

        if not KERAS_3:
            return optimizer.minimize(loss, pair)
        with tf.GradientTape() as tape:  # Keras 3 adds up gradients of one set of variables
            value = loss()
        gradients = tape.gradient(value, [each.value for each in pair], unconnected_gradients="zero")
        optimizer.apply_gradients(zip(gradients, pair))

    steps = [functools.partial(step, chosen=chosen) for chosen in (0, 1)]
    run = [tf.function(each) for each in steps] if traced else steps
    if hasattr(optimizer, "build"):
        optimizer.build(pair)
    for number in range(4):
        run[number % 2](tf.constant(training.batch(number)[0]))
    return {"a": numpy.array(pair[0]), "b": numpy.array(pair[1])}


def plain_sgd():
    return keras.optimizers.SGD(0.5)


@case()
def alternating_losses(training):
    return alternating(training, plain_sgd)


@case(not KERAS_3)
def alternating_losses_in_functions(training):
    return alternating(training, plain_sgd, traced=True)


# Optimizers that Keras 2 calls legacy.


@case(not KERAS_3)
def alternating_losses_with_a_legacy_optimizer(training):
    return alternating(training, lambda: keras.optimizers.legacy.SGD(0.5))


@case(not KERAS_3)
def fit_with_a_legacy_optimizer(training):
    optimizer = keras.optimizers.legacy.SGD(0.1, momentum=0.9)
    return weights_of(fit(training, compiled(training, network(training), distribute(training, optimizer))))


@case(not KERAS_3)
def accumulation_with_a_legacy_optimizer(training):
    optimizer = keras.optimizers.legacy.SGD(0.1, momentum=0.9)
    keywords = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    return weights_of(
        fit(training, compiled(training, network(training), distribute(training, optimizer, **keywords)), passes=2)
    )
