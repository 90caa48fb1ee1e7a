#!/usr/bin/env python3
"""Trainings with MXNet: horovodrun -np 2 python3 tests/equivalence/mxnet_cases.py [--only REGEX]."""

import os
import sys
import tempfile

import cases
import mxnet as mx
import numpy
from mxnet import autograd, gluon, nd

import horovod.mxnet as hvd

TABLE = cases.Table()
case = TABLE.case
LARGE = "1_KiB 8_MiB"


class Network:
    """Makes Gluon parameters of a network with one hidden layer."""

    def __init__(self, training, prefix="net_"):
        self.params = gluon.ParameterDict(prefix)
        for name, value in training.initial().items():
            self.params.get(name, shape=value.shape, dtype=training.dtype).initialize(mx.init.Constant(nd.array(value)))
        if training.is_distributed:
            hvd.broadcast_parameters(self.params, root_rank=0)

    def loss(self, x, y):
        w1, b1, w2, b2 = [param.data() for param in self.params.values()]
        out = nd.dot(nd.tanh(nd.dot(x, w1) + b1), w2) + b2
        return ((out - y) ** 2).mean()


def trainer_of(training, network, optimizer="sgd", options=None, **keywords):
    options = dict(options or {"learning_rate": 0.1, "momentum": 0.9})
    if training.is_distributed:
        return hvd.DistributedTrainer(network.params, optimizer, options, **keywords)
    return gluon.Trainer(network.params, optimizer, options, kvstore=None)


def batches(training, steps=3):
    return [tuple(map(nd.array, training.batch(step))) for step in range(steps)]


def backward(network, x, y):
    with autograd.record():
        loss = network.loss(x, y)
    loss.backward()


def weights_of(*networks, **others):
    return {
        **{
            f"{index}.{name}": param.data().asnumpy()
            for index, network in enumerate(networks)
            for name, param in network.params.items()
        },
        **others,
    }


def loop(training, network, trainer, steps=3):
    for x, y in batches(training, steps):
        backward(network, x, y)
        trainer.step(1)
    return weights_of(network)


@case(layers=LARGE)
def trainer(training):
    network = Network(training)
    return loop(training, network, trainer_of(training, network))


@case(layers="1_KiB")
def trainer_with_groups(training):
    network = Network(training)
    return loop(training, network, trainer_of(training, network, num_groups=2))


@case(layers="1_KiB", tolerance=cases.FLOAT16)
def trainer_with_compression(training):
    network = Network(training)
    return loop(training, network, trainer_of(training, network, compression=hvd.Compression.fp16))


@case(layers="1_KiB")
def accumulation(training):
    network = Network(training)
    trainer = trainer_of(training, network)
    network.params.setattr("grad_req", "add")
    for number, (x, y) in enumerate(batches(training, 6)):
        backward(network, x, y)
        if number % 2:
            trainer.step(2)
            network.params.zero_grad()
    return weights_of(network)


@case(layers=LARGE)
def clipping_between_the_reduction_and_the_update(training):
    network = Network(training)
    trainer = trainer_of(training, network)
    for x, y in batches(training):
        backward(network, x, y)
        if training.is_distributed:
            trainer.allreduce_grads()
        gluon.utils.clip_global_norm([param.grad() for param in network.params.values()], 0.1)
        trainer.update(1)
    return weights_of(network)


@case(layers=LARGE, may_refuse="allreduce_grads")
def clipping_before_the_step(training):
    """step() reduces after the clipping: the result is right, or every rank gets an error."""
    network = Network(training)
    trainer = trainer_of(training, network)
    for x, y in batches(training):
        backward(network, x, y)
        gluon.utils.clip_global_norm([param.grad() for param in network.params.values()], 0.1)
        trainer.step(1)
    return weights_of(network)


@case(layers="1_KiB")
def optimizer_of_module(training):
    """Updates by an mxnet.optimizer.Optimizer, like Module."""
    network = Network(training)
    optimizer = mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9)
    if training.is_distributed:
        optimizer = hvd.DistributedOptimizer(optimizer)
    pairs = list(enumerate(network.params.values()))
    states = [optimizer.create_state(index, param.data()) for index, param in pairs]
    for x, y in batches(training):
        backward(network, x, y)
        for index, param in pairs:
            optimizer.update(index, param.data(), param.grad(), states[index])
    return weights_of(network)


@case(layers="1_KiB")
def two_trainers(training):
    first, second = Network(training), Network(training, "other_")
    trainers = [
        trainer_of(training, network, **({"prefix": prefix} if training.is_distributed else {}))
        for network, prefix in ((first, "first"), (second, "second"))
    ]
    for x, y in batches(training):
        with autograd.record():
            loss = first.loss(x, y) + (second.loss(x, y) - first.loss(x, y)) * 0.5
        loss.backward()
        for trainer in trainers:
            trainer.step(1)
    return weights_of(first, second)


@case(layers="1_KiB")
def learning_rate_schedule(training):
    network = Network(training)
    schedule = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=0.1)
    trainer = trainer_of(training, network, options={"learning_rate": 0.1, "lr_scheduler": schedule})
    return {**loop(training, network, trainer), "rate": trainer.learning_rate}


@case(layers="1_KiB")
def frozen_and_unfrozen(training):
    network = Network(training)
    first = list(network.params.values())[:2]
    for steps, request in ((2, "null"), (4, "write")):
        for param in first:
            param.grad_req = request
        loop(training, network, trainer_of(training, network), steps)
    return weights_of(network)


@case(layers="1_KiB")
def saved_and_resumed(training):
    """Rank 0 saves the parameters, and only rank 0 reads them."""
    network = Network(training)
    loop(training, network, trainer_of(training, network), 2)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "saved")
        if 0 in training.ranks:
            network.params.save(path)
        network = Network(training)
        if 0 in training.ranks:
            network.params.load(path)
    if training.is_distributed:
        hvd.broadcast_parameters(network.params, root_rank=0)
    return loop(training, network, trainer_of(training, network))


@case(layers="1_KiB", double=True)
def adam(training):
    network = Network(training)
    weights = {}
    trainer = trainer_of(training, network, "adam", {"learning_rate": 0.01})
    for step in range(3):
        x, y = (nd.array(each, dtype="float64") for each in training.batch(step))
        backward(network, x, y)
        trainer.step(1)
    weights.update(weights_of(network))
    return weights


@case(layers=LARGE)
def loss_scale_by_hand(training):
    """A scale that all ranks halve when one rank overflows."""
    network, scale, scales = Network(training), 256.0, []
    trainer = trainer_of(training, network)
    for step in range(5):
        x, y = map(nd.array, training.batch(step, overflows=[(1, 0), (3, -1)]))
        with autograd.record():
            loss = network.loss(x, y) * scale
        loss.backward()
        if training.is_distributed:
            trainer.allreduce_grads()
        if all(numpy.isfinite(param.grad().asnumpy()).all() for param in network.params.values()):
            trainer.update(scale)
        else:
            scale /= 2
        scales.append(scale)
    return weights_of(network, scales=scales)


if __name__ == "__main__":
    sys.exit(cases.main(hvd, TABLE, cases.Training))
