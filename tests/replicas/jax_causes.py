#!/usr/bin/env python3
"""Planted causes in JAX: horovodrun -np 2 python3 tests/replicas/jax_causes.py [--only REGEX]."""

import logging
import os
import sys

import causes
import jax
import jax.numpy as jnp
import numpy
import optax
from causes import fails, silent, warns

import horovod.jax as hvd
from horovod.jax import _compiled, _replicas

WEIGHTS = "other weights.*broadcast_parameters"


def network(seed=0, dtype="float32"):
    random = numpy.random.default_rng(seed)
    return {"w": jnp.asarray(random.normal(size=(6, 2)), dtype), "b": jnp.asarray(random.normal(size=2), dtype)}


def batch(rank, step):
    random = numpy.random.default_rng(10 * step + rank)
    return jnp.asarray(random.normal(size=(4, 6)), "float32"), jnp.asarray(random.normal(size=(4, 2)), "float32")


def sgd(rate=0.1):
    return optax.sgd(rate, momentum=0.9)


def loss_of(weights, x, y):
    return ((x @ weights["w"] + weights["b"] - y) ** 2).mean()


def step_of(optimizer):
    def step(weights, state, x, y):
        updates, state = optimizer.update(jax.grad(loss_of)(weights, x, y), state, weights)
        return optax.apply_updates(weights, updates), state

    return step


def train(weights, optimizer, rank, steps=6, compiled=True, each=None, state=None):
    """`each` returns the weights for the next step."""
    step = jax.jit(step_of(optimizer)) if compiled else step_of(optimizer)
    state = optimizer.init(weights) if state is None else state
    for number in range(steps):
        weights, state = step(weights, state, *batch(rank, number))
        weights = weights if each is None else each(number, weights)
    jax.block_until_ready(weights)
    return weights, state


def train_with(rank, optimizer=None, seed=0, broadcast=True, **options):
    weights = network(seed)
    if broadcast:
        weights = hvd.broadcast_parameters(weights, root_rank=0)
    return train(weights, hvd.DistributedOptimizer(optimizer or sgd()), rank, **options)


def after(number, change):
    """Changes the weights of the last rank after a step."""

    def each(step, weights):
        return change(weights) if step == number and hvd.rank() == hvd.size() - 1 else weights

    return each


# Warnings.


@warns(WEIGHTS)
def seeds_and_no_broadcast(rank):
    train_with(rank, seed=rank, broadcast=False)


@warns(WEIGHTS)
def seeds_and_no_broadcast_without_jit(rank):
    train_with(rank, seed=rank, broadcast=False, compiled=False)


@warns("after reduction 1: the ranks have other weights")
def a_broadcast_whose_result_is_dropped(rank):
    weights = network(rank)
    hvd.broadcast_parameters(weights, root_rank=0)
    train(weights, hvd.DistributedOptimizer(sgd()), rank)


@warns(WEIGHTS)
def a_checkpoint_that_rank_0_loads(rank):
    weights = hvd.broadcast_parameters(network(), root_rank=0)
    train(network(7) if rank == 0 else weights, hvd.DistributedOptimizer(sgd()), rank)


@warns("after reduction 4: the ranks have other weights.* of .*'w'")
def weights_that_one_rank_changes(rank):
    train_with(rank, each=after(2, lambda weights: {**weights, "w": weights["w"] * 1.01}))


@warns(WEIGHTS)
def weights_that_one_rank_changes_without_jit(rank):
    train_with(rank, each=after(2, lambda weights: {**weights, "b": weights["b"] + 1}), compiled=False)


@warns(WEIGHTS)
def rows_permuted(rank):
    train_with(rank, each=after(2, lambda weights: {**weights, "w": weights["w"][::-1]}))


@warns(WEIGHTS)
def a_nan_on_one_rank(rank):
    frozen = jnp.ones(3).at[1].set(jnp.nan if rank else 1)
    weights = {"base": frozen, **hvd.broadcast_parameters(network(), root_rank=0)}
    train(weights, hvd.DistributedOptimizer(sgd()), rank)


@warns(WEIGHTS)
def a_frozen_base_that_differs(rank):
    weights = {"base": jnp.full(3, 1.0 + rank), **hvd.broadcast_parameters(network(), root_rank=0)}
    labels = {"base": "frozen", "w": "trained", "b": "trained"}
    optimizer = optax.multi_transform({"frozen": optax.set_to_zero(), "trained": sgd()}, labels)
    train(weights, hvd.DistributedOptimizer(optimizer), rank)


@warns(WEIGHTS)
def a_state_of_the_optimizer_that_rank_0_loads(rank):
    optimizer = hvd.DistributedOptimizer(sgd())
    weights, state = train(hvd.broadcast_parameters(network(), root_rank=0), optimizer, rank)
    if rank == 0:
        state = jax.tree_util.tree_map(lambda value: value + 1, state)
    train(weights, optimizer, rank, state=state)


@warns(WEIGHTS)
def another_learning_rate(rank):
    train_with(rank, sgd(0.2 if rank else 0.1))


@warns(WEIGHTS)
def another_class(rank):
    train_with(rank, optax.adagrad(0.1) if rank else sgd())


@warns(WEIGHTS)
def bfloat16_weights_that_differ(rank):
    weights = network(rank, "bfloat16")
    train(weights, hvd.DistributedOptimizer(sgd()), rank)


@warns(WEIGHTS)
def a_loop_inside_jit(rank):
    optimizer, weights = hvd.DistributedOptimizer(sgd()), network(rank)
    x, y = (jnp.stack(each) for each in zip(*(batch(rank, number) for number in range(6))))

    @jax.jit
    def epoch(weights, state):
        return jax.lax.scan(lambda carry, both: (step_of(optimizer)(*carry, *both), None), (weights, state), (x, y))[0]

    jax.block_until_ready(epoch(weights, optimizer.init(weights)))


@warns(WEIGHTS)
def an_optimizer_that_is_freed_while_programs_run(rank):
    def start():
        optimizer, weights = hvd.DistributedOptimizer(sgd()), network(rank)
        step, state = jax.jit(step_of(optimizer)), optimizer.init(weights)
        big = jax.jit(lambda x: jnp.linalg.matrix_power(x, 50))(jnp.full((700, 700), 1e-9)).sum()
        for number in range(3):
            x, y = batch(rank, number)
            weights, state = step(weights, state, x + big, y)
        return weights

    jax.block_until_ready(start())


@warns(WEIGHTS)
def accumulation_around_ours(rank):
    optimizer = optax.MultiSteps(hvd.DistributedOptimizer(sgd()), 2)
    train(network(rank), optimizer, rank, steps=12)


@warns(WEIGHTS)
def a_join_without_a_broadcast(rank):
    optimizer = hvd.DistributedOptimizer(sgd())
    weights = hvd.broadcast_parameters(network(), root_rank=0)
    weights, state = train(weights, optimizer, rank, steps=3 + rank)
    hvd.join()
    train(weights, optimizer, rank, steps=4, state=state)


# Trainings without a difference: no warning.


@silent
def equal_replicas(rank):
    train_with(rank, seed=rank)


@silent
def equal_replicas_without_jit(rank):
    train_with(rank, seed=rank, compiled=False)


@silent
def with_jit_and_without(rank):
    optimizer = hvd.DistributedOptimizer(sgd())
    weights, state = train(hvd.broadcast_parameters(network(rank), root_rank=0), optimizer, rank, steps=3)
    train(weights, optimizer, rank, compiled=False, state=state)


@silent
def a_broadcast_after_the_first_step(rank):
    def each(step, weights):
        return hvd.broadcast_parameters(weights, root_rank=0) if step == 0 else weights

    train_with(rank, optax.sgd(0.1), seed=rank, broadcast=False, each=each)


@silent
def one_trace(rank):
    traces, optimizer = [], hvd.DistributedOptimizer(sgd())

    def step(*arguments):
        traces.append(1)
        return step_of(optimizer)(*arguments)

    compiled, weights = jax.jit(step), hvd.broadcast_parameters(network(), root_rank=0)
    state = optimizer.init(weights)
    for number in range(10):
        weights, state = compiled(weights, state, *batch(rank, number))
    assert len(traces) == 1, traces


@silent
def optimizers_that_share_their_names(rank):
    """An optimizer for each trial: what is kept of it must not grow with the number of parameters."""
    before, names = len(_replicas._models), len(_replicas._names)
    for _ in range(3):
        train_with(rank, seed=rank, steps=1)
    kept = [each for _, each in list(_replicas._models.values())[before:]]
    assert len(kept) == 3 and len({id(each) for each in kept}) == 1, kept
    assert len(_replicas._names) <= names + 1


@silent
def donated_weights_and_another_compilation_on_rank_0(rank):
    optimizer = hvd.DistributedOptimizer(sgd())
    step = jax.jit(step_of(optimizer), donate_argnums=(0, 1))
    weights = hvd.broadcast_parameters(network(), root_rank=0)
    state = optimizer.init(weights)
    for number in range(10):
        x, y = batch(rank, number)
        rows = 3 if rank == 0 and number > 4 else 4
        weights, state = step(weights, state, x[:rows], y[:rows])
    jax.block_until_ready(weights)


@silent
def rounding_of_another_processor(rank):
    lines = []
    logger, handler = logging.getLogger("horovod"), logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    train_with(rank, each=after(2, lambda weights: {**weights, "w": weights["w"] * (1 + 1e-6)}), steps=14)
    logger.removeHandler(handler)
    logger.setLevel(level)
    assert len(lines) == 1 and "by rounding" in lines[0], lines


@silent
def an_update_without_parameters(rank):
    lines = []
    logger, handler = logging.getLogger("horovod"), logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    optimizer, weights = hvd.DistributedOptimizer(sgd()), network(rank)
    state = optimizer.init(weights)
    for number in range(4):
        updates, state = optimizer.update(jax.grad(loss_of)(weights, *batch(rank, number)), state)
        weights = optax.apply_updates(weights, updates)
    logger.removeHandler(handler)
    assert len(lines) == (rank == 0) and all("cannot compare" in line for line in lines), lines


@silent
def parameters_that_only_rank_0_gives(rank):
    for run in (jax.jit, lambda step: step):
        optimizer, weights = hvd.DistributedOptimizer(sgd()), network(rank)

        def step(weights, state, x, y, optimizer=optimizer):
            given = weights if rank == 0 else None
            updates, state = optimizer.update(jax.grad(loss_of)(weights, x, y), state, given)
            return optax.apply_updates(weights, updates), state

        step, state = run(step), optimizer.init(weights)
        for number in range(6):
            weights, state = step(weights, state, *batch(rank, number))
        jax.block_until_ready(weights)


@silent
def native_calls_on_rank_0_alone(rank):
    uses_ffi = _compiled.uses_ffi
    if rank:
        _compiled.uses_ffi = lambda: False
    try:
        train_with(rank, seed=rank, broadcast=False)
    finally:
        _compiled.uses_ffi = uses_ffi


@silent
def an_ensemble_in_vmap(rank):
    optimizer = hvd.DistributedOptimizer(sgd())
    weights = jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), network(0), network(1))
    state = jax.vmap(optimizer.init)(weights)
    step = jax.jit(jax.vmap(step_of(optimizer), in_axes=(0, 0, None, None)))
    for number in range(6):
        weights, state = step(weights, state, *batch(rank, number))
    jax.block_until_ready(weights)


@silent
def complex_weights_and_keys(rank):
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))
    weights = {"c": jnp.ones(3, "complex64"), "w": jnp.ones(3)}

    @jax.jit
    def step(weights, state, x):
        gradients = jax.grad(lambda w: (jnp.abs(w["c"] * x + w["w"]) ** 2).sum())(weights)
        updates, state = optimizer.update(gradients, state, {**weights, "key": jax.random.key(rank)})
        return optax.apply_updates(weights, updates), state

    state = optimizer.init(weights)
    for number in range(5):
        weights, state = step(weights, state, batch(rank, number)[0][0, :3])
    jax.block_until_ready(weights)


@silent
def adasum_and_compression(rank):
    for keywords in ({"op": hvd.Adasum}, {"compression": hvd.Compression.fp16}):
        weights = hvd.broadcast_parameters(network(rank), root_rank=0)
        train(weights, hvd.DistributedOptimizer(sgd(), **keywords), rank)


@silent
def ranks_that_join_and_get_the_weights(rank):
    optimizer, weights = hvd.DistributedOptimizer(optax.sgd(0.1)), network()
    for _ in range(2):
        weights, _ = train(weights, optimizer, rank, steps=1 + 4 * rank)
        weights = hvd.broadcast_parameters(weights, root_rank=hvd.join())


@silent
def a_start_of_horovod_again(rank):
    optimizer = hvd.DistributedOptimizer(sgd())
    for seed in (0, 1):
        train(hvd.broadcast_parameters(network(seed + rank), root_rank=0), optimizer, rank, steps=3)
        hvd.shutdown()
        hvd.init()


# Errors.


def train_with_variable(rank, value, compiled):
    before = os.environ.pop("HOROVOD_CHECK_REPLICAS", None)
    os.environ["HOROVOD_CHECK_REPLICAS"] = value
    try:
        train_with(rank, seed=rank, broadcast=False, compiled=compiled)
    finally:
        del os.environ["HOROVOD_CHECK_REPLICAS"]
        if before is not None:
            os.environ["HOROVOD_CHECK_REPLICAS"] = before


@fails("HOROVOD_CHECK_REPLICAS is off on some ranks and warn on others")
def a_check_that_is_off_on_some_ranks(rank):
    train_with_variable(rank, "off" if rank else "warn", True)


@fails(WEIGHTS)
def a_check_that_stops(rank):
    train_with_variable(rank, "stop", True)


@fails(WEIGHTS)
def a_check_that_stops_without_jit(rank):
    train_with_variable(rank, "stop", False)


@fails("(?i)shape")
def another_shape(rank):
    weights = {"w": jnp.ones((6 + rank, 2)), "b": jnp.ones(2)}
    optimizer = hvd.DistributedOptimizer(sgd())
    jax.block_until_ready(jax.jit(step_of(optimizer))(weights, optimizer.init(weights), jnp.ones((4, 6 + rank)), 1.0))


if __name__ == "__main__":
    sys.exit(causes.main(hvd))
