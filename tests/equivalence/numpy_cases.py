#!/usr/bin/env python3
"""Trainings with NumPy: horovodrun -np 2 python3 tests/equivalence/numpy_cases.py [--only REGEX]."""

import sys

import cases
import numpy

import horovod.numpy as hvd

TABLE = cases.Table()
case = TABLE.case


def start(training):
    weights = training.initial()
    if training.is_distributed:
        weights = {name: hvd.broadcast(value, 0, name=name) for name, value in weights.items()}
    return weights


def gradients_of(weights, x, y):
    hidden = numpy.tanh(x @ weights["w1"] + weights["b1"])
    error = 2 * (hidden @ weights["w2"] + weights["b2"] - y) / y.size
    inner = (error @ weights["w2"].T) * (1 - hidden**2)
    return {"w1": x.T @ inner, "b1": inner.sum(0), "w2": hidden.T @ error, "b2": error.sum(0)}


def loop(training, reduce, steps=3):
    weights = start(training)
    for step in range(steps):
        gradients = gradients_of(weights, *training.batch(step))
        if training.is_distributed:
            gradients = reduce(gradients)
        for name, gradient in gradients.items():
            weights[name] = weights[name] - numpy.asarray(0.1, gradient.dtype) * gradient
    return weights


@case(quick=True, layers="1_KiB 8_MiB")
def averages(training):
    return loop(
        training, lambda gradients: {name: hvd.allreduce(value, name=name) for name, value in gradients.items()}
    )


@case(double=True, layers="1_KiB")
def averages_in_float64(training):
    return loop(
        training, lambda gradients: {name: hvd.allreduce(value, name=name) for name, value in gradients.items()}
    )


@case(layers="1_KiB 8_MiB")
def grouped_averages(training):
    def reduce(gradients):
        return dict(zip(gradients, hvd.grouped_allreduce(list(gradients.values()), name="gradients")))

    return loop(training, reduce)


@case(layers="1_KiB 8_MiB")
def handles_in_flight(training):
    def reduce(gradients):
        handles = {name: hvd.allreduce_async(value, name=name) for name, value in gradients.items()}
        return {name: hvd.synchronize(handle) for name, handle in handles.items()}

    return loop(training, reduce)


@case(layers="1_KiB")
def averages_in_the_order_of_a_set(training):
    """Calls without names: the launcher gives all ranks one PYTHONHASHSEED, and thus the same order."""
    return loop(training, lambda gradients: {name: hvd.allreduce(gradients[name]) for name in set(gradients)})


@case(layers="1_KiB")
def gathered_gradients(training):
    """Uses the mean of gathered parts instead of a reduction."""

    def reduce(gradients):
        return {
            name: hvd.allgather(value[None], name=name).mean(0, dtype=value.dtype) for name, value in gradients.items()
        }

    return loop(training, reduce)


if __name__ == "__main__":
    sys.exit(cases.main(hvd, TABLE, cases.Training))
