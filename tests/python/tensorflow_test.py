"""horovod.tensorflow: collectives in eager calls, functions and gradients, compared with numpy."""

import os
import subprocess
import sys
import tempfile
import threading
from unittest import mock

os.environ.setdefault("HVD_TEST_SECONDS", "240")  # all ranks trace functions at the same time
import rank_base

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = rank_base.need("tensorflow")
OTHERS = {"torch", "mxnet", "jax"} - set(sys.modules)  # TensorFlow 2.12 imports JAX
import horovod.tensorflow as hvd

IMPORTED = dict(vars(hvd))  # the module's names before other imports
from horovod.tensorflow import _compiled, _nodes

import gradient_table
import numpy
import table_case
import table_facades

tf.get_logger().setLevel("ERROR")  # no warnings about functions that a loop makes on purpose


class TensorFlowTest(rank_base.RankBase):
    def values(self, rank, shape=(4, 3)):
        return (numpy.arange(int(numpy.prod(shape))).reshape(shape) + rank) % 3 + 1.0

    def own(self, dtype=tf.float32, shape=(4, 3)):
        return tf.cast(self.values(self.rank, shape), dtype)

    def everybody(self, dtype=tf.float32, shape=(4, 3)):
        cast = [tf.cast(self.values(rank, shape), dtype) for rank in range(self.size)]
        return numpy.stack([tf.cast(one, tf.float64).numpy() for one in cast])

    def same(self, got, want, dtype=tf.float32, tolerance=1e-6):
        self.assertEqual(got.dtype, dtype)
        numpy.testing.assert_allclose(tf.cast(got, tf.float64).numpy(), want, rtol=tolerance)

    def both_ways(self, function, *arguments):
        """Yields the result of an eager call and of two calls of a graph; the second call does not trace."""
        yield function(*arguments)
        compiled = tf.function(function)
        yield compiled(*arguments)
        yield compiled(*arguments)

    def test_groups_factors_and_compression(self):
        tensors = [self.own(), self.own(tf.int32, (3,)), tf.constant(1.5)]
        for got in self.both_ways(lambda *all_: hvd.grouped_allreduce(list(all_), op=hvd.Sum), *tensors):
            self.same(got[0], self.everybody().sum(0))
            self.same(got[1], self.everybody(tf.int32, (3,)).sum(0), tf.int32)
            self.same(got[2], 1.5 * self.size)
        for got in self.both_ways(lambda *all_: hvd.grouped_allgather(list(all_)), *tensors[:2]):
            self.same(got[1], self.everybody(tf.int32, (3,)).reshape(-1), tf.int32)
        for got in self.both_ways(
            lambda x: hvd.grouped_reducescatter([x, 2 * x], op=hvd.Sum), self.own(shape=(self.size, 2))
        ):
            want = self.everybody(tf.float32, (self.size, 2)).sum(0)[self.rank : self.rank + 1]
            self.same(got[1], 2 * want)
        third = 1.0 / 3
        got = hvd.allreduce(self.own(tf.float64), op=hvd.Sum, prescale_factor=third, postscale_factor=0.1)
        numpy.testing.assert_allclose(got, self.everybody().sum(0) * third * 0.1, rtol=1e-14)
        for kind in [hvd.Compression.fp16, hvd.Compression.bf16]:
            got = hvd.allreduce(self.own(), op=hvd.Sum, compression=kind)
            self.same(got, self.everybody().sum(0))

    def test_a_graph_knows_shapes(self):
        def reduce(x):
            return hvd.grouped_allreduce([2 * x, x, x[0, 0]], op=hvd.Sum, name="known") + [x]

        def said(function):
            (node,) = [
                op for op in function.get_concrete_function().graph.get_operations() if op.type == "HorovodAllreduce"
            ]
            return list(node.get_attr("shapes"))

        want = self.everybody().sum(0)
        for rows, shapes in [(4, [2, 4, 3, 2, 4, 3, 0]), (None, [])]:
            function = tf.function(reduce, input_signature=[tf.TensorSpec([rows, 3])])
            self.assertEqual(said(function), shapes)
            for _ in range(2):
                doubled, plain, first, own = function(self.own())
                self.same(doubled, 2 * want)
                self.same(plain, want)
                self.same(first, want[0, 0])
                self.same(own, self.values(self.rank))

        @tf.function
        def told_wrong():
            x = tf.numpy_function(lambda: numpy.ones(3, numpy.float32), [], tf.float32)
            x.set_shape([4])
            return hvd.allreduce(x, name="told_wrong")

        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "not the shape that the graph"):
            told_wrong()

    def test_gradients_of_complex_numbers_are_those_of_one_process(self):
        whole = [numpy.arange(4.0) + rank + 1j * (numpy.arange(4.0) ** 2 - rank) for rank in range(self.size)]

        def gradient(of):
            def run(x):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    output = of(x)
                    real, imaginary = tf.math.real(output), tf.math.imag(output)
                    loss = tf.reduce_sum(real**2 * 3.0 + real * imaginary)
                return tape.gradient(loss, x)

            return run

        mine = tf.constant(whole[self.rank])
        for op, factor in [(hvd.Sum, 1), (hvd.Average, 1 / self.size)]:
            # Each rank adds its loss, computed from the same result.
            want = gradient(lambda x: x)(tf.constant(sum(whole) * factor)).numpy() * factor * self.size
            for got in self.both_ways(gradient(lambda x: hvd.allreduce(x, op=op)), mine):
                numpy.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
        gathered = gradient(lambda x: x)(mine).numpy()
        for got in self.both_ways(gradient(hvd.allgather), mine):
            numpy.testing.assert_allclose(got.numpy(), gathered, rtol=1e-12)
        variable = tf.Variable(whole[self.rank])
        hvd.broadcast_variables([variable], 0)
        numpy.testing.assert_allclose(variable.numpy(), whole[0])

    def test_a_maximum_has_no_gradient(self):
        with tf.GradientTape() as tape:
            own = self.own()
            tape.watch(own)
            loss = tf.reduce_sum(hvd.allreduce(own, op=hvd.Max))
        with self.assertRaisesRegex(Exception, "Max or Product"):
            tape.gradient(loss, own)

    def test_a_batch_of_iterations_and_jacobians(self):
        total = self.size * (self.size + 1) / 2
        rows = tf.reshape(tf.range(6.0), (3, 2)) * (self.rank + 1)
        whole = numpy.arange(6.0).reshape(3, 2)
        for call, want in [
            (lambda row: hvd.allreduce(row, op=hvd.Sum, postscale_factor=2.0), whole * total * 2),
            (lambda row: hvd.broadcast(row, self.size - 1), whole * self.size),
            (lambda row: hvd.grouped_allreduce([row, tf.ones(3)], op=hvd.Max)[0], whole * self.size),
            (lambda row: row + hvd.allreduce(tf.ones(2)) * tf.cast(hvd.size_op(), tf.float32), rows + self.size),
        ]:
            for got in self.both_ways(lambda x, call=call: tf.vectorized_map(call, x), rows):
                self.same(got, want)

        def jacobian(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x * x * (self.rank + 1.0)
            return hvd.DistributedGradientTape(tape).jacobian(y, x)

        for got in self.both_ways(jacobian, tf.range(4.0)):
            self.same(got, numpy.diag(2 * numpy.arange(4.0)) * total / self.size)
        for call in (hvd.allgather, hvd.alltoall, lambda row: hvd.allreduce(row, op=hvd.Adasum)):
            with self.assertRaisesRegex(NotImplementedError, "vectorized_map"):
                tf.vectorized_map(call, tf.ones((3, 2 * self.size)))

    def test_indexed_slices(self):
        slices = tf.IndexedSlices(self.own(shape=(2, 3)), tf.constant([self.rank, 5]), tf.constant([8, 3]))
        want = numpy.zeros((8, 3))
        for rank in range(self.size):
            want[rank] += self.values(rank, (2, 3))[0]
            want[5] += self.values(rank, (2, 3))[1]
        got = hvd.allreduce(slices, op=hvd.Sum)
        self.assertIsInstance(got, tf.IndexedSlices)
        self.same(tf.convert_to_tensor(got), want)
        self.same(tf.convert_to_tensor(hvd.allreduce(slices)), want / self.size)
        with self.assertRaisesRegex(NotImplementedError, "Sum or hvd.Average"):
            hvd.allreduce(slices, op=hvd.Max)
        with self.assertRaisesRegex(ValueError, "factor of 0"):
            hvd.allreduce(slices, op=hvd.Sum, postscale_factor=0.0)
        whole = tf.IndexedSlices(tf.constant([-7, 5], tf.int32), tf.constant([0, 1]), tf.constant([2]))
        self.same(hvd.allreduce(whole, op=hvd.Sum, prescale_factor=0.5).values, [-3, 2] * self.size, tf.int32)

    def test_averages_of_integers_in_indexed_slices_are_floats_as_by_the_division_of_tensorflow(self):
        for type_, average in [
            ("uint8 int8 uint16 int16", tf.float32),
            ("uint32 int32 uint64 int64", tf.float64),
            ("float16", tf.float16),
            ("bfloat16", tf.bfloat16),
        ]:
            for name in type_.split():
                rows = tf.cast(tf.constant([[3], [1]]), name)
                slices = tf.IndexedSlices(rows, tf.constant([0, 1]), tf.constant([2, 1]))
                for reduce in (hvd.allreduce, lambda each, **options: hvd.grouped_allreduce([each], **options)[0]):
                    want = numpy.array([[3], [1]] * self.size)
                    self.same(reduce(slices).values, want / self.size, average, tolerance=0.01)
                    self.same(reduce(slices, op=hvd.Sum).values, want, rows.dtype)
        large = tf.IndexedSlices(tf.constant([2**52 + 1], tf.int64), tf.constant([0]), tf.constant([1]))
        got = hvd.allreduce(large, prescale_factor=float(self.size)).values  # exact in float64
        self.assertEqual([int(value) for value in got], [2**52 + 1] * self.size)

    def test_numbers_objects_barrier_and_join(self):
        for got in self.both_ways(
            lambda: (
                hvd.rank_op(),
                hvd.size_op(),
                hvd.local_rank_op(),
                hvd.local_size_op(),
                hvd.process_set_included_op(),
            )
        ):
            self.assertEqual(
                [int(number) for number in got], [self.rank, self.size, hvd.local_rank(), hvd.local_size(), 1]
            )
        self.assertEqual(hvd.broadcast_object({"a": self.rank}, self.size - 1)["a"], self.size - 1)
        self.assertEqual(hvd.broadcast_object_fn()(self.rank), 0)
        self.assertEqual(hvd.allgather_object(self.rank), list(range(self.size)))
        self.assertFalse(hvd.mpi_threads_supported())
        hvd.barrier()
        if self.rank == 0:
            hvd.allreduce(tf.ones(3), name="joined")
        self.assertIn(hvd.join(), range(self.size))

    def test_variables(self):
        variables = [tf.Variable(self.own()), tf.Variable(self.rank), tf.Variable([True])]
        hvd.broadcast_variables(variables, root_rank=self.size - 1)
        self.same(variables[0].read_value(), self.everybody()[-1])
        self.assertEqual(int(variables[1]), self.size - 1)
        variable = tf.Variable(float(self.rank))
        self.assertIs(hvd.broadcast_([variable], 0)[0], variable)
        self.assertEqual(float(variable), 0.0)
        variable.assign(self.rank + 1.0)

        @tf.function
        def broadcast():
            hvd.broadcast_variables([variable], root_rank=0)

        broadcast()
        self.assertEqual(float(variable), 1.0)
        hvd.broadcast_variables([], 0)
        with self.assertRaisesRegex(ValueError, "a list of variables"):
            hvd.broadcast_variables(variable.name, 0)
        with self.assertRaisesRegex(RuntimeError, "broadcast_variables"):
            hvd.broadcast_global_variables(0)

    def test_process_sets(self):
        if self.size < 2:
            self.skipTest("needs two ranks")
        evens = hvd.add_process_set(range(0, self.size, 2))
        if evens.included():
            got = hvd.allreduce(self.own(), op=hvd.Sum, process_set=evens)
            self.same(got, self.everybody()[::2].sum(0))
            self.assertEqual(int(hvd.size_op(evens.process_set_id)), evens.size())
        self.assertEqual(int(hvd.process_set_included_op(evens.process_set_id)), int(self.rank % 2 == 0))
        hvd.remove_process_set(evens)

    def test_more_operations_than_threads_in_opposite_orders(self):
        # If a thread of TensorFlow waited for other ranks, this program would never end.
        count = 64

        @tf.function
        def reduce_all(x):
            order = range(count) if self.rank % 2 == 0 else reversed(range(count))
            results, last = {}, x
            for i in order:
                with tf.control_dependencies([last] if i % 4 == 0 else []):
                    last = tf.identity(x) + i
                results[i] = hvd.allreduce(last, op=hvd.Sum, name=f"many.{i}")
            return [results[i] for i in range(count)]

        for _ in range(3):
            for i, got in enumerate(reduce_all(tf.constant(1.0))):
                self.assertEqual(float(got), (1.0 + i) * self.size)

    def test_one_thread_runs_collectives_that_ranks_reach_in_opposite_orders(self):
        count = 40
        one = tf.compat.v1.ConfigProto(
            inter_op_parallelism_threads=1, intra_op_parallelism_threads=1, use_per_session_threads=True
        )
        with tf.Graph().as_default(), tf.compat.v1.Session(config=one) as session:
            started = last = tf.compat.v1.placeholder(tf.float32, [])
            results = {}
            for i in range(count) if self.rank % 2 == 0 else reversed(range(count)):
                with tf.control_dependencies([last]):  # this thread submits the operations in this order
                    last = started + float(i)
                results[i] = hvd.allreduce(last, op=hvd.Sum, name=f"one_thread.{i}")
            got = session.run([results[i] for i in range(count)], {started: 1.0})
        self.assertEqual(got, [(1.0 + i) * self.size for i in range(count)])

    def test_threads_that_wait_a_moment_do_not_wait_for_ever(self):
        # On each rank, all threads run operations that no other rank has submitted yet.
        count = 6

        @tf.function
        def reduce_all(x):
            order = range(count) if self.rank % 2 == 0 else reversed(range(count))
            results = {}
            for i in order:
                results[i] = _nodes.allreduce([x + i], f"patient.{i}", hvd.Sum, 0, 0, 0, True)[0]
            return [results[i] for i in range(count)]

        for _ in range(3):
            for i, got in enumerate(reduce_all(tf.constant(1.0))):
                self.assertEqual(float(got), (1.0 + i) * self.size)

    def test_a_rank_that_traces_once_more_says_the_same(self):
        @tf.function
        def mean(x):
            return hvd.allreduce(tf.reduce_mean(x))

        for step in range(3):
            rows = 4 + (self.rank if step == 2 else 0)  # another shape makes another graph
            self.assertAlmostEqual(
                float(mean(tf.fill([rows, 2], float(self.rank)))), sum(range(self.size)) / self.size, places=5
            )

    def test_calls_of_other_threads(self):
        results = {}

        def work(number):
            results[number] = hvd.allreduce(tf.constant(float(number)), op=hvd.Sum, name=f"thread.{number}")

        order = range(8) if self.rank % 2 == 0 else reversed(range(8))
        threads = [threading.Thread(target=work, args=(number,)) for number in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, got in results.items():
            self.assertEqual(float(got), number * self.size)

    def test_xla_says_which_operation_it_cannot_compile(self):
        option = "experimental_compile" if tf.__version__.startswith("2.4.") else "jit_compile"

        def by_xla(function, chosen=True):
            return tf.function(function, **{option: chosen})

        def compiled(x):
            return hvd.allreduce(x) + 1

        def outer(x):
            return tf.function(compiled)(x)

        traced = tf.function(lambda x: by_xla(compiled)(x))
        for function, name in [
            (by_xla(compiled), "compiled"),
            (by_xla(outer), "compiled"),
            (traced, "compiled"),
            (by_xla(hvd.size_op), ".*"),
        ]:
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, f"Horovod[A-Z][a-z]+ in the function '{name}': XLA cannot"
            ):
                # Nothing is computed: the trace raises the error.
                function.get_concrete_function(*[tf.ones(2)] * (name != ".*"))
        self.same(by_xla(compiled, False)(tf.ones(2)), numpy.full(2, 2.0))
        self.assertIs(hvd.is_homogeneous(), True)

    def test_wrong_arguments_are_refused(self):
        for call in [
            lambda: hvd.allreduce(tf.ones(2), prescale_factor=0.0),
            lambda: hvd.allreduce(tf.ones(2, tf.complex64), op=hvd.Min),
            lambda: hvd.allreduce(tf.constant("text")),
            lambda: hvd.allreduce(tf.ones(2), average=True, op=hvd.Sum),
            lambda: hvd.grouped_allreduce(tf.ones(2)),
            lambda: hvd.grouped_allgather([]),
            lambda: hvd.allreduce(tf.ones(2), process_set=hvd.ProcessSet([0])),
        ]:
            with self.assertRaises(ValueError):
                call()
        for call, words in [
            (lambda: hvd.alltoall(tf.ones(2), splits=2), "splits is 2; give whole"),
            (lambda: hvd.alltoall(tf.ones(2), splits="ab"), "splits is 'ab'; give whole"),
            (lambda: hvd.alltoall(tf.ones(2), splits=[1.5]), r"splits is \[1.5\]; give whole"),
            (lambda: hvd.allreduce(tf.ones(2), postscale_factor="x"), "factor is 'x', a str"),
            (lambda: hvd.allreduce(tf.sparse.from_dense([[1.0]])), "not a SparseTensor"),
            (lambda: hvd.allreduce(None), "not a NoneType"),
            (lambda: hvd.broadcast_variables([1.0], 0), "and not a float"),
            (lambda: hvd.broadcast_variables([tf.ones(1)], 0), "and not a EagerTensor"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                call()
        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "a scalar has no rows"):
            hvd.allgather(tf.constant(1.0))
        with self.assertRaises(tf.errors.InvalidArgumentError):
            hvd.broadcast(tf.ones(2), self.size)
        if self.size > 1:
            with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "shape.*on rank 0"):
                hvd.allreduce(tf.ones(2 + self.rank), name="shapes")
            function = tf.function(lambda x: hvd.allreduce(x, name="types"))
            with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "on rank"):
                function(self.own(tf.float32 if self.rank else tf.float64))
        self.assertEqual(float(hvd.allreduce(1.0, op=hvd.Sum)), self.size)

    def test_names_are_where_scripts_import_them_from(self):
        for module, names in {
            "mpi_ops": "Sum handle_average_backwards_compatibility check_num_rank_power_of_2 _allreduce "
            "_grouped_allreduce _alltoall_grad _executing_eagerly num_rank_is_power_2 "
            "gpu_available",
            "util": "vars_to_refs refs_to_vars _executing_eagerly",
            "gradient_aggregation": "LocalGradientAggregationHelper get_not_none_from_list size_op "
            "apply_op_to_not_none_tensors",
            "gradient_aggregation_eager": "LocalGradientAggregationHelperEager",
            "functions": "broadcast_variables broadcast_object allgather broadcast broadcast_ rank size "
            "_executing_eagerly",
            "compression": "Compression",
            "sync_batch_norm": "SyncBatchNormalization Sum rank size",
            "elastic": "TensorFlowState run",
        }.items():
            for name in names.split():
                self.assertTrue(hasattr(IMPORTED[module], name), f"{module}.{name}")
        for name in (
            "LocalGradientAggregationHelper LocalGradientAggregationHelperEager vars_to_refs "
            "refs_to_vars split_list check_num_rank_power_of_2 _allreduce _LegacyOptimizer "
            "handle_average_backwards_compatibility _executing_eagerly _grouped_allreduce "
            "_make_allreduce_grads_fn"
        ).split():
            self.assertIn(name, IMPORTED)
        mpi_ops = hvd.mpi_ops
        for name in mpi_ops.__all__:
            self.assertIs(getattr(mpi_ops, name), getattr(hvd, name), name)
        variables = [tf.Variable(1.0), [tf.Variable(2.0)]]
        refs = hvd.vars_to_refs(variables)
        self.assertEqual(hash(refs), hash(hvd.vars_to_refs(variables)))
        self.assertIs(hvd.refs_to_vars(refs)[1][0], variables[1][0])
        grads = [tf.constant(1.0), None]
        self.assertEqual(hvd.gradient_aggregation.get_not_none_from_list(grads), grads[:1])
        self.assertEqual(
            [one and float(one) for one in (hvd.gradient_aggregation.apply_op_to_not_none_tensors(tf.add, grads, 2.0))],
            [3.0, None],
        )
        self.assertEqual(float(mpi_ops._allreduce(tf.constant(2.0))), 2 * self.size)
        two = mpi_ops._grouped_allreduce([tf.constant(1.0), tf.constant(2.0)], "named", hvd.Max)
        self.assertEqual([float(one) for one in two], [1.0, 2.0])
        self.assertEqual(float(hvd._grouped_allreduce([tf.constant(1.0)])[0]), self.size)
        self.assertTrue(hvd._executing_eagerly())
        with self.assertWarns(DeprecationWarning):
            self.assertEqual(mpi_ops.handle_average_backwards_compatibility(None, False), hvd.Sum)
        from horovod.common.elastic import ObjectState, State
        from horovod.tensorflow.elastic import TensorFlowKerasState, TensorFlowState, run
        from horovod.tensorflow.keras.elastic import CommitStateCallback, KerasState

        self.assertIs(hvd.elastic.run, run)
        for state in (TensorFlowKerasState, TensorFlowState, KerasState):
            self.assertLess({ObjectState, State}, set(state.__mro__), state)
        self.assertTrue(issubclass(CommitStateCallback, tf.keras.callbacks.Callback))

    def test_kernels_are_compiled_in_a_folder_of_this_user(self):
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, XDG_CACHE_HOME=cache):
            own = os.path.join(cache, "horovod")
            with _compiled._own_folder() as folder:
                self.assertEqual((folder, os.stat(folder).st_mode & 0o777), (own, 0o700))
            os.chmod(own, 0o777)  # another user could put code there
            with _compiled._own_folder() as folder:
                self.assertNotEqual(folder, own)
                self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
            self.assertFalse(os.path.exists(folder))

    def test_a_tensorflow_without_asynchronous_kernels_needs_a_compiler(self):
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(
            os.environ, XDG_CACHE_HOME=cache, CXX="/nonexistent/g++"
        ):
            if tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 13):
                _compiled.load()  # compiles nothing
                self.assertEqual(os.listdir(cache), [])
                return
            with self.assertRaisesRegex(ImportError, "/nonexistent/g.*install g"):
                _compiled.load()
            os.environ["CXX"] = f"{sys.executable} -c 1/0"
            with self.assertRaisesRegex(ImportError, "ZeroDivisionError.*install g"):
                _compiled.load()
            self.assertEqual(os.listdir(os.path.join(cache, "horovod")), [])

    def test_importing_it_imports_no_other_framework(self):
        self.assertFalse((OTHERS | {"horovod.jax"}) & set(sys.modules))

    def test_a_foreign_tensorflow_is_one_sentence(self):
        if self.rank > 0:
            return
        for said, words in [
            ("import sys; sys.modules['tensorflow'] = None", "needs TensorFlow.*pip install"),
            ("import sys, types; sys.modules['tensorflow'] = types.ModuleType('tensorflow')", "2.4 or later.*is none"),
        ]:
            for module in ("horovod.tensorflow", "horovod.tensorflow.keras"):
                done = subprocess.run(
                    [sys.executable, "-c", f"{said}; import {module}"], capture_output=True, text=True, timeout=240
                )
                self.assertRegex(done.stderr.strip().splitlines()[-1], f"^ImportError: .*{words}")


class TensorFlowGradientTableTest(gradient_table.GradientTableCase):
    framework, hvd, tolerance = "tensorflow", hvd, 1e-12

    def gradients(self, function, inputs, factors):
        def run(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                loss = tf.add_n(
                    [tf.reduce_sum(each * factor) for each, factor in zip(function(list(tensors)), factors)]
                )
            return tape.gradient(loss, list(tensors))

        for each in (run, tf.function(run)):
            yield [gradient.numpy() for gradient in each(*map(tf.constant, inputs))]


class TensorFlowTableTest(table_case.TableCase):
    make_facade = table_facades.TensorFlow


if __name__ == "__main__":
    rank_base.main()
