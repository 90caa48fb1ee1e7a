"""Trains a small network on handwritten digits with JAX and optax, in all processes of a job."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import horovod.jax as hvd
from digits import load

hvd.init()
numbers = np.random.default_rng(1)
images, labels = load("train")
share = len(images) // hvd.size()
images, labels = images[hvd.rank() * share :][:share], labels[hvd.rank() * share :][:share]


def network(weights, images):
    return jax.nn.relu(images @ weights["hidden"]) @ weights["output"]


def loss_function(weights, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(network(weights, images), labels).mean()


weights = {
    "hidden": jnp.asarray(numbers.normal(0, 0.1, (64, 64)), jnp.float32),
    "output": jnp.asarray(numbers.normal(0, 0.1, (64, 10)), jnp.float32),
}
weights = hvd.broadcast_parameters(weights, root_rank=0)
optimizer = hvd.DistributedOptimizer(optax.sgd(0.05 * hvd.size(), momentum=0.9))
state = optimizer.init(weights)


@jax.jit
def train_step(weights, state, images, labels):
    loss, gradients = jax.value_and_grad(loss_function)(weights, images, labels)
    updates, state = optimizer.update(gradients, state, weights)
    return optax.apply_updates(weights, updates), state, loss


for epoch in range(5):
    for batch in numbers.permutation(len(images) // 32 * 32).reshape(-1, 32):
        weights, state, loss = train_step(weights, state, images[batch], labels[batch])
    loss = hvd.allreduce(loss, name="loss")
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

if hvd.rank() == 0:
    test_images, test_labels = load("t10k")
    right = (np.asarray(network(weights, test_images)).argmax(1) == test_labels).mean()
    print(f"test accuracy {right:.3f}")
    np.savez("digits.npz", **weights)
