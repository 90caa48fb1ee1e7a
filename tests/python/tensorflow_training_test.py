"""horovod.tensorflow: tapes, optimizers, batch normalization, and graphs of TensorFlow 1."""

import os
import tempfile
from unittest import mock

os.environ.setdefault("HVD_TEST_SECONDS", "240")  # all ranks trace functions at the same time
import rank_base

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = rank_base.need("tensorflow")
import horovod.tensorflow as hvd
from horovod.tensorflow import _reduction

import numpy
import table_case

tf.get_logger().setLevel("ERROR")
v1 = tf.compat.v1


def points(rank, count=6):
    generator = numpy.random.default_rng(rank)
    return generator.normal(size=(count, 3)).astype("float32")


class TrainingTest(rank_base.RankBase):
    def everybody(self, count=6):
        return numpy.concatenate([points(rank, count) for rank in range(self.size)])

    def test_tapes(self):
        x, everything = points(self.rank), self.everybody()
        w, b = tf.Variable([1.0, -2.0, 0.5]), tf.Variable(0.25)

        def loss(values):
            return tf.reduce_mean(tf.square(tf.linalg.matvec(values, w) + b))

        with tf.GradientTape() as tape:
            want_loss = loss(everything)
        want = tape.gradient(want_loss, [w, b])
        for keywords in [
            {},
            {"groups": 1},
            {"groups": [[w, b]]},
            {"num_groups": 2},
            {"gradient_predivide_factor": 3.0},
        ]:

            def gradient():
                with tf.GradientTape() as tape:
                    mine = loss(x)
                return hvd.DistributedGradientTape(tape, **keywords).gradient(mine, [w, b])

            for got in (gradient(), tf.function(gradient)()):
                for one, other in zip(got, want):
                    numpy.testing.assert_allclose(one, other, rtol=1e-4)
        # A tape in a with statement, with a dict of sources; one source has no gradient.
        with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
            mine = loss(x)
        got = tape.gradient(mine, {"w": w, "none": tf.Variable(1.0)})
        numpy.testing.assert_allclose(got["w"], want[0] * self.size, rtol=1e-4)
        self.assertIsNone(got["none"])
        for scale in [True, False]:
            with tf.GradientTape(persistent=True) as tape:
                mine = loss(x)
            own = tape.gradient(mine, [w, b])
            ours = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
            ours.register_local_source(b)
            got = ours.gradient(mine, [w, b])
            numpy.testing.assert_allclose(got[0], want[0], rtol=1e-4)
            numpy.testing.assert_allclose(got[1], own[1] / (self.size if scale else 1), rtol=1e-5)

    def test_scripts_use_these_methods_of_a_tape(self):
        w, own = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
        everybody = sum(range(1, self.size + 1))

        def record():
            with tf.GradientTape(persistent=True) as tape:
                # The gradient of w has a different name on each rank.
                with tf.name_scope(f"of_rank_{self.rank}"):
                    loss = tf.reduce_sum(w * (self.rank + 1.0)) + own * (self.rank + 1.0)
            tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, scale_local_gradients=False)
            tape.register_local_source(own)
            return tape, loss

        def generic():
            with tf.name_scope(f"in_rank_{self.rank}"):
                tape, loss = record()
                return tape.gradient(loss, [w, own, w], use_generic_names=True)

        for function in (generic, tf.function(generic)):
            got = function()
            numpy.testing.assert_array_equal(got[0], [everybody] * 2)
            self.assertEqual(float(got[1]), self.rank + 1)
            numpy.testing.assert_array_equal(got[2], [everybody] * 2)
        tape, loss = record()
        self.assertIs(tape.process_set, hvd.global_process_set)
        self.assertIs(tape.scale_local_gradients, False)
        self.assertEqual(tape._local_sources, {own.ref()})
        local, shared = tape.get_local_and_global_gradients(loss, [w, own])
        self.assertEqual([len(local), len(shared)], [1, 1])
        self.assertIs(local[0][0], own)
        self.assertEqual(float(local[0][1]), self.rank + 1)
        self.assertIs(shared[0][0], w)
        numpy.testing.assert_array_equal(shared[0][1], [everybody] * 2)
        mine = tf.ones(2) * (self.rank + 1.0)
        reduce = hvd._make_allreduce_grads_fn("name", "", "", hvd.Compression.none, False, hvd.Sum, 1.0, None)
        for function in (tape._allreduce_grads, reduce):
            got = function([mine, None], [w, own])
            numpy.testing.assert_array_equal(got[0], [everybody] * 2)
            self.assertIsNone(got[1])
            got = function([mine], use_generic_names=True)
            numpy.testing.assert_array_equal(got[0], [everybody] * 2)

    def test_local_and_global_gradients_are_those_of_gradient(self):
        w, own = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
        for scale in (True, False):
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_sum(w * w) * (self.rank + 1.0) + own * (self.rank + 1.0)
            tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
            tape.register_local_source(own)
            both = tape.get_local_and_global_gradients
            for run in (both, tf.function(lambda: both(loss, [w, own], use_generic_names=True))):
                ((_, mine),), ((_, reduced),) = run() if run is not both else both(loss, [w, own])
                numpy.testing.assert_allclose(mine, (self.rank + 1) / (self.size if scale else 1), rtol=1e-6)
                numpy.testing.assert_allclose(reduced, [self.size + 1, 2 * (self.size + 1)], rtol=1e-6)

    def test_a_process_set_that_does_not_exist_is_refused(self):
        w = tf.Variable(1.0)
        with tf.GradientTape(persistent=True) as tape:
            loss = 2 * w
        never = hvd.ProcessSet(range(self.size + 1))
        for call in (
            lambda: hvd.DistributedGradientTape(tape, process_set=never),
            lambda: hvd.PartialDistributedGradientTape(tape, process_set=never),
            lambda: hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), process_set=never),
        ):
            with self.assertRaisesRegex(ValueError, "was not added|does not exist|not registered"):
                call()
        if self.size > 1:
            added = hvd.add_process_set([0])
            tapes = [
                hvd.DistributedGradientTape(tape, process_set=added, scale_local_gradients=scale)
                for scale in (True, False)
            ]
            hvd.remove_process_set(added)
            for one in tapes:
                one.register_local_source(w)
                for function in (one.gradient, one.get_local_and_global_gradients):
                    with self.assertRaises(ValueError):
                        function(loss, [w])

    def test_gradients_that_travel_together(self):
        weights = [tf.Variable(tf.ones([count])) for count in (3, 400, 5, 7)]
        table = tf.Variable(tf.ones([4, 2]))

        def both():
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.add_n([tf.reduce_sum(w * w) * (self.rank + 1.0) for w in weights])
                loss += tf.reduce_sum(tf.gather(table, [1, 2]))
            ours = hvd.DistributedGradientTape(tape, op=hvd.Sum)
            return tape.gradient(loss, weights), ours.gradient(loss, [*weights, table])

        for limits, nodes in [((4 << 20, 16 << 20), 1), ((1000, 16 << 20), 2), ((1000, 40), 3)]:
            with mock.patch.multiple(_reduction, _LIMITS_ON_ONE_HOST=limits, _LIMITS_BETWEEN_HOSTS=limits):
                function = tf.function(both)
                # The reduction must not change gradients that other code refers to.
                for _ in range(2):
                    own, reduced = function()
                    for grad in own:
                        numpy.testing.assert_array_equal(grad, 2.0 * (self.rank + 1) + 0 * grad)
                    for grad in reduced[:4]:
                        numpy.testing.assert_array_equal(grad, self.size * (self.size + 1) + 0 * grad)
                    numpy.testing.assert_array_equal(
                        tf.convert_to_tensor(reduced[4])[:, 0], [0, self.size, self.size, 0]
                    )
                graph = function.get_concrete_function().graph.as_graph_def()
                self.assertEqual(sum(node.op == "HorovodAllreduce" for node in graph.node), nodes)

    def test_partial_tapes_and_embeddings(self):
        table, dense = tf.keras.layers.Embedding(5, 2), tf.keras.layers.Dense(1)
        model = tf.keras.Sequential([tf.keras.Input((2,), dtype="int32"), table, tf.keras.layers.Flatten(), dense])
        rows = tf.constant([[self.rank % 5, 4]])
        model(rows)
        hvd.broadcast_variables(model.trainable_variables, 0)
        for dense_too in [False, True]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(rows))
            ours = hvd.PartialDistributedGradientTape(
                tape, local_layers=dense, op=hvd.Sum, sparse_as_dense=dense_too, scale_local_gradients=False
            )
            variables = [getattr(one, "value", one) for one in model.trainable_variables]
            variables = [
                one if isinstance(one, tf.Variable) else two for one, two in zip(variables, model.trainable_variables)
            ]
            got = ours.gradient(loss, variables)
            self.assertEqual(isinstance(got[0], tf.IndexedSlices), not dense_too)
            touched = tf.convert_to_tensor(got[0]).numpy()[4]
            numpy.testing.assert_allclose(touched, self.size * variables[1].numpy()[2:, 0], rtol=1e-5)
            numpy.testing.assert_allclose(got[2], [1.0])
        for call in [
            lambda: hvd.DistributedGradientTape(3),
            lambda: hvd.DistributedGradientTape(tape, groups=0),
            lambda: hvd.DistributedGradientTape(tape, gradient_predivide_factor=0.0),
            lambda: hvd.DistributedGradientTape(tape, gradient_predivide_factor="2"),
            lambda: hvd.DistributedGradientTape(tape, compression="fp16"),
            lambda: hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1), compression="fp16"),
            lambda: hvd.PartialDistributedGradientTape(tape, local_layers=[3]),
        ]:
            with self.assertRaises(ValueError):
                call()

    def test_batch_normalization_of_all_ranks(self):
        count = 4 + 2 * self.rank  # ranks have different numbers of samples
        x = points(self.rank, 4 + 2 * (self.size - 1))[:count]
        everything = numpy.concatenate(
            [points(rank, 4 + 2 * (self.size - 1))[: 4 + 2 * rank] for rank in range(self.size)]
        )
        weights = numpy.cos(numpy.arange(everything.size)).reshape(everything.shape)
        first = sum(4 + 2 * rank for rank in range(self.rank))
        ours, alone = hvd.SyncBatchNormalization(), tf.keras.layers.BatchNormalization()
        want_x, got_x = tf.Variable(everything), tf.Variable(x)
        for _ in range(2):
            with tf.GradientTape() as tape:
                want = tf.reduce_sum(alone(want_x, training=True) * weights)
            want_grad = tape.gradient(want, want_x)[first : first + count]
            with tf.GradientTape() as tape:
                output = ours(got_x, training=True)
                got = tf.reduce_sum(output * weights[first : first + count])
            numpy.testing.assert_allclose(tape.gradient(got, got_x), want_grad, atol=2e-4)
        for name in ("moving_mean", "moving_variance"):
            numpy.testing.assert_allclose(
                numpy.asarray(getattr(ours, name)), numpy.asarray(getattr(alone, name)), atol=1e-4
            )
        numpy.testing.assert_allclose(ours(x, training=False), alone(x, training=False), atol=1e-4)
        with self.assertRaisesRegex(ValueError, "fused"):
            hvd.SyncBatchNormalization(fused=True)

    def graph(self, optimizer):
        """Returns a step of linear regression in the default graph: (loss, step, weights, input)."""
        x = v1.placeholder(tf.float32, [None, 3])
        w = v1.get_variable("w", initializer=tf.constant([float(self.rank + 2)] * 3))
        loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, w) - tf.reduce_sum(x, 1)))
        step = optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())
        return loss, step, w, x

    def weights_alone(self, steps, rate, count=6):
        w = numpy.full(3, 2.0)
        for _ in range(steps):
            x = self.everybody(count)
            w = w - rate * 2 * (x * (x @ w - x.sum(1))[:, None]).mean(0)
        return w

    def test_graphs_of_tensorflow_1(self):
        with tf.Graph().as_default(), tempfile.TemporaryDirectory() as folder:
            optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1))
            loss, step, w, x = self.graph(optimizer)
            self.assertGreater(len(optimizer.compute_gradients(loss)), 0)
            hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=4)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=folder if self.rank == 0 else None, hooks=hooks
            ) as session:
                while not session.should_stop():
                    weights = session.run([step, w], {x: points(self.rank)})[1]
                    if session.should_stop():
                        break
            if self.rank == 0:
                weights = v1.train.load_variable(folder, "w")
                numpy.testing.assert_allclose(weights, self.weights_alone(4, 0.1), rtol=1e-4)

    def test_no_passes_per_step_are_refused(self):
        with self.assertRaisesRegex(ValueError, "backward_passes_per_step"):
            hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), backward_passes_per_step=0)

    def test_graphs_with_local_variables_and_infinite_gradients(self):
        everybody = sum(range(1, self.size + 1))
        for passes, scale in [(1, True), (2, False)]:
            with tf.Graph().as_default():
                shared = v1.get_variable("shared", initializer=tf.ones([2]))
                own = v1.get_variable("own", initializer=tf.ones([]))
                table = v1.get_variable("table", initializer=tf.ones([self.size, 1]))
                factor = v1.placeholder(tf.float32, [])
                loss = factor * (tf.reduce_sum(shared) + own + tf.reduce_sum(tf.gather(table, [self.rank])))
                optimizer = hvd.DistributedOptimizer(
                    v1.train.GradientDescentOptimizer(1.0),
                    op=hvd.Sum,
                    sparse_as_dense=True,
                    backward_passes_per_step=passes,
                    scale_local_gradients=scale,
                )
                self.assertIs(optimizer.process_set, hvd.global_process_set)
                optimizer.register_local_var(own)
                pairs = optimizer.compute_gradients(loss, [shared, own, table])
                grads = [grad for grad, _ in pairs]
                with v1.Session() as session:
                    session.run(v1.global_variables_initializer())
                    # The next step's sums do not contain the infinity of the previous step.
                    for number in [numpy.inf] * passes + [self.rank + 1.0] * passes:
                        got = session.run(grads, {factor: number})
            numpy.testing.assert_allclose(got[0], [passes * everybody] * 2)
            numpy.testing.assert_allclose(got[1], passes * (self.rank + 1) / (self.size if scale else 1), rtol=1e-6)
            numpy.testing.assert_allclose(got[2][:, 0], [passes * (rank + 1.0) for rank in range(self.size)])

    def test_local_variables_beside_adasum(self):
        with tf.Graph().as_default():
            shared = v1.get_variable("shared", initializer=tf.ones([2]))
            own = v1.get_variable("own", initializer=tf.zeros([]))
            optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum)
            optimizer.register_local_var(own)
            step = optimizer.minimize(tf.reduce_sum(shared) + own * (self.rank + 1.0), var_list=[shared, own])
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                session.run(step)
                self.assertEqual(session.run(own), -(self.rank + 1.0))
                numpy.testing.assert_allclose(session.run(shared), [0.0, 0.0], atol=1e-6)

    def test_several_passes_that_a_loop_reduces_by_hand(self):
        from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
        from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

        asked = []

        def reduce(grads, variables):
            asked.append(len(variables))
            return hvd.grouped_allreduce(grads, op=hvd.Sum)

        for make in (LocalGradientAggregationHelper, LocalGradientAggregationHelperEager):
            shared, own = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
            helper = make(2, reduce, average_aggregated_gradients=True)
            helper.register_local_var(own)
            applied = []
            for step in (1.0, 3.0):
                grads = helper.compute_gradients(
                    [tf.constant([step, 0.0]), tf.constant(step), None], [shared, own, own]
                )
                helper.apply_gradients(lambda: applied.append(step))
            self.assertEqual(applied, [3.0])
            numpy.testing.assert_allclose(grads[0], [2.0 * self.size, 0.0])
            numpy.testing.assert_allclose(grads[1], 2.0 / self.size, rtol=1e-6)
            self.assertIsNone(grads[2])
        self.assertEqual(asked, [1, 1])
        # A skipped step with NaN does not influence the next step.
        helper, variable = LocalGradientAggregationHelper(2, reduce), tf.Variable([1.0, 2.0])
        for step in (float("nan"), float("nan"), 1.0, 2.0):
            grads = helper.compute_gradients([tf.constant([step, step])], [variable])
        numpy.testing.assert_allclose(grads[0], [3.0 * self.size] * 2)
        with self.assertRaisesRegex(ValueError, "backward_passes_per_step must be a number above 0"):
            LocalGradientAggregationHelper(0, reduce)

    def test_graphs_in_which_adasum_combines_steps(self):
        for passes, momentum in [(1, 0.9), (2, 0.0)]:
            with tf.Graph().as_default():
                plain = v1.train.MomentumOptimizer(0.1, momentum)
                optimizer = hvd.DistributedOptimizer(plain, op=hvd.Adasum, backward_passes_per_step=passes)
                loss, step, w, x = self.graph(optimizer)
                start = hvd.broadcast_global_variables(0)
                with v1.Session() as session:
                    session.run(v1.global_variables_initializer())
                    session.run(start)
                    for _ in range(3 * passes):
                        session.run(step, {x: points(self.rank)})
                    got = session.run(w)
            want, gathered = numpy.full(3, 2.0), numpy.zeros((self.size, 3))
            for _ in range(3):
                for rank in range(self.size):
                    x = points(rank).astype("float64")
                    gradient = 2 * (x * (x @ want - x.sum(1))[:, None]).mean(0)
                    gathered[rank] = momentum * gathered[rank] + passes * gradient
                want = want + table_case.adasum(-0.1 * gathered)
            numpy.testing.assert_allclose(got, want, rtol=1e-4)

    def test_elastic_states(self):
        elastic = hvd.elastic
        for name in "run_fn init rank shutdown".split():
            self.assertTrue(callable(getattr(elastic, name)), name)
        with self.assertRaisesRegex(ValueError, "needs variables"):
            elastic.TensorFlowState(batch=0)
        with tf.Graph().as_default():
            w = v1.get_variable("w", initializer=tf.constant([float(self.rank)] * 2))
            old = v1.get_variable("old", initializer=float(self.rank), use_resource=False)
            change = tf.group(v1.assign_add(w, [1.0, 1.0]), v1.assign_add(old, 1.0))
            with self.assertRaisesRegex(ValueError, "needs a session"):
                elastic.TensorFlowState(batch=0)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                state = elastic.TensorFlowState(session=session, batch=self.rank)
                default = elastic.TensorFlowState([w])
                tf.compat.v1.get_default_graph().finalize()
                session.run(change)
                self.assertEqual(session.run(old), self.rank + 1)
                state.restore()
                self.assertEqual(
                    [list(session.run(w)), session.run(old), state.batch], [[self.rank] * 2, self.rank, self.rank]
                )
                session.run(change)
                state.sync()
                self.assertEqual([list(session.run(w)), session.run(old), state.batch], [[1.0, 1.0], 1.0, 0])
                session.run(change)
                state.commit()
                session.run(change)
                state.restore()
                self.assertEqual(list(session.run(w)), [2.0, 2.0])
                default.restore()
                self.assertEqual(list(session.run(w)), [self.rank] * 2)

    def test_a_failure_within_a_synchronisation_of_states_is_a_failure_as_any(self):
        if self.size == 1:
            self.skipTest("one rank has nobody to fail with")
        w, runs, calls = tf.Variable([1.0]), [], []
        state = hvd.elastic.TensorFlowState([w])
        sync = state.sync

        def fails_once():
            calls.append(None)
            if len(calls) == 1 and self.rank == 0:
                hvd.shutdown()  # other ranks get TensorFlow's error
                raise hvd.HorovodInternalError("planted")
            sync()

        state.sync = fails_once
        hvd.elastic.run(lambda state: runs.append(hvd.size()))(state)
        self.assertEqual((len(calls), runs), (2, [self.size]))

    def test_an_optimizer_of_keras_in_a_loop(self):
        w = tf.Variable([float(self.rank + 2)] * 3)
        hvd.broadcast_variables([w], root_rank=0)
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, w) - tf.reduce_sum(x, 1)))
            if hasattr(optimizer, "minimize"):
                optimizer.minimize(loss, [w], tape=tape)
            else:  # Keras 3 reduces in apply_gradients
                optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w]))

        for _ in range(3):
            step(points(self.rank))
        numpy.testing.assert_allclose(w, self.weights_alone(3, 0.1), rtol=1e-4)


if __name__ == "__main__":
    rank_base.main()
