#!/usr/bin/env python3
"""Planted causes in TensorFlow: horovodrun -np 2 python3 tests/replicas/tensorflow_causes.py [--only REGEX]."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import causes
import tensorflow as tf
from causes import fails, silent, warns

import horovod.tensorflow as hvd

tf.get_logger().setLevel("ERROR")
WEIGHTS = "other weights.*broadcast_variables"
v1 = tf.compat.v1


class Network:
    """Variables of a network with one hidden layer, and its output for inputs."""

    def __init__(self, seed=0, prefix=""):
        random = tf.random.Generator.from_seed(seed)
        self.variables = [
            tf.Variable(random.normal(shape), name=f"{prefix}{name}")
            for name, shape in [("w1", (6, 5)), ("b1", (5,)), ("w2", (5, 2)), ("b2", (2,))]
        ]

    def loss(self, x, y):
        w1, b1, w2, b2 = self.variables
        return tf.reduce_mean(tf.square(tf.tanh(x @ w1 + b1) @ w2 + b2 - y))


class Momentum:
    """A hand-written optimizer, for loops without a framework's optimizer."""

    def __init__(self, variables, rate=0.1):
        self.rate = rate
        self.velocity = [tf.Variable(tf.zeros_like(each)) for each in variables]

    def apply(self, gradients, variables):
        for variable, velocity, gradient in zip(variables, self.velocity, gradients):
            if gradient is None:
                continue
            velocity.assign(0.9 * velocity + gradient)
            variable.assign_sub(self.rate * velocity)


def batch(rank, step):
    random = tf.random.Generator.from_seed(10 * step + rank + 100)
    return random.normal((4, 6)), random.normal((4, 2))


def gradients_of(model, x, y, variables=None, **keywords):
    with tf.GradientTape() as tape:
        loss = model.loss(x, y)
    return hvd.DistributedGradientTape(tape, **keywords).gradient(loss, variables or model.variables)


def train(model, rank, traced=True, steps=6, each=lambda step: None, rate=0.1, variables=None, **keywords):
    """`each` runs after each step."""
    chosen = variables or model.variables
    optimizer = Momentum(chosen, rate)

    def one_step(x, y):
        optimizer.apply(gradients_of(model, x, y, chosen, **keywords), chosen)

    run = tf.function(one_step) if traced else one_step
    for step in range(steps):
        run(*batch(rank, step))
        each(step)


def train_with(rank, change=lambda model: None, after=2, seed=0, broadcast=True, **keywords):
    """Calls `change(model)` on the last rank after a step."""
    model = Network(seed)
    if broadcast:
        hvd.broadcast_variables(model.variables, root_rank=0)
    train(model, rank, each=lambda step: change(model) if (step, rank) == (after, hvd.size() - 1) else None, **keywords)


# Warnings.


@warns(f"DistributedGradientTape, after reduction 2: .*{WEIGHTS}")
def seeds_and_no_broadcast(rank):
    train_with(rank, seed=rank, broadcast=False)


@warns(WEIGHTS)
def seeds_and_no_broadcast_in_eager_execution(rank):
    train_with(rank, seed=rank, broadcast=False, traced=False)


@warns(f"after reduction 1: .*{WEIGHTS}")
def a_broadcast_before_the_last_variable(rank):
    model = Network(rank)
    hvd.broadcast_variables(model.variables[:-1], root_rank=0)
    train(model, rank)


@warns(f"after reduction 1: .*{WEIGHTS}")
def weights_that_rank_0_loads(rank):
    model = Network()
    hvd.broadcast_variables(model.variables, root_rank=0)
    if rank == 0:
        for mine, other in zip(model.variables, Network(7).variables):
            mine.assign(other)
    train(model, rank)


@warns("the norm of w1 is .* on rank")
def weights_changed_in_place(rank):
    train_with(rank, lambda model: model.variables[0].assign(model.variables[0] * 1.01))


@warns(WEIGHTS)
def weights_changed_in_place_in_eager_execution(rank):
    train_with(rank, lambda model: model.variables[0].assign(model.variables[0] * 1.01), traced=False)


@warns(WEIGHTS)
def rows_permuted(rank):
    train_with(rank, lambda model: model.variables[0].assign(tf.reverse(model.variables[0], [0])))


@warns(WEIGHTS)
def a_nan_on_one_rank(rank):
    model, unused = Network(), tf.Variable([1.0, 2.0])

    def each(step):
        if (step, rank) == (0, hvd.size() - 1):
            unused.assign([1.0, float("nan")])

    train(model, rank, each=each, variables=[*model.variables, unused])


@warns(WEIGHTS)
def another_learning_rate(rank):
    train_with(rank, rate=0.1 * (1 + rank))


@warns(WEIGHTS)
def gradients_that_one_rank_changes(rank):
    model = Network()
    optimizer = Momentum(model.variables)

    @tf.function
    def run(x, y):
        gradients = gradients_of(model, x, y)
        optimizer.apply([0.5 * each for each in gradients] if rank == 0 else gradients, model.variables)

    for step in range(6):
        run(*batch(rank, step))


@warns(WEIGHTS)
def a_function_that_is_traced_again(rank):
    model = Network(rank)
    run = tf.function(lambda x, y: gradients_of(model, x, y))
    for step in range(5):
        x, y = batch(rank, step)
        run(x[: 4 - step % 3], y[: 4 - step % 3])


@warns(WEIGHTS)
def a_loop_in_a_function(rank):
    model = Network(rank)
    x, y = batch(rank, 0)

    @tf.function
    def run():
        for _ in tf.range(5):
            for variable, gradient in zip(model.variables, gradients_of(model, x, y)):
                variable.assign_sub(0.1 * gradient)

    run()


@warns(WEIGHTS)
def eager_and_traced_steps_of_one_list(rank):
    model = Network(rank)
    run = tf.function(lambda x, y: gradients_of(model, x, y))
    for step in range(5):
        (run if step % 2 else lambda x, y: gradients_of(model, x, y))(*batch(rank, step))


@warns(WEIGHTS)
def one_of_two_models_in_a_function(rank):
    models = [Network(), Network(rank)]

    @tf.function
    def run(x, y):
        return [gradients_of(model, x, y) for model in models]

    for step in range(4):
        run(*batch(rank, step))


@warns(WEIGHTS)
def an_optimizer_of_tensorflow_1(rank):
    session_of_tensorflow_1(rank, seed=rank)


def session_of_tensorflow_1(rank, seed=0, rate=0.1):
    initial = [variable.numpy() for variable in Network(seed).variables]
    batches = [[value.numpy() for value in batch(rank, step)] for step in range(6)]
    with tf.Graph().as_default():
        x, y = v1.placeholder(tf.float32, (4, 6)), v1.placeholder(tf.float32, (4, 2))
        w1, b1, w2, b2 = [v1.get_variable(f"v{i}", initializer=value) for i, value in enumerate(initial)]
        loss = tf.reduce_mean(tf.square(tf.tanh(x @ w1 + b1) @ w2 + b2 - y))
        update = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(rate, 0.9)).minimize(loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for rows in batches:
                session.run(update, dict(zip((x, y), rows)))


@warns("other options: learning_rate is 0.1 on rank.* 0.* and 0.2 on rank")
def a_rate_of_tensorflow_1(rank):
    session_of_tensorflow_1(rank, rate=0.2 if rank == hvd.size() - 1 else 0.1)


@warns(WEIGHTS)
def a_join_without_a_broadcast(rank):
    model = Network()
    train(model, rank, steps=3 + rank, traced=False)
    hvd.join()
    train(model, rank, steps=4, traced=False)


# Trainings without a difference: no warning.


@silent
def equal_replicas(rank):
    train_with(rank, seed=rank)


@silent
def equal_seeds_and_no_broadcast(rank):
    train_with(rank, broadcast=False, traced=False)


@silent
def a_broadcast_after_the_first_step(rank):
    model = Network(rank)
    optimizer = Momentum(model.variables)

    @tf.function
    def run(x, y):
        optimizer.apply(gradients_of(model, x, y), model.variables)

    for step in range(6):
        run(*batch(rank, step))
        if step == 0:
            hvd.broadcast_variables(model.variables + optimizer.velocity, root_rank=0)


@silent
def rounding_of_another_processor(rank):
    train_with(rank, lambda model: model.variables[0].assign(model.variables[0] * (1 + 1e-6)), steps=14)


@silent
def names_that_differ(rank):
    model = Network(prefix=f"of_rank_{rank}/" if rank else "")
    train(model, rank, traced=False)


@silent
def one_more_model_on_one_rank(rank):
    if rank == 0:
        tf.keras.layers.Dense(2).build((None, 3))
    layer = tf.keras.layers.Dense(2, kernel_initializer="ones")
    layer.build((None, 6))
    for step in range(5):
        x, y = batch(rank, step)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(layer(x) - y))
        variables = layer.trainable_variables
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, variables)
        for variable, gradient in zip(variables, gradients):
            variable.assign(variable - 0.1 * gradient)


@silent
def local_variables(rank):
    model, own = Network(), tf.Variable(1.0 + rank)
    for step in range(5):
        x, y = batch(rank, step)
        with tf.GradientTape() as tape:
            loss = model.loss(x * own, y)
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(own)
        for variable, gradient in zip([*model.variables, own], tape.gradient(loss, [*model.variables, own])):
            variable.assign_sub(0.1 * gradient)


@silent
def gradients_of_inputs(rank):
    model = Network()
    for step in range(5):
        x, y = batch(rank, step)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = model.loss(x, y)
        hvd.DistributedGradientTape(tape).gradient(loss, [x, *model.variables])


@silent
def functions_in_another_order(rank):
    models = [Network(), Network(1)]

    def first(x, y):
        return gradients_of(models[0], x, y)

    def second(x, y):
        return gradients_of(models[1], x, y)

    # Only the message of the first reduction waits, and each function has its own.
    functions = [tf.function(first), tf.function(second)]
    for step in range(5):
        for run in functions:
            run(*batch(rank, step))


@silent
def adasum(rank):
    train_with(rank, op=hvd.Adasum)


@silent
def groups_with_compression(rank):
    train_with(rank, groups=1, gradient_predivide_factor=2.0, compression=hvd.Compression.fp16)


@silent
def sparse_gradients(rank):
    table = tf.Variable(tf.ones((9, 3)))
    for step in range(6):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.gather(table, [rank, step])))
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [table])
        table.scatter_sub(tf.IndexedSlices(0.01 * gradient.values, gradient.indices))


@silent
def two_optimizers_in_a_session(rank):
    with tf.Graph().as_default():
        updates = []
        for index in range(2):
            variable = v1.get_variable(f"v{index}", initializer=[1.0, 2.0 + index])
            loss = tf.reduce_sum(tf.square(variable - float(rank)))
            updates.append(hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1)).minimize(loss))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(6):
                session.run(updates)


@silent
def ranks_that_join_and_get_the_weights(rank):
    model = Network()
    for _ in range(2):
        train(model, rank, steps=1 + 4 * rank, traced=False)
        last = hvd.join()
        hvd.broadcast_variables(model.variables, root_rank=last)


@silent
def sets_whose_weights_differ(rank):
    sets = [hvd.add_process_set([each]) for each in range(hvd.size())]
    train_with(rank, seed=rank, broadcast=False, process_set=sets[rank])
    for each in sets:
        hvd.remove_process_set(each)


# Errors.


@fails("parameter 0 is w1 of shape .* on rank 0 and b2 of shape .* on rank")
def another_order(rank):
    model = Network()
    train(model, rank, variables=model.variables[::-1] if rank else model.variables)


@fails("reduces frozen_b1 of shape")
def frozen_on_one_rank(rank):
    model = Network(prefix="frozen_")
    variables = model.variables if rank == 0 else [model.variables[0], *model.variables[2:]]
    train(model, rank, variables=variables)


@fails("reduces eager_b1 of shape")
def frozen_on_one_rank_in_eager_execution(rank):
    model = Network(prefix="eager_")
    variables = model.variables if rank == 0 else [model.variables[0], *model.variables[2:]]
    train(model, rank, variables=variables, traced=False)


@fails("of shape")
def another_shape(rank):
    variable = tf.Variable(tf.ones(2 + rank))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(variable))
    hvd.DistributedGradientTape(tape).gradient(loss, [variable])


@fails("(?i)type")
def half_precision_on_one_rank(rank):
    variable = tf.Variable(tf.ones(2, tf.bfloat16 if rank else tf.float32))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(variable))
    hvd.DistributedGradientTape(tape).gradient(loss, [variable])


if __name__ == "__main__":
    sys.exit(causes.main(hvd))
