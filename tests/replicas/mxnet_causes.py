#!/usr/bin/env python3
"""Planted causes in MXNet: horovodrun -np 2 python3 tests/replicas/mxnet_causes.py [--only REGEX]."""

import itertools
import os
import sys
import tempfile

import causes
import mxnet as mx
import numpy
from causes import fails, silent, warns
from mxnet import autograd, gluon, nd

import horovod.mxnet as hvd

NUMBERS = itertools.count()
WEIGHTS = "other weights.*broadcast_parameters"


def network(seed=0):
    random = numpy.random.default_rng(seed)
    params = gluon.ParameterDict(f"net{next(NUMBERS)}_")
    for name, shape in (("w", (6, 2)), ("b", (2,))):
        value = nd.array(random.normal(size=shape))
        params.get(name, shape=shape).initialize(mx.init.Constant(value))
    return params


def batch(rank, step):
    random = numpy.random.default_rng(10 * step + rank)
    return nd.array(random.normal(size=(4, 6))), nd.array(random.normal(size=(4, 2)))


def backward(params, rank, step):
    w, b = [param.data() for param in params.values()][:2]
    x, y = batch(rank, step)
    with autograd.record():
        loss = ((nd.dot(x, w) + b - y) ** 2).mean()
    loss.backward()


def distribute(params, optimizer="sgd", broadcast=True, **options):
    if broadcast:
        hvd.broadcast_parameters(params, root_rank=0)
    options = options or {"learning_rate": 0.1, "momentum": 0.9}
    return hvd.DistributedTrainer(params, optimizer, options, prefix=params.prefix)


def train(params, trainer, rank, steps=6, each=None):
    for step in range(steps):
        backward(params, rank, step)
        trainer.step(1)
        if each is not None:
            each(step)


def train_with(rank, optimizer="sgd", seed=0, broadcast=True, each=None, **options):
    params = network(seed)
    train(params, distribute(params, optimizer, broadcast, **options), rank, each=each and (lambda n: each(n, params)))


def after(number, change):
    """Calls `change(w)` on the last rank after a step."""

    def each(step, params):
        if step == number and hvd.rank() == hvd.size() - 1:
            change(next(iter(params.values())))

    return each


# Warnings.


@warns(WEIGHTS)
def seeds_and_no_broadcast(rank):
    train_with(rank, seed=rank, broadcast=False)


@warns("after reduction 1: the ranks have other weights")
def a_checkpoint_that_rank_0_loads(rank):
    params = network()
    trainer = distribute(params)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "saved")
        params.save(path)
        for param in params.values():
            param.set_data(param.data() * 2)
        hvd.broadcast_parameters(params, root_rank=0)
        if rank == 0:
            params.load(path)
    train(params, trainer, rank)


@warns(WEIGHTS)
def weights_that_one_rank_changes(rank):
    train_with(rank, each=after(2, lambda w: w.set_data(w.data() * 1.01)))


@warns(WEIGHTS)
def rows_permuted(rank):
    train_with(rank, each=after(2, lambda w: w.set_data(nd.reverse(w.data(), axis=0))))


@warns(WEIGHTS)
def a_frozen_base_that_differs(rank):
    params = network()
    params.get("base", shape=(3,), grad_req="null").initialize(mx.init.Constant(1 + rank))
    train(params, distribute(params, broadcast=False), rank)


@warns(r"other options: learning_rate is 0.1 on rank.* 0.* and 0.2 on rank")
def another_learning_rate(rank):
    train_with(rank, learning_rate=0.2 if rank == hvd.size() - 1 else 0.1)


@warns("other options: momentum is")
def another_momentum(rank):
    train_with(rank, learning_rate=0.1, momentum=0.5 if rank else 0.9)


@warns("other options: the class is (SGD|Adam) on rank.* and (SGD|Adam) on rank")
def another_class(rank):
    train_with(rank, "adam" if rank else "sgd", learning_rate=0.1)


@warns("other options: rescale_grad")
def another_batch_size(rank):
    params = network()
    trainer = distribute(params)
    for step in range(4):
        backward(params, rank, step)
        trainer.step(1 + rank)


@warns(WEIGHTS)
def an_optimizer_of_module(rank):
    update_with(network(rank), rank)


def update_with(params, rank):
    """Updates the weights one by one, like Module."""
    optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9))
    pairs = list(enumerate(params.values()))
    states = [optimizer.create_state(index, param.data()) for index, param in pairs]
    for step in range(6):
        backward(params, rank, step)
        for index, param in pairs:
            optimizer.update(index, param.data(), param.grad(), states[index])


# Trainings without a difference: no warning.


@silent
def equal_replicas(rank):
    train_with(rank, seed=rank)


@silent
def equal_weights_without_a_broadcast(rank):
    update_with(network(), rank)
    train_with(rank, broadcast=False)


@silent
def a_broadcast_after_the_first_step(rank):
    def each(step, params):
        if step == 0:
            hvd.broadcast_parameters(params, root_rank=0)

    train_with(rank, seed=rank, broadcast=False, each=each, learning_rate=0.1)


@silent
def clipping_between_the_reduction_and_the_update(rank):
    params = network()
    trainer = distribute(params)
    for step in range(6):
        backward(params, rank, step)
        trainer.allreduce_grads()
        gluon.utils.clip_global_norm([param.grad() for param in params.values()], 0.1)
        trainer.update(1)


@silent
def a_block_with_shapes_that_are_unknown(rank):
    mx.random.seed(rank)
    net = gluon.nn.Dense(2)
    net.initialize()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, prefix=net.prefix)
    for step in range(5):
        x, y = batch(rank, step)
        with autograd.record():
            loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        trainer.step(1)


# Errors.


@fails("HOROVOD_CHECK_REPLICAS is off on some ranks and warn on others")
def a_check_that_is_off_on_some_ranks(rank):
    before = os.environ.pop("HOROVOD_CHECK_REPLICAS", None)
    os.environ["HOROVOD_CHECK_REPLICAS"] = "off" if rank else "warn"
    try:
        train_with(rank)
    finally:
        del os.environ["HOROVOD_CHECK_REPLICAS"]
        if before is not None:
            os.environ["HOROVOD_CHECK_REPLICAS"] = before


if __name__ == "__main__":
    sys.exit(causes.main(hvd))
