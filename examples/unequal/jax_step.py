"""A step of JAX in which each rank has another number of items (docs/unequal-work.md)."""

import jax
import optax

import horovod.jax as hvd


def make_step(apply, optimizer):
    """`optimizer`: made by hvd.DistributedOptimizer."""

    def loss_of(weights, x, y, factor):
        return ((apply(weights, x) - y) ** 2).sum() * factor

    @jax.jit
    def step(weights, state, x, y, factor):
        gradients = jax.grad(loss_of)(weights, x, y, factor)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state

    return step


def train(weights, state, step, batches):
    for x, y in batches:
        total = hvd.total(y.size)  # outside of the compiled function
        weights, state = step(weights, state, x, y, hvd.size() / (total or 1))
    return weights
