#!/usr/bin/python3 -B
"""A rank of an elastic job that begins with one rank, compiles there, and continues with two: elastic_growth.py MODE

MODE: "torch-adasum", "tensorflow-adasum": an optimizer made at size 1; "tensorflow-norm": a synchronised batch
normalization in a tf.function; "jax": allgather and its gradient, and reducescatter, in jax.jit. Prints "PROCESS begins
SIZE" in each generation, and "PROCESS ends with NUMBERS" of 12 steps at size 2.
"""

import os
import sys

import numpy

process = os.environ["HOROVOD_ELASTIC_PROCESS"]


def with_torch_adasum():
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum, named_parameters=model.named_parameters()
    )

    def step():
        optimizer.zero_grad()
        model(torch.full((2, 3), hvd.rank() + 1.0)).square().mean().backward()
        optimizer.step()

    return hvd, hvd.elastic.TorchState(model, optimizer, step=0), step, lambda: model.weight.detach().numpy()


def with_tensorflow_adasum():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    variable = tf.Variable(tf.ones(3))
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), op=hvd.Adasum)

    @tf.function
    def compiled(rank):
        optimizer.apply_gradients([(variable * (rank + 1), variable)])

    state = hvd.elastic.TensorFlowState([variable], step=0)
    return hvd, state, lambda: compiled(tf.constant(float(hvd.rank()))), variable.numpy


def with_tensorflow_norm():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    layer = hvd.SyncBatchNormalization(momentum=0.5)
    layer.build((None, 2))

    @tf.function
    def compiled(rows):
        return layer(rows, training=True)

    def step():
        compiled(tf.fill((2, 2), float(hvd.rank())) + tf.constant([[0.0, 1.0], [1.0, 0.0]]))

    return (hvd, hvd.elastic.TensorFlowState(layer.variables, step=0), step, lambda: layer.moving_variance.numpy())


def with_jax():
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    hvd.init()

    @jax.jit
    def gathered(rows):
        return hvd.allgather(rows, name="rows").sum()

    @jax.jit
    def scattered(rows):
        return hvd.reducescatter(rows, name="shares", op=hvd.Sum)

    weights = jnp.arange(4.0)
    state = hvd.elastic.ObjectState(numbers=[], step=0)

    def step():
        total, slope = jax.value_and_grad(lambda rows: gathered(rows) * (1.0 + hvd.rank()))(weights)
        state.numbers = [float(total), *map(float, slope), *map(float, scattered(weights))]

    return hvd, state, step, lambda: numpy.array(state.numbers)


def main(mode):
    hvd, state, step, result = globals()["with_" + mode.replace("-", "_")]()
    import horovod.numpy

    @hvd.elastic.run
    def train(state):
        print(process, "begins", hvd.size(), flush=True)
        while state.step < 12:
            step()
            if hvd.size() == 2:
                state.step += 1
            horovod.numpy.allreduce(numpy.ones(1), name="together")
            state.commit()

    train(state)
    print(f"{process} ends with {' '.join(f'{number:.5f}' for number in numpy.ravel(result()))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
