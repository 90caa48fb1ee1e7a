"""Trains a small network on handwritten digits with JAX, while hosts join and leave.

horovodrun -np 2 --min-np 1 -H a:1,b:1 python3 jax_digits.py
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy

import horovod.jax as hvd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tutorials"))
from digits import load

options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, default=10)
options.add_argument("--pause", type=float, default=0, help="seconds between batches")
options = options.parse_args()

hvd.init()
images, labels = load("train")
random = numpy.random.default_rng(1)
weights = [random.normal(0, 0.1, shape).astype("float32") for shape in [(64, 64), (64,), (64, 10), (10,)]]


def logits_of(weights, images):
    hidden = jax.nn.relu(images @ weights[0] + weights[1])
    return hidden @ weights[2] + weights[3]


def loss_of(weights, images, labels):
    return -jnp.mean(jax.nn.log_softmax(logits_of(weights, images))[jnp.arange(len(labels)), labels])


@jax.jit
def step(weights, images, labels):
    gradients = jax.grad(loss_of)(weights, images, labels)
    gradients = [hvd.allreduce(gradient, name=f"gradient.{index}") for index, gradient in enumerate(gradients)]
    return [weight - 0.2 * gradient for weight, gradient in zip(weights, gradients)]


state = hvd.elastic.ObjectState(weights=weights, epoch=0, batch=0)


@hvd.elastic.run
def train(state):
    print(f"rank {hvd.rank()} of {hvd.size()} begins in epoch {state.epoch}", flush=True)
    while state.epoch < options.epochs:
        # All ranks together take the images in order.
        while (state.batch + 1) * 32 * hvd.size() <= len(images):
            first = (state.batch * hvd.size() + hvd.rank()) * 32
            state.weights = step(state.weights, images[first : first + 32], labels[first : first + 32])
            state.batch += 1
            time.sleep(options.pause)
            state.commit()
        state.epoch += 1
        state.batch = 0


train(state)
images, labels = load("t10k")
accuracy = float(jnp.mean(logits_of(state.weights, images).argmax(1) == labels))
bits = b"".join(numpy.asarray(weight).tobytes() for weight in state.weights)
print(
    f"rank {hvd.rank()} of {hvd.size()} ends: test accuracy {accuracy:.3f}, weights "
    f"{hashlib.sha256(bits).hexdigest()[:12]}",
    flush=True,
)
