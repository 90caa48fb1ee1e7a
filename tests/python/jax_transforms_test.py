"""horovod.jax: collectives in each transformation and kind of control flow, against one process with all inputs.

One process runs the same function by jax.vmap over the ranks, with jax.lax.psum and pmean as collectives.
"""

import functools
import importlib
import unittest.mock

import rank_base

jax = rank_base.need("jax")
import horovod.jax as hvd

import numpy

from horovod.jax import _compiled

jnp, lax = jax.numpy, jax.lax
CASES = []


def case(function):
    CASES.append(function)
    return function


def stacked(x):
    return jnp.stack([x] * 3)


def losing(function):
    """Returns the gradient of the sum of the function's result."""
    return jax.grad(lambda x: jnp.sum(function(x)))


@case
def scan(x, add, mean):
    return lax.scan(lambda c, t: (c + add(t), add(c * 2)), x, stacked(x))


@case
def scan_with_gradient(x, add, mean):
    return losing(lambda x: lax.scan(lambda c, t: (jnp.tanh(c + mean(t)), mean(c)), x, stacked(x))[0])(x)


@case
def scan_of_a_recomputed_body(x, add, mean):
    body = jax.checkpoint(lambda c, t: (jnp.tanh(c + mean(t)), mean(c)))
    return losing(lambda x: lax.scan(body, x, stacked(x))[0])(x)


@case
def two_scans_of_one_body(x, add, mean):
    def body(c, t):
        return jnp.sin(mean(c) + t), add(t)

    return lax.scan(body, x, stacked(x)), lax.scan(body, 2 * x, stacked(x), unroll=2)


@case
def while_loop(x, add, mean):
    return lax.while_loop(lambda c: c[1] < 3, lambda c: (mean(c[0]) + 1, c[1] + 1), (x, 0))[0]


@case
def condition_of_a_while_loop(x, add, mean):
    return lax.while_loop(lambda c: jnp.sum(mean(c)) < 100, lambda c: mean(c) + 5, x)


@case
def fori_loop_with_gradient(x, add, mean):
    return losing(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(mean(c)) + x, x))(x)


@case
def branches_of_cond(x, add, mean):
    return [lax.cond(x.size > least, add, lambda x: mean(x * 2), x) for least in (1, 100)]


@case
def branch_with_gradient(x, add, mean):
    return losing(lambda x: lax.cond(x.size > 1, lambda x: add(x * x), lambda x: x, x))(x)


@case
def switch(x, add, mean):
    return [lax.switch(i, [add, mean, lambda x: x], x) for i in range(3)]


@case
def vmap(x, add, mean):
    return jax.vmap(jax.jit(mean))(stacked(x)), jax.vmap(losing(lambda x: add(x) ** 2))(stacked(x))


@case
def vmap_with_a_named_axis(x, add, mean):
    return jax.vmap(lambda y: mean(y) - lax.pmean(y, "rows"), axis_name="rows")(stacked(x) * jnp.arange(3.0)[:, None])


@case
def vmap_of_loops(x, add, mean):
    looped = jax.vmap(lambda x: lax.fori_loop(0, 3, lambda i, c: mean(c) + i, x))
    return looped(stacked(x)), jax.vmap(lambda x: lax.scan(lambda c, t: (c + mean(t), add(c)), x, stacked(x)))(
        stacked(x)
    )


@case
def vectorize(x, add, mean):
    return jnp.vectorize(lambda row: mean(row) + 1, signature="(k)->(k)")(stacked(x))


@case
def hessian(x, add, mean):
    return jax.hessian(lambda x: jnp.sum(mean(x) ** 2))(x)


@case
def jvp_and_linearize(x, add, mean):
    return jax.jvp(lambda y: mean(y) ** 2, (x,), (x,)), jax.linearize(lambda y: add(y) ** 2, x)[1](x)


@case
def vjp(x, add, mean):
    return jax.vjp(lambda y: mean(y) ** 2, x)[1](x)


@case
def helper_used_often(x, add, mean):
    inner = jax.jit(mean)
    outer = jax.jit(lambda x: inner(inner(x) + inner(x * 2)))
    return outer(x) + inner(3 * x) + outer(4 * x)


@case
def helper_with_gradient(x, add, mean):
    helper = jax.jit(mean)
    return losing(lambda x: helper(x) * helper(x * 2))(x)


@case
def recomputed_helper_used_twice(x, add, mean):
    helper = jax.checkpoint(lambda x: jnp.sin(mean(x) * 2))
    return losing(lambda x: helper(x) + helper(x * 3))(x)


@case
def named_helper(x, add, mean):
    helper = jax.jit(functools.partial(mean, name="helper"))
    return helper(x), helper(2 * x), helper(3 * x)


@case
def custom_vjp(x, add, mean):
    @jax.custom_vjp
    def helper(x):
        return mean(x)

    helper.defvjp(lambda x: (helper(x), None), lambda _, grad: (mean(grad * 2),))
    return losing(lambda x: helper(x) * helper(2 * x))(x), jax.jit(helper)(x)


@case
def custom_jvp(x, add, mean):
    @jax.custom_jvp
    def helper(x):
        return mean(x)

    helper.defjvp(lambda given, moves: (helper(*given), mean(moves[0] * 3)))
    return jax.jvp(lambda x: helper(x) * helper(2 * x), (x,), (x,))


@case
def map_over_rows(x, add, mean):
    return lax.map(mean, stacked(x))


@case
def associative_scan(x, add, mean):
    return lax.associative_scan(lambda a, b: mean(a) + b, x)


@case
def conjugate_gradients(x, add, mean):
    return jax.scipy.sparse.linalg.cg(lambda y: mean(2 * y), mean(x))[0]


@case
def printed_between(x, add, mean):
    jax.debug.callback(lambda y: None, x, ordered=True)
    first = mean(x)
    jax.debug.callback(lambda y: None, first, ordered=True)
    return add(first + x)


@case
def result_that_is_not_used(x, add, mean):
    add(x * 2)
    return mean(x)


class TransformsTest(rank_base.RankBase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.inputs = jnp.arange(4.0) / 8 + jnp.arange(float(cls.size))[:, None] / 4
        cls.x = cls.inputs[cls.rank]

    def check(self, got, want):
        leaves, tree = jax.tree_util.tree_flatten(got)
        wanted, other_tree = jax.tree_util.tree_flatten(want)
        self.assertEqual(tree, other_tree)
        for leaf, all_leaves in zip(leaves, wanted):
            numpy.testing.assert_allclose(leaf, all_leaves[self.rank], rtol=1e-5, atol=1e-5)

    def want(self, function):
        def alone(reduce):
            return lambda x, name=None: reduce(x, "ranks")

        run = functools.partial(function, add=alone(lax.psum), mean=alone(lax.pmean))
        return jax.jit(jax.vmap(run, axis_name="ranks"))(self.inputs)

    def run_case(self, function):
        add = functools.partial(hvd.allreduce, op=hvd.Sum)
        return jax.jit(functools.partial(function, add=add, mean=hvd.allreduce))(self.x)

    def test_each_transformation_equals_one_process(self):
        for function in CASES:
            with self.subTest(function.__name__):
                self.check(self.run_case(function), self.want(function))

    def test_the_same_where_python_is_called_back(self):
        with unittest.mock.patch.object(_compiled, "_primitive", None):
            for function in (scan, while_loop, helper_used_often, recomputed_helper_used_twice, custom_vjp):
                with self.subTest(function.__name__):
                    self.check(self.run_case(function), self.want(function))

    def test_layers_reduced_by_one_helper(self):
        """Helpers whose calls share a name, with arrays too large for an inline reduction."""
        grads = [jnp.full((128, 128), 1.0 + number) * (self.rank + 1) for number in range(8)]
        want = (self.size + 1) / 2
        for decorate in (jax.jit, jax.checkpoint):
            helper = decorate(lambda x: hvd.allreduce(x))
            step = jax.jit(functools.partial(jax.tree_util.tree_map, helper))
            for _ in range(3):
                for number, got in enumerate(step(grads)):
                    numpy.testing.assert_allclose(got, want * (1 + number), rtol=1e-6)

    def test_optimizers_whose_updates_are_jitted_apart(self):
        try:
            import optax
        except ImportError:
            self.skipTest("there is no optax")
        optimizer = hvd.DistributedOptimizer(optax.sgd(1.0))
        update = jax.jit(optimizer.update)
        groups = [{"w": jnp.full(size, self.rank + 1.0) * (number + 1)} for number, size in enumerate((4, 4, 40_000))]
        states = [optimizer.init(group) for group in groups]

        @jax.jit
        def step(groups):
            return [update(group, state)[0]["w"] for group, state in zip(groups, states)]

        for number, got in enumerate(step(groups)):
            numpy.testing.assert_allclose(got, -(self.size + 1) / 2 * (number + 1), rtol=1e-6)

    def test_a_program_that_fails_leaves_the_next_ones_as_they_are(self):
        if self.size == 1:
            self.skipTest("one rank agrees with itself")
        for size in (2, 40_000):
            program = jax.jit(lambda x: (hvd.allreduce(x, name="differ"), hvd.allreduce(x)))
            with self.assertRaisesRegex(RuntimeError, "Horovod.*differ"):
                jax.block_until_ready(program(jnp.ones(size + self.rank)))
            following = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
            for _ in range(3):
                numpy.testing.assert_array_equal(following(jnp.ones(2)), self.size)

    def test_pmap_and_shard_map_of_one_device(self):
        want = self.inputs.mean(0)[None] * 3
        helper = jax.jit(lambda x: hvd.allreduce(x))

        def function(x):
            return helper(x) + helper(2 * x)

        numpy.testing.assert_allclose(jax.pmap(function)(self.x[None]), want, rtol=1e-6)
        numpy.testing.assert_allclose(jax.pmap(function, axis_name="i")(self.x[None]), want, rtol=1e-6)
        mesh = jax.sharding.Mesh(numpy.array(jax.devices()[:1]), ("d",))
        spec = jax.sharding.PartitionSpec("d")
        shard_map = getattr(jax, "shard_map", None) or importlib.import_module("jax.experimental.shard_map").shard_map
        unchecked = {} if hasattr(jax, "shard_map") else {"check_rep": False}
        mapped = jax.jit(shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, **unchecked))
        numpy.testing.assert_allclose(mapped(self.x), want[0], rtol=1e-6)

    def test_compiled_ahead_of_time_and_donated(self):
        numpy.testing.assert_allclose(jax.jit(hvd.allreduce).lower(self.x).compile()(self.x), self.inputs.mean(0))
        donating = jax.jit(lambda x: hvd.allreduce(x) + hvd.allreduce(2 * x), donate_argnums=0)
        numpy.testing.assert_allclose(donating(self.x + 0), 3 * self.inputs.mean(0), rtol=1e-6)

    def test_other_collectives_follow_the_order(self):
        rows = jnp.arange(2.0 * self.size).reshape(self.size, 2) + self.rank
        helpers = [jax.jit(each) for each in (hvd.allgather, hvd.alltoall, lambda x: hvd.reducescatter(x, op=hvd.Sum))]
        gathered, moved, scattered = jax.jit(lambda x: [[f(x), f(2 * x)] for f in helpers])(rows)
        everything = numpy.stack([rows - self.rank + rank for rank in range(self.size)])
        for factor, got in zip((1, 2), gathered):
            numpy.testing.assert_array_equal(got, factor * everything.reshape(-1, 2))
        for factor, got in zip((1, 2), moved):
            numpy.testing.assert_array_equal(got, factor * everything[:, self.rank])
        for factor, got in zip((1, 2), scattered):
            numpy.testing.assert_array_equal(got, factor * everything.sum(0)[self.rank : self.rank + 1])


if __name__ == "__main__":
    rank_base.main()
