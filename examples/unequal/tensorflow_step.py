"""A step of TensorFlow in which each rank has another number of items (docs/unequal-work.md)."""

import tensorflow as tf

import horovod.tensorflow as hvd


def make_step(model, optimizer):
    @tf.function(reduce_retracing=True)
    def step(x, y, factor):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x) - y)) * factor
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    return step


def train(model, optimizer, batches):
    step = make_step(model, optimizer)
    for x, y in batches:
        total = hvd.total(tf.size(y))  # outside of the tf.function, which would call it only in its trace
        step(x, y, tf.constant(hvd.size() / (total or 1), y.dtype))
