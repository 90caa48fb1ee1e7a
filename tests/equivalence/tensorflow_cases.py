#!/usr/bin/env python3
"""Trainings with TensorFlow, and with its Keras:
horovodrun -np 2 python3 tests/equivalence/tensorflow_cases.py [--only REGEX]."""

import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import cases
import keras_cases
import keras_loops  # noqa: F401
import numpy
import tensorflow as tf
import tensorflow_step

import horovod.tensorflow as hvd

tf.get_logger().setLevel("ERROR")
TABLE = cases.Table()
case = TABLE.case
v1 = tf.compat.v1


class Network:
    """Variables of a network with one hidden layer, and its output for inputs."""

    def __init__(self, training):
        self.variables = [tf.Variable(value, name=name) for name, value in training.initial().items()]

    def __call__(self, x):
        w1, b1, w2, b2 = self.variables
        return tf.tanh(x @ w1 + b1) @ w2 + b2

    def loss(self, x, y):
        return tf.reduce_mean(tf.square(self(x) - y))


class Momentum:
    """A hand-written optimizer, for loops without a framework's optimizer."""

    def __init__(self, variables, rate=0.1):
        self.variables, self.rate = variables, rate
        self.velocity = [tf.Variable(tf.zeros_like(each)) for each in variables]

    def apply(self, gradients):
        for variable, velocity, gradient in zip(self.variables, self.velocity, gradients):
            velocity.assign(0.9 * velocity + gradient)
            variable.assign_sub(tf.cast(self.rate, variable.dtype) * velocity)


def start(training):
    model = Network(training)
    if training.is_distributed:
        hvd.broadcast_variables(model.variables, root_rank=0)
    return model, Momentum(model.variables)


def tape_of(training, tape, **keywords):
    return hvd.DistributedGradientTape(tape, **keywords) if training.is_distributed else tape


def batches(training, steps=3):
    return [tuple(map(tf.constant, training.batch(step))) for step in range(steps)]


def values_of(variables, **others):
    return {**{str(index): each.numpy() for index, each in enumerate(variables)}, **others}


def loop(training, traced, change=lambda gradients: gradients, **keywords):
    model, optimizer = start(training)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = model.loss(x, y)
        gradients = tape_of(training, tape, **keywords).gradient(loss, model.variables)
        optimizer.apply(change(gradients))

    run = tf.function(step) if traced else step
    for x, y in batches(training):
        run(x, y)
    return values_of(model.variables)


@case()
def tape(training):
    return loop(training, traced=False)


@case()
def tape_in_a_function(training):
    return loop(training, traced=True)


@case()
def tape_and_clipping(training):
    return loop(training, traced=True, change=lambda gradients: tf.clip_by_global_norm(gradients, 0.1)[0])


@case(double=True, layers="1_KiB")
def unequal_batches(training):
    model, optimizer = start(training)
    batches = [tuple(map(tf.constant, batch)) for batch in training.unequal_batches()]
    if training.is_distributed:
        model.trainable_variables = model.variables
        optimizer.apply_gradients = lambda pairs: optimizer.apply([gradient for gradient, _ in pairs])
        tensorflow_step.train(model, optimizer, batches)
        return values_of(model.variables)
    for x, y in batches:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x) - y)) / max(1, y.numpy().size)
        optimizer.apply(tape.gradient(loss, model.variables))
    return values_of(model.variables)


@case(layers="1_KiB")
def tape_with_groups(training):
    return loop(training, traced=True, groups=2)


@case(layers="1_KiB", tolerance=cases.FLOAT16)
def tape_with_compression(training):
    return loop(training, traced=True, compression=hvd.Compression.fp16)


@case()
def gradients_of_all_ranks_by_the_tape_s_lists(training):
    """get_local_and_global_gradients returns reduced gradients, like gradient()."""
    model, optimizer = start(training)
    for x, y in batches(training):
        with tf.GradientTape() as tape:
            loss = model.loss(x, y)
        if training.is_distributed:
            _, pairs = hvd.DistributedGradientTape(tape).get_local_and_global_gradients(loss, model.variables)
            gradients = [gradient for _, gradient in pairs]
        else:
            gradients = tape.gradient(loss, model.variables)
        optimizer.apply(gradients)
    return values_of(model.variables)


@case(layers="1_KiB")
def two_tapes_and_optimizers(training):
    """A generator and a discriminator in one function."""
    (maker, makers), (judge, judges) = start(training), start(training)
    judge.variables[0].assign(judge.variables[0] * -0.5)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as first, tf.GradientTape() as second:
            fake = tf.concat([maker(x), x[:, 2:]], 1)
            judged = judge(fake)
            loss = tf.reduce_mean(tf.nn.softplus(judged - judge(x)))
            made = tf.reduce_mean(tf.nn.softplus(-judged)) + maker.loss(x, y)
        judged_gradients = tape_of(training, first).gradient(loss, judge.variables)
        made_gradients = tape_of(training, second).gradient(made, maker.variables)
        judges.apply(judged_gradients)
        makers.apply(made_gradients)

    for x, y in batches(training):
        step(x, y)
    return values_of(maker.variables + judge.variables)


@case(layers="1_KiB")
def accumulation_by_hand(training):
    model, optimizer = start(training)
    for step in range(3):
        with tf.GradientTape() as tape:
            loss = sum(model.loss(*map(tf.constant, training.batch(2 * step + pass_))) for pass_ in (0, 1)) / 2
        optimizer.apply(tape_of(training, tape).gradient(loss, model.variables))
    return values_of(model.variables)


@case()
def sparse_gradients(training):
    return embedding(training)


@case(layers="1_KiB")
def sparse_gradients_sent_as_dense(training):
    return embedding(training, sparse_as_dense=True)


def embedding(training, **keywords):
    table = tf.Variable(training.initial()["w1"])
    if training.is_distributed:
        hvd.broadcast_variables([table], root_rank=0)
    for step in range(4):
        with tf.GradientTape() as tape:
            rows = tf.nn.embedding_lookup(table, training.words(step))
            loss = tf.reduce_mean(tf.reduce_sum(tf.square(rows), 1))
        gradient = tape_of(training, tape, **keywords).gradient(loss, table)
        if isinstance(gradient, tf.IndexedSlices):
            table.scatter_sub(tf.IndexedSlices(0.5 * gradient.values, gradient.indices))
        else:
            table.assign_sub(0.5 * gradient)
    return values_of([table])


@case(layers="1_KiB")
def averages_of_integers_in_slices(training):
    """Averages of integers are TensorFlow's quotients: float64 for 32 and 64 bits, float32 for 8 and 16."""
    results, slices = {}, []
    for dtype in (tf.int8, tf.int16, tf.int32, tf.int64):
        words = tf.constant(training.words(0))
        rows = tf.cast(words[:, None] * [7, -5], dtype)
        slices.append(tf.IndexedSlices(rows, words, tf.constant([training.inputs, 2])))
    if training.is_distributed:
        means = {"single": [hvd.allreduce(each) for each in slices], "grouped": hvd.grouped_allreduce(slices)}
    else:
        means = [tf.IndexedSlices(each.values / training.size, each.indices, each.dense_shape) for each in slices]
        means = {"single": means, "grouped": means}
    for kind, found in means.items():
        for index, each in enumerate(found):
            dense = tf.convert_to_tensor(each)
            results.update({f"{kind}.{index}": dense.numpy(), f"{kind}.{index}.type": dense.dtype.name})
    return results


@case(layers="1_KiB")
def complex_variables(training):
    weight = training.initial()["w1"]
    variable = tf.Variable(tf.complex(weight, weight[::-1].copy()))
    if training.is_distributed:
        hvd.broadcast_variables([variable], root_rank=0)
    for x, y in batches(training):
        with tf.GradientTape() as tape:
            out = tf.abs(tf.cast(x, tf.complex64) @ variable)[:, :2]
            loss = tf.reduce_mean(tf.square(out - y))
        variable.assign_sub(0.1 * tape_of(training, tape).gradient(loss, variable))
    return values_of([variable])


@case(layers="1_KiB")
def averages_of_weights(training):
    model, optimizer = start(training)
    average = tf.train.ExponentialMovingAverage(0.9)
    average.apply(model.variables)
    for x, y in batches(training):
        with tf.GradientTape() as tape:
            loss = model.loss(x, y)
        optimizer.apply(tape_of(training, tape).gradient(loss, model.variables))
        average.apply(model.variables)
    return values_of(model.variables + [average.average(each) for each in model.variables])


@case(layers="1_KiB")
def checkpoint_of_rank_0(training):
    def run(model, optimizer, steps):
        for x, y in steps:
            with tf.GradientTape() as tape:
                loss = model.loss(x, y)
            optimizer.apply(tape_of(training, tape).gradient(loss, model.variables))

    rows = batches(training, 4)
    model, optimizer = start(training)
    run(model, optimizer, rows[:2])
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(weights=model.variables, velocity=optimizer.velocity)
        path = saved.write(folder + "/saved") if 0 in training.ranks else None
        model = Network(training)
        optimizer = Momentum(model.variables)
        if path:
            tf.train.Checkpoint(weights=model.variables, velocity=optimizer.velocity).read(path)
    if training.is_distributed:
        hvd.broadcast_variables(model.variables + optimizer.velocity, root_rank=0)
    run(model, optimizer, rows[2:])
    return values_of(model.variables)


@case(layers="1_KiB", tolerance=1e-5)
def synchronized_batch_normalization(training):
    kind = hvd.SyncBatchNormalization if training.is_distributed else tf.keras.layers.BatchNormalization
    normalize = kind()
    weight = tf.Variable(training.initial()["w1"])
    if training.is_distributed:
        hvd.broadcast_variables([weight], root_rank=0)
    for x, y in batches(training):
        with tf.GradientTape() as tape:
            out = normalize(x @ weight, training=True)[:, :2]
            loss = tf.reduce_mean(tf.square(out - y))
        weight.assign_sub(0.1 * tape_of(training, tape).gradient(loss, weight))
    return values_of([weight, normalize.moving_mean, normalize.moving_variance])


# Graphs of TensorFlow 1.


def graph(training, steps, passes=1, clip=None, **keywords):
    """Trains in a graph, with a session that counts steps; returns the weights and the global step."""
    with tf.Graph().as_default():
        x, y = (v1.placeholder(training.dtype, [None, size]) for size in (training.inputs, 2))
        w1, b1, w2, b2 = [v1.get_variable(name, initializer=value) for name, value in training.initial().items()]
        loss = tf.reduce_mean(tf.square(tf.tanh(x @ w1 + b1) @ w2 + b2 - y))
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
        if training.is_distributed:
            if passes > 1:
                keywords.update(backward_passes_per_step=passes, average_aggregated_gradients=True)
            optimizer = hvd.DistributedOptimizer(optimizer, **keywords)
        pairs = optimizer.compute_gradients(loss, [w1, b1, w2, b2])
        if clip:
            gradients, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], clip)
            pairs = list(zip(gradients, [variable for _, variable in pairs]))
        counter = v1.train.get_or_create_global_step()
        step = optimizer.apply_gradients(pairs, global_step=counter)
        with v1.train.MonitoredTrainingSession(
            hooks=[hvd.BroadcastGlobalVariablesHook(0)] if training.is_distributed else []
        ) as session:
            for number in range(steps):
                rows = rows_of(training, number, passes)
                for pass_x, pass_y in rows:
                    session.run(step, {x: pass_x, y: pass_y})
            plain = session._tf_sess()
            values = plain.run([w1, b1, w2, b2])
            count = int(plain.run(counter))
    return {**dict(zip("0123", values)), "passes": count if training.is_distributed else count * passes}


def rows_of(training, step, passes):
    """Returns the batches of a step's passes; one process gets them as one batch."""
    rows = [training.batch(passes * step + pass_) for pass_ in range(passes)]
    return rows if training.is_distributed else [tuple(numpy.concatenate(each) for each in zip(*rows))]


@case()
def graph_of_tensorflow_1(training):
    return graph(training, 3)


@case()
def graph_with_clipping(training):
    return graph(training, 3, clip=0.1)


@case()
def graph_with_accumulation(training):
    """global_step counts every pass, as Horovod does."""
    return graph(training, 3, passes=2)


@case(layers="1_KiB")
def graph_with_accumulation_and_clipping(training):
    return graph(training, 3, passes=2, clip=0.1)


@case(layers="1_KiB")
def graph_whose_loops_reduce(training):
    """A session runs a loop's iterations at once; the loop's body is a function or is part of the graph."""
    results = {}
    try:
        for name, choose in [("function", v1.enable_control_flow_v2), ("graph", v1.disable_control_flow_v2)]:
            choose()
            results.update({f"{name}.{key}": value for key, value in looped(training, 8).items()})
    finally:
        v1.enable_control_flow_v2()
    return results


def looped(training, parts):
    """Trains on the losses of several parts of a batch; each iteration averages one part."""
    with tf.Graph().as_default():
        x, y = (v1.placeholder(training.dtype, [parts, None, size]) for size in (training.inputs, 2))
        weights = [v1.get_variable(name, initializer=value) for name, value in training.initial().items()]
        w1, b1, w2, b2 = weights

        def loss_of(part):
            loss = tf.reduce_mean(tf.square(tf.tanh(part[0] @ w1 + b1) @ w2 + b2 - part[1]))
            return hvd.allreduce(loss) if training.is_distributed else loss

        losses = tf.map_fn(loss_of, (x, y), fn_output_signature=x.dtype, parallel_iterations=parts)
        optimizer = v1.train.GradientDescentOptimizer(0.1)
        if training.is_distributed:
            optimizer = hvd.DistributedOptimizer(optimizer)
        factors = numpy.arange(1, parts + 1, dtype=training.dtype) / parts**2
        step = optimizer.minimize(tf.reduce_sum(losses * factors), var_list=weights)
        seen = []
        with v1.Session(config=v1.ConfigProto(inter_op_parallelism_threads=4)) as session:
            session.run(v1.global_variables_initializer())
            if training.is_distributed:
                session.run(hvd.broadcast_global_variables(0))
            for number in range(3):
                rows = zip(*(training.batch(parts * number + part) for part in range(parts)))
                seen.append(session.run([losses, step], dict(zip((x, y), map(numpy.stack, rows))))[0])
            return {**dict(zip("0123", session.run(weights))), "losses": numpy.stack(seen)}


if __name__ == "__main__":
    sys.exit(cases.main(hvd, cases.Table(TABLE + keras_cases.TABLE), keras_cases.KerasTraining))
