#!/usr/bin/python3 -B
"""A rank of an elastic job that trains with a framework until a file appears, on the same batches as one process.

usage: churn_training.py torch|tensorflow|keras|jax FILE

Prints "generation G: rank R/S on HOST at STEP" when a generation begins, and "ends after STEP steps with WEIGHTS".
"""

import os
import socket
import sys
import time

import numpy

SHAPE = (16, 5)
ROWS = 60  # rows of a batch: 1 to 6 ranks have equal shares
RATE, MOMENTUM = 0.05, 0.5


def batch(step):
    """Returns inputs, and for each input 4 values to predict and a factor of the last output."""
    numbers = numpy.random.RandomState(step % 50)
    inputs = numbers.uniform(-1, 1, (ROWS, SHAPE[0]))
    values = inputs @ numpy.random.RandomState(1).uniform(-1, 1, (SHAPE[0], 4))
    return inputs, numpy.concatenate([values, numpy.full((ROWS, 1), step % 7 + 1.0)], 1)


def loss_of(mean, wanted, outputs):
    """The last column has a constant slope: its weights are sums over all steps and reveal a missing step."""
    return mean((outputs[:, :4] - wanted[:, :4]) ** 2) - mean(wanted[:, 4] * outputs[:, 4])


def weights_of_one_process(steps):
    weights, velocity = numpy.zeros(SHAPE), numpy.zeros(SHAPE)
    for step in range(steps):
        inputs, wanted = batch(step)
        errors = (inputs @ weights - wanted) / (2 * ROWS)
        errors[:, 4] = -wanted[:, 4] / ROWS
        velocity = MOMENTUM * velocity + inputs.T @ errors
        weights = weights - RATE * velocity
    return weights


def with_torch():
    import torch

    import horovod.torch as hvd

    hvd.init()
    layer = torch.nn.Linear(*SHAPE, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(layer.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=RATE, momentum=MOMENTUM), named_parameters=layer.named_parameters()
    )

    def train(inputs, wanted):
        optimizer.zero_grad()
        loss_of(torch.mean, torch.from_numpy(wanted), layer(torch.from_numpy(inputs))).backward()
        optimizer.step()

    return hvd, hvd.elastic.TorchState(layer, optimizer, step=0), train, lambda: layer.weight.detach().numpy().T


def with_tensorflow():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    model, optimizer = keras_model(tf)

    @tf.function
    def compiled(inputs, wanted):
        with tf.GradientTape() as tape:
            loss = loss_of(tf.reduce_mean, wanted, model(inputs))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    def train(inputs, wanted):  # TensorFlow traces again for each number of rows
        compiled(tf.constant(inputs), tf.constant(wanted))

    state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)
    return hvd, state, train, lambda: model.get_weights()[0]


def with_keras():
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    model, optimizer = keras_model(tf)
    model.compile(hvd.DistributedOptimizer(optimizer), lambda wanted, outputs: loss_of(tf.reduce_mean, wanted, outputs))
    return hvd, hvd.elastic.KerasState(model, step=0), model.train_on_batch, lambda: model.get_weights()[0]


def keras_model(tf):
    tf.keras.backend.set_floatx("float64")
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(SHAPE[1], use_bias=False, kernel_initializer="zeros", input_shape=(SHAPE[0],))]
    )
    return model, tf.keras.optimizers.SGD(RATE, momentum=MOMENTUM)


def with_jax():
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    import horovod.jax as hvd

    hvd.init()

    @jax.jit
    def compiled(weights, velocity, inputs, wanted):
        gradient = jax.grad(lambda weights: loss_of(jnp.mean, wanted, inputs @ weights))(weights)
        velocity = MOMENTUM * velocity + hvd.allreduce(gradient, name="gradient")
        return weights - RATE * velocity, velocity

    state = hvd.elastic.ObjectState(weights=jnp.zeros(SHAPE), velocity=jnp.zeros(SHAPE), step=0)

    def train(inputs, wanted):
        state.weights, state.velocity = compiled(state.weights, state.velocity, inputs, wanted)

    return hvd, state, train, lambda: numpy.asarray(state.weights)


def main(framework, stop):
    hvd, state, train, weights = globals()[f"with_{framework}"]()
    import horovod.numpy

    @hvd.elastic.run
    def loop(state):
        print(
            f"generation {os.environ['HOROVOD_GENERATION']}: rank {hvd.rank()}/{hvd.size()} "
            f"on {socket.gethostname()} at {state.step}",
            flush=True,
        )
        while True:
            is_stopped = numpy.array([float(os.path.exists(stop))])
            if horovod.numpy.allreduce(is_stopped, op=horovod.numpy.Max, name="stop")[0]:
                return
            share = ROWS // hvd.size()
            mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
            train(*(rows[mine] for rows in batch(state.step)))
            state.step += 1
            time.sleep(0.05)
            state.commit()

    loop(state)
    bits = numpy.ascontiguousarray(weights(), dtype=numpy.float64).tobytes().hex()
    print(f"ends after {state.step} steps with {bits}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
