"""horovod.jax: eager, compiled and differentiated collectives; optax over all ranks."""

import os
import subprocess
import sys
import unittest
import warnings

import rank_base

jax = rank_base.need("jax")
import horovod.jax as hvd

import gradient_table
import numpy
import table_case
import table_facades

jnp = jax.numpy


class JaxGradientTableTest(gradient_table.GradientTableCase):
    framework, hvd = "jax", hvd

    def gradients(self, function, inputs, factors):
        def loss(arrays):
            return sum((each * jnp.asarray(factor)).sum() for each, factor in zip(function(arrays), factors))

        yield [numpy.asarray(each) for each in jax.grad(loss)([jnp.asarray(each) for each in inputs])]


class JaxTest(rank_base.RankBase):
    @unittest.skipIf("HOROVOD_SIZE" in os.environ, "once is enough")
    def test_importing_it_imports_no_other_framework(self):
        code = (
            "import sys, horovod.jax;assert not {'torch', 'tensorflow', 'keras', 'mxnet', 'optax'} & set(sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def own(self, dtype=jnp.float32, shape=(4, 3), rank=None):
        rank = self.rank if rank is None else rank
        count = int(numpy.prod(shape))
        low = 0 if dtype == jnp.bool_ else 1
        return jnp.asarray((numpy.arange(count).reshape(shape) + rank) % 5 + low, dtype)

    def everybody(self, *arguments):
        return numpy.stack([numpy.asarray(self.own(*arguments, rank=rank), "float64") for rank in range(self.size)])

    def assert_same(self, got, want, dtype=jnp.float32, what=""):
        self.assertIsInstance(got, jax.Array)
        self.assertEqual(got.dtype, dtype, what)
        numpy.testing.assert_allclose(numpy.asarray(got, "float64"), want, rtol=1e-6, err_msg=what)

    def both_ways(self, function, *arguments):
        """Yields the result of an eager call and of two compiled calls; the second one does not trace."""
        yield function(*arguments)
        compiled = jax.jit(function)
        yield compiled(*arguments)
        yield compiled(*arguments)

    def test_large_arrays_inside_jit(self):
        mine = jnp.full((1 << 20,), float(self.rank))
        step = jax.jit(lambda x: hvd.allreduce(x * 2 + 1, op=hvd.Sum).sum())
        for _ in range(3):
            self.assertEqual(float(step(mine)), (1 << 20) * sum(2 * rank + 1 for rank in range(self.size)))

    def test_trees_numbers_and_factors(self):
        tree = {"a": self.own(), "b": [self.own(jnp.int32, (2,)), 1.5], "none": None}
        for got in self.both_ways(lambda x: hvd.allreduce(x, op=hvd.Sum), tree):
            self.assert_same(got["a"], self.everybody().sum(0))
            self.assert_same(got["b"][0], self.everybody(jnp.int32, (2,)).sum(0), jnp.int32)
            self.assertEqual(float(got["b"][1]), 1.5 * self.size)
            self.assertIsNone(got["none"])
        mean = sum(range(self.size)) / self.size
        got = hvd.allreduce(jnp.float32(self.rank), prescale_factor=4.0, postscale_factor=0.5)
        self.assertAlmostEqual(float(got), 2 * mean, places=5)
        self.assertEqual(hvd.allreduce({}), {})

    def test_rows_of_different_numbers_outside_jit(self):
        mine = jnp.full((self.rank + 1, 2), self.rank)
        want = numpy.concatenate([numpy.full((rank + 1, 2), rank) for rank in range(self.size)])
        self.assert_same(hvd.allgather(mine), want, mine.dtype)
        splits = [self.rank] * self.size
        got, received = hvd.alltoall(jnp.full((self.rank * self.size, 1), 1.0 * self.rank), splits)
        self.assertEqual(received.tolist(), list(range(self.size)))
        self.assertEqual(got.shape, (sum(range(self.size)), 1))

    def test_gradients_of_complex_numbers_are_those_of_one_process(self):
        whole = [jnp.arange(4.0) + rank + 1j * (jnp.arange(4.0) ** 2 - rank) for rank in range(self.size)]

        def loss(output):
            return (output.real**2 * 3 + output.real * output.imag).sum()

        mine, of_one = whole[self.rank], jax.grad(loss)
        for op, factor in [(hvd.Sum, 1), (hvd.Average, 1 / self.size)]:
            # Each rank adds its loss, computed from the same result.
            want = of_one(sum(whole) * factor) * factor * self.size
            for got in self.both_ways(jax.grad(lambda x: loss(hvd.allreduce(x, op=op))), mine):
                self.assert_same(got.real, want.real, mine.real.dtype)
                self.assert_same(got.imag, want.imag, mine.real.dtype)
        for got in self.both_ways(jax.grad(lambda x: loss(hvd.allgather(x))), mine):
            self.assert_same(got.imag, of_one(mine).imag, mine.real.dtype)

    def test_wrong_arguments_of_an_optimizer_are_refused(self):
        try:
            import optax
        except ImportError as error:
            self.skipTest(f"optax is not there: {error}")
        for optimizer, more, words in [
            ("sgd", {}, "of optax.*not 'sgd'"),
            (optax.sgd(0.1), {"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "Average"),
            (optax.sgd(0.1), {"compression": "fp16"}, "compression is 'fp16'"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                hvd.DistributedOptimizer(optimizer, **more)

    def test_compressed_gradients(self):
        import optax

        grads = {"wide": jnp.full(3, 1 / 3), "whole": jnp.ones(2, jnp.int32)}
        for compression, type_ in [
            (hvd.Compression.none, jnp.float32),
            (hvd.Compression.fp16, jnp.float16),
            (hvd.Compression.bf16, jnp.bfloat16),
        ]:
            optimizer = hvd.DistributedOptimizer(optax.identity(), op=hvd.Sum, compression=compression)
            got, _ = jax.jit(optimizer.update)(grads, optimizer.init(grads))
            self.assertEqual((got["wide"].dtype, got["whole"].dtype), (jnp.float32, jnp.int32))
            sent = grads["wide"].astype(type_).astype(jnp.float32) * self.size
            numpy.testing.assert_allclose(got["wide"], sent, rtol=1e-2)
            if self.size == 2:  # a sum of two equal values is exact: only the type causes errors
                numpy.testing.assert_array_equal(got["wide"], sent)

    def test_a_dropped_result_of_broadcast_parameters_is_named(self):
        def reduced(use):
            """Returns the warnings of the first collective after this use of new parameters."""
            params = {"w": jnp.full(2, self.rank + 1.0), "b": jnp.ones(1)}
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                kept = use(params)
                for _ in range(2):
                    hvd.allreduce(jnp.ones(1))
                del kept
            return [str(each.message) for each in caught if "if it trains from the latter" in str(each.message)]

        def drop(params):
            hvd.broadcast_parameters(params)
            return params

        def copy(params):
            result = {name: value + 0 for name, value in hvd.broadcast_parameters(params).items()}
            params.clear()
            return result

        self.assertEqual(len(reduced(drop)), 1 if self.rank == 1 else 0)
        self.assertEqual(reduced(hvd.broadcast_parameters), [])
        self.assertEqual(reduced(copy), [])
        self.assertEqual(reduced(lambda params: hvd.broadcast_parameters(hvd.broadcast_parameters(params))), [])

    def test_wrong_arguments_are_refused(self):
        with self.assertRaises(NotImplementedError):
            jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max).sum())(self.own())
        with self.assertRaises(ValueError):
            hvd.allreduce(jnp.ones(2), prescale_factor=0.0)
        with self.assertRaises(ValueError):
            hvd.allreduce(jnp.ones(2, jnp.complex64), op=hvd.Product)
        if self.size > 1:
            with self.assertRaisesRegex(ValueError, "shapes"):
                hvd.allreduce(jnp.ones(2 + self.rank), name="shapes")
            with self.assertRaisesRegex(Exception, "inside jax.jit shapes are fixed"):
                jax.jit(hvd.allgather)(jnp.ones((min(self.rank, 1) + 1, 2))).block_until_ready()
        self.assertEqual(float(hvd.allreduce(1.0, op=hvd.Sum)), self.size)


class JaxValuesTest(rank_base.RankBase):
    """Without jax_enable_x64, JAX has no types of 64 bits."""

    def setUp(self):
        super().setUp()
        self.assertFalse(jax.config.jax_enable_x64)

    def test_broadcast_parameters_keeps_the_type_of_each_leaf(self):
        def tree(rank):
            return {
                "seen": 2**40 + rank,
                "small": 1e-50 * (rank + 1),
                "yes": rank % 2 == 0,
                "none": None,
                "text": "text",
                "jax": jnp.full(2, rank, jnp.bfloat16),
                "int64": numpy.int64(2**41 + rank),
                "float64": numpy.array([[1e-300 * (rank + 1)]]),
                "float32": numpy.full(3, rank, "float32"),
                "scalar": numpy.float64(1e300 + rank),
                "key": jax.random.key(rank),
                "keys": jax.random.split(jax.random.key(rank, impl="rbg"), 3),
                "old_key": jax.random.PRNGKey(rank),
            }

        root = self.size - 1
        got, want = hvd.broadcast_parameters(tree(self.rank), root), tree(root)
        for name, value in got.items():
            self.assertIs(type(value), type(want[name]), name)
            if name.startswith("key"):
                self.assertEqual(value.dtype, want[name].dtype)
                numpy.testing.assert_array_equal(jax.random.key_data(value), jax.random.key_data(want[name]))
                numpy.testing.assert_array_equal(
                    jax.vmap(jax.random.uniform)(value.reshape(-1)),
                    jax.vmap(jax.random.uniform)(want[name].reshape(-1)),
                )
                continue
            if hasattr(value, "dtype"):
                self.assertEqual((value.dtype, value.shape), (want[name].dtype, want[name].shape), name)
            numpy.testing.assert_array_equal(value, want[name], name)

    def test_eager_collectives_cut_no_value(self):
        big = numpy.array([2**40 + self.rank, -1])
        small = numpy.full((self.size, 1), 1e-50 * (self.rank + 1))
        every = [2**40 + rank for rank in range(self.size)]
        for got, want in [
            (hvd.allreduce(big, op=hvd.Max), [every[-1], -1]),
            (hvd.allreduce({"a": big}, op=hvd.Sum)["a"], [sum(every), -self.size]),
            (hvd.allgather(big[:1]), every),
            (hvd.broadcast(big, self.size - 1), [every[-1], -1]),
            (hvd.alltoall(numpy.full(self.size, every[self.rank])), every),
            (hvd.alltoall(numpy.full(self.size, every[self.rank]), [1] * self.size)[0], every),
            (hvd.reducescatter(numpy.full(self.size, every[self.rank]), op=hvd.Sum), [sum(every)]),
        ]:
            self.assertIsInstance(got, numpy.ndarray)
            self.assertEqual((got.dtype, got.tolist()), (numpy.int64, want))
        got = hvd.reducescatter(small, op=hvd.Sum)
        numpy.testing.assert_allclose(got, [[1e-50 * sum(range(1, self.size + 1))]], rtol=1e-15, atol=0)
        for value, kind in [(2**40 + self.rank, int), (1e-50 * (self.rank + 1), float), (self.rank == 0, bool)]:
            got = hvd.allreduce(value, op=hvd.Max)
            self.assertIs(type(got), kind)
            self.assertIs(type(hvd.broadcast(value, 0)), kind)
        self.assertEqual(hvd.allreduce(2**40 + self.rank, op=hvd.Max), every[-1])
        self.assertEqual(hvd.broadcast(1e-50 * (self.rank + 1), 0), 1e-50)
        mean = hvd.allreduce(0.1 * (self.rank + 1))
        self.assertAlmostEqual(mean, sum(0.1 * (rank + 1) for rank in range(self.size)) / self.size, places=15)
        self.assertIsInstance(hvd.allreduce(numpy.ones(2, "float32")), jax.Array)
        for function in (hvd.allreduce, lambda x: hvd.broadcast(x, 0)):
            with self.assertRaisesRegex(OverflowError, "more than 64 bits; send it by broadcast_object"):
                function(2**70)

    def test_traced_functions_refuse_values_that_jax_would_cut(self):
        for value in (2**40, numpy.array([2**40]), numpy.array([2**63], "uint64"), 1e-50, 1e300, numpy.array([1e-50])):
            for function in (lambda v: hvd.allreduce(v, op=hvd.Sum), lambda v: hvd.broadcast(v, 0)):
                with self.assertRaisesRegex(OverflowError, "does not fit into .*set jax_enable_x64"):
                    jax.jit(lambda x: function(value) + x)(jnp.ones(1))
        with self.assertRaises(OverflowError):
            hvd.allgather([2**40])
        for value in (2**20, numpy.array([-(2**31)]), 0.5, numpy.array([0.0, numpy.inf])):
            got = jax.jit(lambda x: hvd.broadcast(value, 0) + 0 * x)(jnp.ones(()))
            numpy.testing.assert_array_equal(got, value)

    def test_keys(self):
        key = hvd.broadcast(jax.random.key(self.rank), self.size - 1)
        self.assertEqual(jax.random.uniform(key), jax.random.uniform(jax.random.key(self.size - 1)))
        key = jax.jit(lambda k: hvd.broadcast(k, self.size - 1))(jax.random.key(self.rank))
        self.assertEqual(jax.random.uniform(key), jax.random.uniform(jax.random.key(self.size - 1)))
        for function in (hvd.allreduce, hvd.allgather, jax.jit(hvd.allreduce)):
            with self.assertRaisesRegex(ValueError, "key<fry>.*not supported"):
                function(jax.random.split(jax.random.key(0), self.size))

    def test_elastic_state_keeps_types(self):
        def values(rank):
            return {
                "seen": 2**40 + rank,
                "seed": numpy.int64(2**41 + rank),
                "offsets": numpy.array([2**42 + rank]),
                "rate": 1e-50 * (rank + 1),
                "key": jax.random.key(rank),
            }

        def plain(state):
            return {
                name: jax.random.key_data(value).tolist() if name == "key" else value for name, value in state.items()
            }

        state = hvd.elastic.ObjectState(tree={"nested": values(self.rank)}, **values(self.rank))
        state.sync()
        for step in ("sync", "commit and restore"):
            for got in (state.tree["nested"], {name: getattr(state, name) for name in values(0)}):
                self.assertEqual(plain(got), plain(values(0)), step)
                for name, value in values(0).items():
                    self.assertIs(type(got[name]), type(value), name)
            state.commit()
            state.seen, state.tree = 0, None
            state.restore()


class JaxTableTest(table_case.TableCase):
    make_facade = table_facades.Jax

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        jax.config.update("jax_enable_x64", True)
        cls.addClassCleanup(jax.config.update, "jax_enable_x64", False)


if __name__ == "__main__":
    rank_base.main()
