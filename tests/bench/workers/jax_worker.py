"""A rank that trains with JAX; takes the protocol of worker.h, with the command gradients only.

horovodrun -np N python3 jax_worker.py SOCKET
"""

import sys

import jax
import jax.numpy as jnp
import numpy
import python_worker

import horovod.jax as hvd


class Horovod(python_worker.Plain):
    def __init__(self):
        hvd.init()
        self.rank = hvd.rank()

    def gradients(self, count, width, iterations):
        """Returns the microseconds of a jitted step with `count` layers: one call per gradient, one call for all
        gradients, and no average."""
        random = numpy.random.default_rng(self.rank)
        weights = [jnp.asarray(random.normal(0, 0.1, (int(width), int(width))), "float32") for _ in range(int(count))]
        x = jnp.asarray(random.standard_normal((32, int(width))), "float32")

        def loss(weights):
            out = x
            for weight in weights:
                out = jnp.tanh(out @ weight)
            return jnp.square(out).mean()

        def time_of(average):
            step = jax.jit(lambda weights: [w - 0.01 * g for w, g in zip(weights, average(jax.grad(loss)(weights)))])
            return python_worker.median_us(int(iterations), lambda: jax.block_until_ready(step(weights)))

        return [time_of(lambda grads: [hvd.allreduce(each) for each in grads]), time_of(hvd.allreduce), time_of(list)]


if __name__ == "__main__":
    python_worker.serve(sys.argv[1], Horovod())
