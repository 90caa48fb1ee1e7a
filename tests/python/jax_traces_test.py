"""horovod.jax: changes that a trace makes on one rank only, and functions that refuse to be traced."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # for pmap and shard_map

import unittest.mock

import rank_base

jax = rank_base.need("jax")
import horovod.jax as hvd
from horovod.jax import _compiled

import numpy

jnp = jax.numpy
shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map


class TracesTest(rank_base.RankBase):
    def sum_of(self, value):
        return sum(value(rank) for rank in range(self.size))

    def ways(self):
        """Counts calls of the handler, and of Python."""
        for primitive in (_compiled._primitive, None):
            with unittest.mock.patch.object(_compiled, "_primitive", primitive), self.subTest(primitive=primitive):
                yield primitive

    def test_a_trace_on_one_rank_changes_no_name(self):
        def function(x):
            return hvd.allreduce(x, op=hvd.Sum) + hvd.allreduce(2 * x, op=hvd.Sum)

        for _ in self.ways():
            step = jax.jit(lambda x: function(x))
            if self.rank == 0:
                jax.eval_shape(step, jnp.ones(3))
                jax.make_jaxpr(step)(jnp.ones(3))
                step.lower(jnp.ones(3))
            want = 3 * self.sum_of(lambda rank: rank + 1.0)
            for repetition in range(3):
                numpy.testing.assert_array_equal(step(jnp.full(3, self.rank + 1.0)), want)
                if self.rank == repetition:
                    step.clear_cache()
                if self.rank == 0:
                    jax.eval_shape(lambda x: function(x), jnp.ones(4))

    def test_the_last_batch_of_one_rank_is_smaller(self):
        import optax

        for _ in self.ways():
            optimizer = hvd.DistributedOptimizer(optax.sgd(0.5))
            other = hvd.DistributedOptimizer(optax.sgd(0.25))

            @jax.jit
            def step(params, states, batch):
                grads = jax.grad(lambda p: (batch @ p).sum())(params)
                first, states0 = optimizer.update(grads, states[0], params)
                second, states1 = other.update(grads, states[1], params)
                return optax.apply_updates(optax.apply_updates(params, first), second), (states0, states1)

            params = jnp.zeros(2)
            states = optimizer.init(params), other.init(params)
            want = numpy.zeros(2)
            for number in range(4):
                rows = [
                    8 - (number == 2 and rank == self.size - 1) - (number == 3 and rank == 0)
                    for rank in range(self.size)
                ]
                params, states = step(params, states, jnp.full((rows[self.rank], 2), self.rank + 1.0))
                want -= 0.75 * sum(count * (rank + 1.0) for rank, count in enumerate(rows)) / self.size
                numpy.testing.assert_allclose(params, want, rtol=1e-6)

    def test_each_unnamed_call_of_a_program_has_its_own_name(self):
        @jax.jit
        def inner(x):
            return hvd.allreduce(x, op=hvd.Sum)

        def scanned(x):
            return jax.lax.scan(lambda y, _: (hvd.allreduce(y, op=hvd.Average), None), x, None, length=2)[0]

        def program(x):
            return inner(x) + scanned(x) + scanned(2 * x) + hvd.allreduce(x) + hvd.allgather(x)[:2]

        text = jax.jit(program).lower(jnp.ones(2)).as_text()
        for name in ("grouped_allreduce.jit_program.1", "grouped_allreduce.jit_program.4", "allgather.jit_program.1"):
            self.assertEqual(text.count(f'"{name}"'), 1, name)
        self.assertNotIn("noname", text)
        mine = jnp.full(2, self.rank + 1.0)
        total = self.sum_of(lambda rank: rank + 1.0)
        numpy.testing.assert_allclose(jax.jit(program)(mine), total + 4 * total / self.size + 1, rtol=1e-6)

    def test_calls_with_constants_belong_to_the_traced_function(self):
        step = jax.jit(lambda x: x + hvd.allreduce(jnp.ones(2), op=hvd.Sum) + hvd.allreduce(1.0, op=hvd.Sum))
        if self.rank == 0:
            jax.eval_shape(step, jnp.zeros(2))
        numpy.testing.assert_array_equal(step(jnp.zeros(2)), 2.0 * self.size)

    def test_several_devices_of_a_process_are_refused(self):
        self.assertEqual(len(jax.devices()), 2)
        x = jnp.arange(2.0)
        mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("d",))
        spec = jax.sharding.PartitionSpec("d")
        split = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
        unchecked = {"check_vma": False} if hasattr(jax, "shard_map") else {"check_rep": False}
        for primitive in self.ways():
            # JAX 0.5 refuses pmap itself when the program calls back into Python.
            others = "^$" if primitive is not None else "Ordered effects not supported in `pmap`"
            for collective in (lambda y: hvd.allreduce(y, op=hvd.Sum), lambda y: hvd.broadcast(y, 0), hvd.allgather):
                mapped = shard_map(collective, mesh=mesh, in_specs=spec, out_specs=spec)
                for function, value in [
                    (jax.pmap(lambda y: collective(y[None])[0]), x),
                    (mapped, x),
                    (jax.jit(mapped), x),
                    (jax.jit(lambda y: collective(y)), split),
                    (shard_map(collective, mesh=mesh, in_specs=spec, out_specs=spec, **unchecked), x),
                ]:
                    with self.assertRaisesRegex(
                        (NotImplementedError, ValueError), "2 devices of this process.*one rank for each|" + others
                    ):
                        function(value)
        self.assertEqual(float(hvd.allreduce(1.0, op=hvd.Sum)), self.size)


class OptaxTest(rank_base.RankBase):
    def train(self, optimizer, compiled, bad=None):
        """Makes five steps with gradients rank + 1 + step; rank 1 has an infinite gradient in step `bad`. Returns the
        parameters."""
        import optax

        def step(params, state, grads):
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        run = jax.jit(step) if compiled else step
        params = jnp.ones(3)
        state = optimizer.init(params)
        for number in range(5):
            grads = jnp.full(3, self.rank + 1.0 + number)
            params, state = run(
                params,
                state,
                grads.at[0].set(jnp.inf if number == bad and self.rank == min(1, self.size - 1) else grads[0]),
            )
        return numpy.asarray(params)

    def want(self, bad=None, every=1):
        means = [
            sum(rank + 1.0 + number for rank in range(self.size)) / self.size for number in range(5) if number != bad
        ]
        if every == 2:
            means = [(means[0] + means[1]) / 2, (means[2] + means[3]) / 2]
        return numpy.full(3, 1 - 0.1 * sum(means), "float32")

    def test_wrappers_that_decide_by_the_gradients(self):
        import optax

        ours = hvd.DistributedOptimizer(optax.sgd(0.1))
        skip = optax.skip_not_finite
        for compiled in (True, False):
            inside = hvd.DistributedOptimizer(optax.apply_if_finite(optax.sgd(0.1), 5))
            numpy.testing.assert_allclose(self.train(inside, compiled, bad=2), self.want(bad=2), rtol=1e-5)
            steps = optax.MultiSteps(optax.sgd(0.1), 1, should_skip_update_fn=skip)
            inside = hvd.DistributedOptimizer(steps.gradient_transformation())
            numpy.testing.assert_allclose(self.train(inside, compiled, bad=2), self.want(bad=2), rtol=1e-5)
            for around in (
                optax.apply_if_finite(ours, 5),
                optax.MultiSteps(ours, 2, should_skip_update_fn=skip),
                optax.MultiSteps(
                    optax.chain(optax.clip(1e9), ours),
                    2,
                    should_skip_update_fn=(lambda grads, *_: (jnp.any(jnp.isnan(grads)), ())),
                ).gradient_transformation(),
                optax.chain(optax.apply_if_finite(optax.chain(ours), 5), optax.scale(1.0)),
            ):
                if self.size == 1:  # a single rank always agrees
                    self.train(around, compiled)
                    continue
                sentence = r"DistributedOptimizer: optax.*this rank alone.*DistributedOptimizer\(optax"
                with self.assertRaisesRegex(NotImplementedError, sentence):
                    self.train(around, compiled)

    def test_plain_multi_steps_around_and_inside(self):
        import optax

        for compiled in (True, False):
            around = optax.MultiSteps(hvd.DistributedOptimizer(optax.sgd(0.1)), 2)
            inside = hvd.DistributedOptimizer(optax.MultiSteps(optax.sgd(0.1), 2))
            for optimizer in (around, around.gradient_transformation(), inside):
                numpy.testing.assert_allclose(self.train(optimizer, compiled), self.want(every=2), rtol=1e-5)


if __name__ == "__main__":
    rank_base.main()
