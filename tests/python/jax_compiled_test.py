"""horovod.jax inside compiled programs: execution, order, loops, refused arguments, errors."""

import unittest.mock

import rank_base

jax = rank_base.need("jax")
import horovod.jax as hvd
from horovod.jax import _compiled

import numpy

jnp = jax.numpy
LARGE = 40_000  # elements: too many for inline waiting


class CompiledTest(rank_base.RankBase):
    def sum_of(self, value):
        return sum(value(rank) for rank in range(self.size))

    def test_xla_calls_the_runtime_itself(self):
        self.assertTrue(_compiled.uses_ffi())
        text = jax.jit(hvd.allreduce).lower(jnp.ones(3)).as_text()
        self.assertIn("@horovod(", text)
        self.assertNotIn("callback", text)

    def test_python_is_called_back_where_xla_cannot(self):
        with unittest.mock.patch.object(_compiled, "_primitive", None):
            step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="called.back"))
            self.assertIn("callback", step.lower(jnp.ones(3)).as_text())
            numpy.testing.assert_array_equal(step(jnp.full(3, self.rank + 1.0)), self.sum_of(lambda rank: rank + 1.0))

    def test_programs_begin_with_one_token(self):
        def token():
            return _compiled.dispatch.runtime_tokens.get_token_input(_compiled._ordered_effect, jax.local_devices()[:1])

        first, step = token(), jax.jit(hvd.allreduce)
        for _ in range(2):
            jax.block_until_ready(step(jnp.ones(3)))
            self.assertIs(token(), first)  # a copy would take longer than a small step

    def test_independent_calls_of_a_program(self):
        # More operations than XLA has threads: a waiting operation must not block a thread.
        count = 24

        def step(x):
            return [hvd.allreduce(x * (i + 1), op=hvd.Sum, name=f"any.{i}")[:2] for i in range(count)]

        for size in (3, LARGE):
            got = jax.jit(step)(jnp.full(size, self.rank + 1.0))
            for i, value in enumerate(got):
                numpy.testing.assert_array_equal(value, self.sum_of(lambda rank: (rank + 1.0) * (i + 1)))

    def test_runs_that_nobody_waits_for(self):
        step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="again")[0])
        inputs = [jnp.full(LARGE, float(i + self.rank)) for i in range(20)]
        results = [step(array) for array in inputs]
        for i, result in enumerate(results):
            self.assertEqual(float(result), self.sum_of(lambda rank: i + rank))

    def test_loops_and_results_that_only_one_rank_uses(self):
        def loop(x):
            return jax.lax.fori_loop(0, 5, lambda _, y: hvd.allreduce(y, op=hvd.Average, name="loop") + 1, x)

        got = jax.jit(loop)(jnp.full(4, float(self.rank)))
        numpy.testing.assert_allclose(got, self.sum_of(float) / self.size + 5, rtol=1e-6)

        def one_uses(x):
            total = hvd.allreduce(x, op=hvd.Sum, name="unused")
            return total if self.rank == 0 else x

        got = jax.jit(one_uses)(jnp.ones(2))
        self.assertEqual(float(got[0]), self.size if self.rank == 0 else 1)

    def test_empty_arrays(self):
        got = jax.jit(lambda x: (hvd.allreduce(x), hvd.allgather(x)))(jnp.zeros((0, 3)))
        self.assertEqual([array.shape for array in got], [(0, 3), (0, 3)])

    def test_remat(self):
        def loss(x):
            return jax.checkpoint(lambda y: jnp.sin(y) * 2)(hvd.allreduce(x, op=hvd.Sum)).sum()

        got = jax.jit(jax.grad(loss))(jnp.full(2, 0.5))
        want = 2 * self.size * numpy.cos(0.5 * self.size)
        numpy.testing.assert_allclose(got, want, rtol=1e-5)

    def test_vmap_of_rows_is_refused(self):
        for function in (
            jax.vmap(hvd.allgather),
            jax.vmap(jax.jit(hvd.alltoall)),
            jax.jit(jax.vmap(hvd.reducescatter)),
        ):
            with self.assertRaisesRegex(NotImplementedError, "jax.vmap; give them the whole"):
                function(jnp.ones((2, 3)))

    def test_errors(self):
        refused = jax.jit(lambda x: hvd.allreduce(x, prescale_factor=0.0))
        with self.assertRaisesRegex(ValueError, "factor of 0"):
            refused(jnp.ones(2))
        with self.assertRaisesRegex(ValueError, "op is 'sum'"):
            jax.jit(lambda x: hvd.allreduce(x, op="sum"))(jnp.ones(2))
        with self.assertRaisesRegex(ValueError, "complex numbers"):
            jax.jit(lambda x: hvd.allreduce(x, op=hvd.Max))(jnp.ones(2, jnp.complex64))
        if self.size == 1:
            return
        for size in (2, LARGE):  # ranks disagree: each gets the error, and no rank hangs
            with self.assertRaisesRegex(RuntimeError, "differ.*shape"):
                jax.jit(lambda x: hvd.allreduce(x, name=f"differ.{size}"))(
                    jnp.ones(size + self.rank)
                ).block_until_ready()
        with self.assertRaisesRegex(RuntimeError, "root.*99"):
            jax.jit(lambda x: hvd.broadcast(x, 99))(jnp.ones(2)).block_until_ready()
        total = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.ones(()))
        self.assertEqual(float(total), self.size)

    def test_errors_of_horovod_are_what_scripts_catch(self):
        if self.size == 1:
            self.skipTest("one rank agrees with itself")

        @hvd.horovod_errors()
        def step(x, name):
            total = jax.jit(lambda y: hvd.allreduce(y, op=hvd.Sum, name=name))(x)
            return jax.block_until_ready(jax.jit(lambda y: y * 2)(total))

        ways = [_compiled._primitive] + [None] * (self.size == 2)  # callbacks: two ranks are enough
        for way in ways:
            with unittest.mock.patch.object(_compiled, "_primitive", way):
                for size in (2, LARGE):
                    with self.assertRaisesRegex(ValueError, "differ.*shape") as caught:
                        step(jnp.ones(size + self.rank), f"differ.{size}.{way}")
                    self.assertIsInstance(caught.exception, hvd.HorovodInternalError)
                    self.assertNotIn("Traceback", str(caught.exception))
                self.assertEqual(step(jnp.ones(()), f"good.{way}"), 2.0 * self.size)
        with self.assertRaises(ZeroDivisionError), hvd.horovod_errors():
            raise ZeroDivisionError

    def test_training_starts_again_after_a_failure_inside_of_a_program(self):
        if self.size == 1:
            self.skipTest("one rank has nobody to fail with")
        step_of = jax.jit(lambda w: w + hvd.allreduce(jnp.ones(LARGE), name="elastic.step", op=hvd.Sum))
        runs = []

        @hvd.elastic.run
        def train(state):
            runs.append(state.step)
            while state.step < 4:
                if state.step == 2 and len(runs) == 1 and self.rank == 0:
                    hvd.shutdown()  # the other ranks fail inside their program
                    raise hvd.HorovodInternalError("planted")
                state.weights = step_of(state.weights)
                state.weights.block_until_ready()
                state.step += 1
                state.commit()

        state = hvd.elastic.ObjectState(weights=jnp.full(LARGE, float(self.rank)), step=0)
        train(state)
        self.assertEqual(runs, [0, 2])
        numpy.testing.assert_array_equal(state.weights, 4.0 * self.size)

    def test_commits_keep_references_and_refuse_donated_arrays(self):
        import horovod._elastic as elastic

        state = hvd.elastic.ObjectState(weights={"w": jnp.ones(3)}, other=numpy.zeros(2), key=jax.random.PRNGKey(1))
        first = state.weights["w"]
        state.commit()
        self.assertIs(state._saved_state["weights"]["w"], first)
        state.weights["w"], state.weights["new"] = first + 1, 5
        state.other += 1
        state.restore()
        self.assertIs(state.weights["w"], first)
        self.assertEqual((list(state.weights), list(state.other)), (["w"], [0, 0]))
        state.sync()
        numpy.testing.assert_array_equal(state.weights["w"], [1, 1, 1])

        donating = jax.jit(lambda w: w + 1, donate_argnums=0)
        state.weights["w"] = donating(state.weights["w"])
        with self.assertRaisesRegex(ValueError, "attribute weights were donated .* leave out donate_argnums there"):
            state.commit()
        state.restore()
        self.assertIn("attribute weights were donated", state._lost)
        with self.assertRaisesRegex(RuntimeError, "has the training state. arrays of the attribute weights were"):
            elastic._choose_source(state, True)

        runs = []

        @hvd.elastic.run
        def train(state):
            runs.append(float(state.weights["w"][0]))
            if len(runs) == 1 and self.rank == 0:  # rank 0 loses its last commit; the test restores another rank's
                donating(state.weights["w"])
            if len(runs) == 1:
                hvd.shutdown()
                raise hvd.HorovodInternalError("planted")

        state = hvd.elastic.ObjectState(weights={"w": jnp.ones(3)})
        if self.size > 1:
            train(state)
            self.assertEqual((runs, state._lost), ([1, 1], None))


if __name__ == "__main__":
    rank_base.main()
