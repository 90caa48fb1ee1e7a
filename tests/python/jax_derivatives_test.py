"""horovod.jax: derivatives of every mode and order, vmap and remat, against one process that has all inputs."""

import rank_base

jax = rank_base.need("jax")
import horovod.jax as hvd

import numpy

jnp = jax.numpy


class DerivativesTest(rank_base.RankBase):
    """Each rank calls `mine`, which reduces by Horovod. `total` computes the same in one process: the sum of all ranks'
    losses, since a reduction's gradient is that of this sum."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        jax.config.update("jax_enable_x64", True)
        cls.addClassCleanup(jax.config.update, "jax_enable_x64", False)
        cls.inputs = jnp.asarray(numpy.cos(numpy.arange(cls.size * 3.0)).reshape(cls.size, 3) + 1.5)
        cls.moves = jnp.asarray(numpy.sin(1 + numpy.arange(cls.size * 3.0)).reshape(cls.size, 3))
        cls.x, cls.move = cls.inputs[cls.rank], cls.moves[cls.rank]

    def setUp(self):
        super().setUp()
        self.assertEqual(self.x.dtype, jnp.float64)

    @staticmethod
    def loss(rank, reduced, x):
        return ((rank + 1) * reduced**3 + jnp.sin(reduced) * x).sum()

    def pairs(self):
        """Yields (mine, losses): functions of this rank's input, and of all inputs."""
        for op, name in ((hvd.Sum, None), (hvd.Average, "named")):

            def mine(x, op=op, name=name):
                return self.loss(self.rank, hvd.allreduce(x * x, name, op), x)

            def losses(inputs, op=op):
                reduced = (inputs**2).sum(0) / (1 if op == hvd.Sum else self.size)
                return jnp.stack([self.loss(rank, reduced, inputs[rank]) for rank in range(self.size)])

            yield mine, losses

    def check(self, make, reference):
        """Compares make(mine)(x, move), outside of jit (a sum: JAX compiles each small operation), inside jit, and
        again inside jit, with reference(losses) in one process."""
        for case, (mine, losses) in enumerate(self.pairs()):
            want = reference(losses)
            function = make(mine)
            compiled = jax.jit(function)
            for call in (compiled, compiled, *[function] * (case == 0)):
                got = call(self.x, self.move)
                jax.tree_util.tree_map(
                    lambda g, w: numpy.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-12), got, want
                )

    def total_grad(self, losses):
        return jax.grad(lambda inputs: losses(inputs).sum())

    def test_grad(self):
        self.check(
            lambda mine: lambda x, _: jax.grad(mine)(x), lambda losses: self.total_grad(losses)(self.inputs)[self.rank]
        )

    def test_jvp_and_linearize(self):
        def want(losses):
            values, moved = jax.jvp(losses, (self.inputs,), (self.moves,))
            return values[self.rank], moved[self.rank]

        self.check(lambda mine: lambda x, move: jax.jvp(mine, (x,), (move,)), want)

        def linear(mine):
            def run(x, move):
                value, moves = jax.linearize(mine, x)
                return value, moves(move)

            return run

        self.check(linear, want)

    def test_hessian(self):
        def want(losses):  # each rank moves its own input along the same axis
            return jax.jacfwd(lambda axis: self.total_grad(losses)(self.inputs + axis)[self.rank])(jnp.zeros(3))

        self.check(lambda mine: lambda x, _: jax.hessian(mine)(x), want)

    def test_the_gradient_of_a_gradient(self):
        def want(losses):
            return jax.grad(lambda inputs: (self.total_grad(losses)(inputs) * self.moves).sum())(self.inputs)[self.rank]

        self.check(lambda mine: lambda x, move: jax.grad(lambda y: (jax.grad(mine)(y) * move).sum())(x), want)

    def test_jacrev_and_jacfwd(self):
        def vector(y):
            return hvd.allreduce(y**2, op=hvd.Sum) * (self.rank + 1)

        def vectors(inputs):
            return (inputs**2).sum(0)[None] * jnp.arange(1.0, self.size + 1)[:, None]

        want = jax.jacrev(lambda inputs: vectors(inputs).sum(0))(self.inputs)[:, self.rank]
        for call in (jax.jacrev(vector), jax.jit(jax.jacrev(vector))):
            numpy.testing.assert_allclose(call(self.x), want, rtol=1e-12)
        want = jax.jacfwd(lambda axis: vectors(self.inputs + axis)[self.rank])(jnp.zeros(3))
        for call in (jax.jacfwd(vector), jax.jit(jax.jacfwd(vector))):
            numpy.testing.assert_allclose(call(self.x), want, rtol=1e-12)

    def test_remat(self):
        self.check(
            lambda mine: lambda x, _: jax.grad(jax.checkpoint(mine))(x),
            lambda losses: self.total_grad(losses)(self.inputs)[self.rank],
        )

        def layers(x):
            def layer(y, _):
                return jnp.tanh(hvd.allreduce(y, "layer", hvd.Average)) + y, None

            return jax.lax.scan(jax.checkpoint(layer), x, None, length=3)[0].sum()

        def alone(inputs):
            for _ in range(3):
                inputs = jnp.tanh(inputs.mean(0)) + inputs
            return inputs.sum()

        got = jax.jit(jax.grad(layers))(self.x)
        numpy.testing.assert_allclose(got, jax.grad(alone)(self.inputs)[self.rank], rtol=1e-12)

    def test_remat_of_a_linear_function(self):
        # The gradient does not depend on the result: the program may compute both at the same time.
        step = jax.jit(jax.grad(jax.checkpoint(lambda x: hvd.allreduce(x, "linear", hvd.Sum).sum())))
        for _ in range(20):
            numpy.testing.assert_array_equal(step(self.x), numpy.full(3, self.size))

    def test_remat_of_every_collective(self):
        rows = jnp.arange(2.0 * self.size * self.size).reshape(2 * self.size, self.size) + self.rank
        for function in (
            hvd.allgather,
            hvd.alltoall,
            lambda x: hvd.broadcast(x, 0),
            lambda x: hvd.reducescatter(x, op=hvd.Sum),
        ):
            plain = jax.jit(jax.grad(lambda x: (function(x) ** 2).sum()))(rows)
            again = jax.jit(jax.grad(jax.checkpoint(lambda x: (function(x) ** 2).sum())))(rows)
            numpy.testing.assert_array_equal(plain, again)

    def test_second_derivatives_of_collectives_of_rows(self):
        # All ranks have the same input: each collective is then a function that one process can compute.
        x = jnp.asarray(numpy.cos(numpy.arange(2.0 * self.size)).reshape(self.size, 2) + 1.5)
        move = jnp.asarray(numpy.sin(numpy.arange(2.0 * self.size)).reshape(self.size, 2))
        cases = [
            (hvd.allgather, lambda y: jnp.concatenate([y] * self.size)),
            (lambda y: hvd.broadcast(y, self.size - 1), lambda y: y),
            (hvd.alltoall, lambda y: jnp.concatenate([y[self.rank][None]] * self.size)),
            (lambda y: hvd.reducescatter(y, op=hvd.Sum), lambda y: self.size * y[self.rank][None]),
        ]
        for collective, alone in cases:

            def moved(function):
                return lambda y: jax.jvp(lambda z: function(z) ** 3, (y,), (move,))[1]

            want = moved(alone)(x)
            for call in (moved(collective), jax.jit(moved(collective))):
                numpy.testing.assert_allclose(call(x), want, rtol=1e-12)
            first = jax.grad(lambda y: (collective(y) ** 3).sum())
            for call in (jax.jvp, jax.jit(jax.jvp, static_argnums=0)):
                # A small step of all ranks; the derivative is the limit.
                step = 1e-5
                got = call(first, (x,), (move,))[1]
                want = (first(x + step * move) - first(x - step * move)) / (2 * step)
                numpy.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)

    def test_vmap_of_reductions_is_one_collective_of_the_batch(self):
        batch = jnp.arange(8.0).reshape(4, 2) + 10 * self.rank
        all_ = numpy.stack([numpy.arange(8.0).reshape(4, 2) + 10 * rank for rank in range(self.size)])
        for op, want in [
            (hvd.Sum, all_.sum(0)),
            (hvd.Average, all_.mean(0)),
            (hvd.Min, all_.min(0)),
            (hvd.Max, all_.max(0)),
            (hvd.Product, all_.prod(0)),
        ]:

            def reduce(x, op=op):
                return hvd.allreduce(x, op=op)

            for call in (
                jax.vmap(reduce),
                jax.jit(jax.vmap(reduce)),
                jax.vmap(jax.jit(reduce)),
                jax.vmap(reduce, axis_name="batch"),
            ):
                numpy.testing.assert_allclose(call(batch), want)
            numpy.testing.assert_allclose(jax.vmap(reduce, 1, 1)(batch), want)
        got = jax.jit(jax.vmap(lambda x: hvd.broadcast(x, self.size - 1)))(batch)
        numpy.testing.assert_array_equal(got, all_[-1])
        got = jax.jit(jax.vmap(lambda x, y: hvd.allreduce([x, y], op=hvd.Sum), (0, None)))(batch, batch[0])
        numpy.testing.assert_allclose(got[0], all_.sum(0))
        numpy.testing.assert_allclose(got[1], numpy.stack([all_.sum(0)[0]] * 4))
        per_example = jax.jit(jax.vmap(jax.grad(lambda x: (hvd.allreduce(x, op=hvd.Sum) ** 2).sum())))(batch)
        numpy.testing.assert_allclose(per_example, 2 * self.size * all_.sum(0))

    def test_groups_with_integers(self):
        def loss(tree):
            reduced = hvd.allreduce(tree, op=hvd.Sum)
            return (reduced["x"] ** 2).sum() * reduced["n"]

        tree = {"x": self.x, "n": jnp.asarray(1)}
        for call in (jax.grad(loss, allow_int=True), jax.jit(jax.grad(loss, allow_int=True))):
            got = call(tree)["x"]
            numpy.testing.assert_allclose(got, 2 * self.size**2 * self.inputs.sum(0), rtol=1e-12)

    def test_adasum_is_differentiated_as_before_and_refuses_the_rest(self):
        step = jax.jit(jax.grad(lambda x: hvd.allreduce(x, op=hvd.Adasum).sum()))
        numpy.testing.assert_allclose(step(self.x), numpy.ones(3))
        with self.assertRaises(TypeError):
            jax.jvp(lambda x: hvd.allreduce(x, op=hvd.Adasum), (self.x,), (self.move,))
        for op in (hvd.Min, hvd.Max, hvd.Product):
            with self.assertRaisesRegex(NotImplementedError, "no derivative.*jax.lax.stop_gradient"):
                jax.grad(lambda x: hvd.allreduce(x, op=op).sum())(self.x)
        for refused in (
            lambda x: hvd.allreduce(x, op=hvd.Adasum),
            hvd.allgather,
            hvd.alltoall,
            lambda x: hvd.reducescatter(x),
        ):
            with self.assertRaisesRegex(NotImplementedError, "jax.vmap; give them the whole"):
                jax.vmap(refused)(jnp.ones((2, self.size, 3)))


if __name__ == "__main__":
    rank_base.main()
