#!/usr/bin/env python3
"""Trainings with JAX and optax: horovodrun -np 2 python3 tests/equivalence/jax_cases.py [--only REGEX]."""

import pickle
import sys

import cases
import jax
import jax.numpy as jnp
import jax_step
import numpy
import optax

import horovod.jax as hvd

TABLE = cases.Table()
case = TABLE.case
OVERFLOWS = [(1, 0), (3, -1)]
LARGE = "1_KiB 8_MiB"


def sgd(rate=0.1):
    return optax.sgd(rate, momentum=0.9)


def distribute(training, optimizer, **keywords):
    return hvd.DistributedOptimizer(optimizer, **keywords) if training.is_distributed else optimizer


def start(training):
    weights = {name: jnp.asarray(value) for name, value in training.initial().items()}
    return hvd.broadcast_parameters(weights, root_rank=0) if training.is_distributed else weights


def apply(weights, x):
    return jnp.tanh(x @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"]


def loss_of(weights, x, y, share=None):
    """Returns the mean over the rows, or the sum with a share of each row."""
    rows = ((apply(weights, x) - y) ** 2).mean(1)
    return rows.mean() if share is None else (rows * share).sum()


def step_of(optimizer, loss=loss_of, compiled=True):
    def step(weights, state, *batch):
        gradients = jax.grad(loss)(weights, *batch)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state

    return jax.jit(step) if compiled else step


def loop(training, optimizer, steps=3, compiled=True, **options):
    weights = start(training)
    state, step = optimizer.init(weights), step_of(optimizer, compiled=compiled)
    for number in range(steps):
        weights, state = step(weights, state, *training.batch(number, **options))
    return weights, state


def result(weights, **others):
    return {**{name: numpy.asarray(value) for name, value in weights.items()}, **others}


@case(layers=LARGE)
def compiled_loop(training):
    return result(loop(training, distribute(training, sgd()))[0])


@case(layers=LARGE)
def eager_loop(training):
    return result(loop(training, distribute(training, sgd()), compiled=False)[0])


@case(double=True, layers="1_KiB")
def adam(training):
    return result(loop(training, distribute(training, optax.adam(0.01)))[0])


@case(layers="1_KiB")
def predivided_averages(training):
    return result(loop(training, distribute(training, sgd(), gradient_predivide_factor=2.0))[0])


@case(tolerance=cases.FLOAT16, layers="1_KiB")
def compression(training):
    return result(loop(training, distribute(training, sgd(), compression=hvd.Compression.fp16))[0])


@case(layers=LARGE)
def clipping_inside_ours(training):
    return result(loop(training, distribute(training, optax.chain(optax.clip_by_global_norm(0.1), sgd())))[0])


@case(double=True, layers="1_KiB")
def unequal_batches(training):
    batches = training.unequal_batches()
    optimizer, weights = distribute(training, sgd()), start(training)
    if training.is_distributed:
        return result(jax_step.train(weights, optimizer.init(weights), jax_step.make_step(apply, optimizer), batches))

    def mean(weights, x, y):
        return ((apply(weights, x) - y) ** 2).sum() / max(1, y.size)

    state, step = optimizer.init(weights), step_of(optimizer, mean)
    for batch in batches:
        weights, state = step(weights, state, *batch)
    return result(weights)


@case(layers="1_KiB")
def averaged_by_hand(training):
    """hvd.allreduce inside jit, followed by clipping."""

    def loss(weights, x, y):
        value = loss_of(weights, x, y)
        return hvd.allreduce(value) if training.is_distributed else value

    weights, optimizer = start(training), optax.chain(optax.clip_by_global_norm(0.1), sgd())
    state = optimizer.init(weights)

    @jax.jit
    def step(weights, state, x, y):
        value, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        if training.is_distributed:
            gradients, value = hvd.allreduce(gradients), hvd.allreduce(value)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    losses = []
    for number in range(3):
        weights, state, value = step(weights, state, *training.batch(number))
        losses.append(float(value))
    return result(weights, losses=losses)


@case(layers="1_KiB")
def loop_inside_jit(training):
    """Runs the steps of an epoch by lax.scan."""
    weights, optimizer = start(training), distribute(training, sgd())
    x, y = (jnp.stack(each) for each in zip(*(training.batch(number) for number in range(4))))

    @jax.jit
    def epoch(weights, state):
        def step(carry, batch):
            return step_of(optimizer, compiled=False)(*carry, *batch), None

        return jax.lax.scan(step, (weights, state), (x, y))[0]

    return result(epoch(weights, optimizer.init(weights))[0])


@case(layers="1_KiB")
def recomputed_activations(training):
    optimizer, weights = distribute(training, sgd()), start(training)
    state = optimizer.init(weights)

    def loss(weights, x, y):
        value = jax.checkpoint(loss_of)(weights, x, y)
        return value

    step = step_of(optimizer, loss)
    for number in range(3):
        weights, state = step(weights, state, *training.batch(number))
    return result(weights)


@case(layers="1_KiB")
def a_collective_in_a_recomputed_function(training):
    """The mean loss of all ranks has the same gradient as the mean loss of one process."""
    weights = start(training)

    @jax.jit
    def step(weights, x, y):
        def loss(weights):
            value = jax.checkpoint(lambda w: mean(loss_of(w, x, y)))(weights)
            return value

        def mean(value):
            return hvd.allreduce(value) if training.is_distributed else value

        gradients = jax.grad(loss)(weights)
        if training.is_distributed:
            gradients = hvd.allreduce(gradients)
        return jax.tree_util.tree_map(lambda w, g: w - 0.1 * g, weights, gradients)

    for number in range(3):
        weights = step(weights, *training.batch(number))
    return result(weights)


@case(layers="256_KiB")
def one_helper_for_many_gradients(training):
    """JAX lowers a function under jit or checkpoint once, so its calls share a name; XLA runs them at once."""
    weights = start(training)
    weights = {**{f"w1.{i}": part for i, part in enumerate(jnp.split(weights.pop("w1"), 8))}, **weights}
    mean = hvd.allreduce if training.is_distributed else jnp.asarray

    def loss(weights, x, y):
        w1 = jnp.concatenate([weights[f"w1.{i}"] for i in range(8)])
        return loss_of({**weights, "w1": w1}, x, y)

    for number, decorate in enumerate((jax.jit, jax.checkpoint)):
        helper = decorate(lambda gradient: mean(gradient))

        @jax.jit
        def step(weights, x, y, helper=helper):
            gradients = jax.tree_util.tree_map(helper, jax.grad(loss)(weights, x, y))
            return jax.tree_util.tree_map(lambda w, g: w - 0.1 * g, weights, gradients)

        weights = step(weights, *training.batch(number))
    return result(weights)


@case(layers="1_KiB")
def a_constant_of_each_rank(training):
    """XLA drops the multiplication by 1.0 on rank 0, and then may order that rank's program differently."""
    shares = [1.0 if rank == 0 else 0.5 for rank in training.ranks]
    weights, seen = start(training), []

    def mean(value):
        return hvd.allreduce(value) if training.is_distributed else value

    def totals(x, y):
        """Returns the means over the ranks of a sum, and of 1 times the share of the rank."""
        if training.is_distributed:
            return mean(jnp.sum(x)), mean(jnp.sum(y) * shares[0])
        rows = y.reshape(len(shares), -1)
        return jnp.sum(x) / len(shares), sum(jnp.sum(each) * share for each, share in zip(rows, shares)) / len(shares)

    measure = jax.jit(totals)

    @jax.jit
    def step(weights, x, y, total):
        gradients = jax.tree_util.tree_map(mean, jax.grad(loss_of)(weights, x, y))
        return jax.tree_util.tree_map(lambda w, g: w - 0.1 * total * g, weights, gradients)

    for number in range(3):
        x, y = training.batch(number)
        seen.append([float(total) for total in measure(x / 64, y / 64)])
        weights = step(weights, x, y, seen[-1][1])
    return result(weights, seen=seen)


@case(layers="1_KiB")
def uneven_last_batch(training):
    """Rank 0 has fewer rows in its last batch and compiles its step again; each rank has an equal share."""
    weights, optimizer = start(training), distribute(training, sgd())
    state, step = optimizer.init(weights), step_of(optimizer)
    for number in range(4):

        def rows(rank, number=number):
            return 3 if rank == 0 and number >= 2 else 4

        share = numpy.concatenate(
            [numpy.full(rows(rank), 1 / rows(rank) / len(training.ranks), "float32") for rank in training.ranks]
        )
        weights, state = step(weights, state, *training.batch(number, rows), share)
    return result(weights)


@case(layers="1_KiB")
def shapes_printed_by_rank_0(training):
    """Rank 0 traces the step once more, like a summary of a model."""
    weights, optimizer = start(training), distribute(training, sgd())
    state, step = optimizer.init(weights), step_of(optimizer)
    if 0 in training.ranks:
        jax.eval_shape(step, weights, state, *training.batch(0))
    for number in range(3):
        weights, state = step(weights, state, *training.batch(number))
    return result(weights)


@case(layers=LARGE)
def accumulation(training):
    """optax.MultiSteps around the distributed optimizer averages the passes."""
    optimizer = optax.MultiSteps(distribute(training, sgd()), 2)
    weights, state = loop(training, optimizer, 6)
    return result(weights, updates=int(state.gradient_step))


@case(layers="1_KiB")
def accumulation_inside_ours(training):
    optimizer = optax.MultiSteps(sgd(), 2)
    if training.is_distributed:
        optimizer = hvd.DistributedOptimizer(optimizer.gradient_transformation())
    return result(loop(training, optimizer, 6)[0])


@case(layers=LARGE)
def overflow_skipped_inside_ours(training):
    optimizer = distribute(training, optax.apply_if_finite(sgd(), 5))
    weights, state = loop(training, optimizer, 5, overflows=OVERFLOWS)
    return result(weights)


@case(layers="1_KiB", may_refuse="apply_if_finite|DistributedOptimizer")
def overflow_skipped_around_ours(training):
    """A condition that each rank evaluates alone around a reduction: refused, or agreed upon."""
    optimizer = optax.apply_if_finite(distribute(training, sgd()), 5)
    return result(loop(training, optimizer, 5, overflows=OVERFLOWS)[0])


@case(layers="1_KiB", may_refuse="MultiSteps|DistributedOptimizer")
def accumulation_that_skips_around_ours(training):
    optimizer = optax.MultiSteps(distribute(training, sgd()), 2, should_skip_update_fn=optax.skip_not_finite)
    return result(loop(training, optimizer, 6, overflows=OVERFLOWS)[0])


@case(layers="1_KiB", tolerance=cases.BFLOAT16)
def bfloat16_with_master_weights(training):
    def loss(weights, x, y):
        small = {name: value.astype(jnp.bfloat16) for name, value in weights.items()}
        return ((apply(small, x.astype(jnp.bfloat16)).astype(jnp.float32) - y) ** 2).mean()

    weights, optimizer = start(training), distribute(training, sgd())
    state, step = optimizer.init(weights), step_of(optimizer, loss)
    for number in range(3):
        weights, state = step(weights, state, *training.batch(number))
    return result(weights)


@case(layers="1_KiB")
def dynamic_loss_scale(training):
    """A scale that falls after an overflow on any rank; the gradients are reduced before the test."""
    weights, optimizer = start(training), sgd()
    state, scale = optimizer.init(weights), jnp.float32(1024)

    @jax.jit
    def step(weights, state, scale, x, y):
        gradients = jax.grad(lambda w: scale * loss_of(w, x, y))(weights)
        if training.is_distributed:
            gradients = hvd.allreduce(gradients)
        gradients = jax.tree_util.tree_map(lambda g: g / scale, gradients)
        finite = jnp.all(jnp.stack([jnp.isfinite(g).all() for g in jax.tree_util.tree_leaves(gradients)]))
        updates, after = optimizer.update(gradients, state, weights)
        kept = jax.tree_util.tree_map(
            lambda new, old: jnp.where(finite, new, old),
            (optax.apply_updates(weights, updates), after),
            (weights, state),
        )
        return *kept, jnp.where(finite, scale, scale / 2)

    for number in range(5):
        weights, state, scale = step(weights, state, scale, *training.batch(number, overflows=OVERFLOWS))
    return result(weights, scale=float(scale))


@case(layers="1_KiB")
def schedule_with_warm_up(training):
    rate = optax.warmup_cosine_decay_schedule(0.01, 0.1, 2, 6)
    return result(loop(training, distribute(training, optax.sgd(rate, momentum=0.9)), 5)[0])


@case(layers="1_KiB")
def averages_of_weights(training):
    weights, optimizer = start(training), distribute(training, sgd())
    state, step, average = optimizer.init(weights), step_of(optimizer), weights
    for number in range(4):
        weights, state = step(weights, state, *training.batch(number))
        average = optax.incremental_update(weights, average, 0.1)
    return result(weights, **{f"average.{name}": value for name, value in average.items()})


@case(layers="1_KiB")
def frozen_weights(training):
    labels = {"w1": "frozen", "b1": "frozen", "w2": "trained", "b2": "trained"}

    def make(trained):
        return optax.multi_transform({"frozen": optax.set_to_zero(), "trained": trained}, labels)

    weights = start(training)
    for optimizer, numbers in [(make(sgd()), (0, 1)), (sgd(), (2, 3))]:
        optimizer = distribute(training, optimizer)
        state, step = optimizer.init(weights), step_of(optimizer)
        for number in numbers:
            weights, state = step(weights, state, *training.batch(number))
    return result(weights)


@case(layers="1_KiB")
def two_optimizers(training):
    maker = start(training)
    judge = {name: -0.5 * value for name, value in maker.items()}
    makers, judges = (distribute(training, sgd(0.05)) for _ in range(2))
    states = makers.init(maker), judges.init(judge)

    @jax.jit
    def step(maker, judge, states, x, y):
        def fake(maker):
            return jnp.concatenate([apply(maker, x), x[:, 2:]], 1)

        judged = jax.grad(lambda j: jax.nn.softplus(apply(j, fake(maker)) - apply(j, x)).mean())(judge)
        made = jax.grad(lambda m: jax.nn.softplus(-apply(judge, fake(m))).mean() + loss_of(m, x, y))(maker)
        first, one = makers.update(made, states[0], maker)
        second, two = judges.update(judged, states[1], judge)
        return optax.apply_updates(maker, first), optax.apply_updates(judge, second), (one, two)

    for number in range(3):
        maker, judge, states = step(maker, judge, states, *training.batch(number))
    return result({**maker, **{f"judge.{name}": value for name, value in judge.items()}})


@case(layers=LARGE)
def embedding(training):
    table = {"table": start(training)["w1"]}
    optimizer = distribute(training, optax.sgd(0.5))
    state = optimizer.init(table)
    step = step_of(optimizer, lambda weights, words: (weights["table"][words] ** 2).sum(1).mean())
    for number in range(4):
        table, state = step(table, state, training.words(number))
    return result(table)


@case(layers="1_KiB")
def complex_weights(training):
    """JAX's gradient of a real loss is the conjugate of the direction of steepest ascent."""
    w1 = training.initial()["w1"]
    weights = {"w": jnp.asarray(w1 + 1j * w1[::-1])}
    if training.is_distributed:
        weights = hvd.broadcast_parameters(weights, root_rank=0)

    @jax.jit
    def step(weights, x, y):
        gradients = jax.grad(lambda w: ((jnp.abs(x @ w["w"])[:, :2] - y) ** 2).mean())(weights)
        if training.is_distributed:
            gradients = hvd.allreduce(gradients)
        return {"w": weights["w"] - 0.1 * jnp.conj(gradients["w"])}

    for number in range(3):
        weights = step(weights, *training.batch(number))
    return result(weights)


@case(layers="1_KiB")
def saved_and_resumed(training):
    """Rank 0 saves weights, state, a typed key and a large counter, and only rank 0 reads them."""
    optimizer = distribute(training, sgd())
    weights, state = loop(training, optimizer, 2)
    key = jax.random.key_data(jax.random.key(7)) if 0 in training.ranks else jax.random.key_data(jax.random.key(0))
    saved = pickle.dumps((jax.device_get((weights, state)), 2**40 + 1, numpy.asarray(key)))
    tree, seen, key = (
        pickle.loads(saved)
        if 0 in training.ranks
        else (jax.device_get(jax.tree_util.tree_map(jnp.zeros_like, (weights, state))), 0, numpy.asarray(key))
    )
    key = jax.random.wrap_key_data(jnp.asarray(key))
    if training.is_distributed:
        tree, seen, key = hvd.broadcast_parameters((tree, seen, key), root_rank=0)
    weights, state = tree
    step = step_of(optimizer)
    for number in (2, 3):
        weights, state = step(weights, state, *training.batch(number))
    return result(weights, seen=seen, key=numpy.asarray(jax.random.key_data(key)))


class JaxTraining(cases.Training):
    """Enables 64 bits for cases that need them."""

    def __init__(self, ranks, size, is_distributed, layer, double):
        super().__init__(ranks, size, is_distributed, layer, double)
        jax.config.update("jax_enable_x64", double)


if __name__ == "__main__":
    sys.exit(cases.main(hvd, TABLE, JaxTraining))
