"""horovod.tensorflow: Keras optimizers in custom training loops: where and when they reduce."""

import os
import warnings

os.environ.setdefault("HVD_TEST_SECONDS", "240")  # all ranks trace functions at the same time
import rank_base

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = rank_base.need("tensorflow")
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras

import numpy

tf.get_logger().setLevel("ERROR")
keras = tf.keras
KERAS_3 = int(getattr(keras, "__version__", "2").split(".")[0]) >= 3
MAKERS = [lambda: keras.optimizers.SGD(0.1)]
if not KERAS_3 and hasattr(keras.optimizers, "legacy"):  # since Keras 2.11
    MAKERS.append(lambda: keras.optimizers.legacy.SGD(0.1))
v1 = tf.compat.v1


class LoopsTest(rank_base.RankBase):
    """The gradient of `loss` on a rank is [rank + 1, 2 * (rank + 1)]."""

    def setUp(self):
        super().setUp()
        self.w = tf.Variable([1.0, 1.0])
        self.total = sum(range(1, self.size + 1))
        self.mean = self.total / self.size

    def loss(self):
        return tf.reduce_sum(self.w * [1.0, 2.0]) * (self.rank + 1.0)

    def check_steps(self, step, change, steps=2):
        """Checks that `steps` calls of step(), eager or traced, change the variable by [change, 2 * change]."""

        def traced():
            step()

        for run in (step, tf.function(traced)):
            self.w.assign([1.0, 1.0])
            for _ in range(steps):
                run()
            numpy.testing.assert_allclose(self.w, [1 + change, 1 + 2 * change], rtol=1e-5)

    def tape(self, **keywords):
        with tf.GradientTape() as tape:
            loss = self.loss()
        return hvd.DistributedGradientTape(tape, **keywords).gradient(loss, [self.w])

    def test_gradients_that_a_tape_has_reduced_are_not_reduced_again(self):
        for make in MAKERS:
            optimizer = hvd.DistributedOptimizer(make(), op=hvd.Sum)
            self.check_steps(lambda: optimizer.apply_gradients(zip(self.tape(op=hvd.Sum), [self.w])), -0.2 * self.total)

    def test_nor_where_several_passes_make_a_step(self):
        optimizer = hvd.DistributedOptimizer(MAKERS[0](), op=hvd.Sum, backward_passes_per_step=2)
        # Keras 2 counts passes when it computes gradients and makes two steps; Keras 3 makes one step of both passes.
        self.check_steps(lambda: optimizer.apply_gradients(zip(self.tape(op=hvd.Sum), [self.w])), -0.2 * self.total)

    def test_gradients_that_a_tape_leaves_to_a_rank_stay_there(self):
        for make in MAKERS:
            layer, shared = [keras.layers.Dense(1, use_bias=False) for _ in range(2)]
            model = keras.Sequential([keras.Input((1,)), layer, shared])
            optimizer = hvd.DistributedOptimizer(make())

            def step():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(model(tf.ones([1, 1]))) * (self.rank + 1.0)
                ours = hvd.PartialDistributedGradientTape(tape, local_layers=layer, scale_local_gradients=False)
                variables = [layer.kernel, shared.kernel]
                optimizer.apply_gradients(zip(ours.gradient(loss, variables), variables))

            for run in (step, tf.function(step)):
                model.set_weights([numpy.array([[1.0]]), numpy.array([[2.0]])])
                run()
                first, second = model.get_weights()
                numpy.testing.assert_allclose(first, [[1 - 0.1 * 2 * (self.rank + 1)]], rtol=1e-5)
                numpy.testing.assert_allclose(second, [[2 - 0.1 * self.mean]], rtol=1e-5)

    def test_only_what_no_tape_has_reduced_is_reduced(self):
        if not KERAS_3:
            self.skipTest("Keras 2 reduces where it computes gradients")
        other = tf.Variable(1.0)
        optimizer = hvd.DistributedOptimizer(MAKERS[0](), op=hvd.Sum)

        def step():
            with tf.GradientTape() as plain:
                loss = other * (self.rank + 1.0)
            grads = self.tape(op=hvd.Sum) + plain.gradient(loss, [other])
            optimizer.apply_gradients(zip(grads, [self.w, other]))

        self.check_steps(step, -0.2 * self.total)
        numpy.testing.assert_allclose(other, 1 - 0.4 * self.total, rtol=1e-5)

    def clipped(self, grads):
        return [grad * 1.0 for grad in grads]

    def test_changed_gradients_of_a_tape_are_averaged_or_refused(self):
        if not KERAS_3:
            self.skipTest("Keras 2 reduces where it computes gradients")
        for op, want in ((hvd.Average, self.mean), (hvd.Sum, self.total)):
            optimizer = hvd.DistributedOptimizer(MAKERS[0](), op=op)

            def step(**keywords):
                optimizer.apply_gradients(zip(self.clipped(self.tape(op=op, **keywords)), [self.w]))

            if op == hvd.Average or self.size == 1:
                self.check_steps(step, -0.2 * want)
                continue
            for run in (step, tf.function(step)):
                with self.assertRaisesRegex(ValueError, "a second time"):
                    run()

            # The next step uses TensorFlow's own tape.
            def plain():
                with tf.GradientTape() as tape:
                    loss = self.loss()
                optimizer.apply_gradients(zip(tape.gradient(loss, [self.w]), [self.w]))

            self.check_steps(plain, -0.2 * want)
            scaled = keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(MAKERS[0](), op=op))
            with self.assertRaisesRegex(ValueError, "a second time"):
                scaled.apply_gradients(zip(self.tape(op=op), [self.w]))

    def test_changed_gradients_that_a_tape_left_to_a_rank_are_refused(self):
        if not KERAS_3 or self.size == 1:
            self.skipTest("Keras 3 reduces where it applies gradients")
        layer = keras.layers.Dense(1, use_bias=False)
        layer.build((1, 1))
        optimizer = hvd.DistributedOptimizer(MAKERS[0]())

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(tf.ones([1, 1])))
            ours = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
            optimizer.apply_gradients(zip(self.clipped(ours.gradient(loss, [layer.kernel])), [layer.kernel]))

        for run in (step, tf.function(step)):
            with self.assertRaisesRegex(ValueError, "a second time"):
                run()

    def warnings_of(self, optimizer, step, steps=3):
        """Returns how often `steps` calls of step(optimizer) warn that each rank trains alone."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(steps):
                step(optimizer)
        return sum("each rank trains alone" in str(one.message) for one in caught)

    def local(self):
        with tf.GradientTape() as tape:
            loss = self.loss()
        return tape.gradient(loss, [self.w])

    def test_a_step_without_a_reduction_warns_once(self):
        want = 0 if KERAS_3 or self.size == 1 else 1
        for make in MAKERS:
            self.setUp()  # a new variable, which no traced function has used
            for gradients, count in (
                (self.local, want),
                (lambda: self.clipped(self.local()), want),
                (self.tape, 0),
                (lambda: self.clipped(self.tape()), 0),
                (lambda: [hvd.allreduce(grad) for grad in self.local()], 0),
                (lambda: hvd.grouped_allreduce(self.local()), 0),
            ):

                def step(optimizer):
                    optimizer.apply_gradients(zip(gradients(), [self.w]))

                self.assertEqual(self.warnings_of(hvd.DistributedOptimizer(make()), step), count)
                optimizer = hvd.DistributedOptimizer(make())
                traced = tf.function(lambda: step(optimizer))
                self.assertEqual(self.warnings_of(optimizer, lambda _: traced()), count)
                if gradients in (self.local, self.tape):
                    compute = tf.function(gradients)
                    self.check_functions(make, compute, count)
                    self.check_functions(make, compute, count)  # `compute` is traced already

    def check_functions(self, make, compute, count):
        """Checks the warnings if one function computes gradients and another function applies them."""
        first, second, third = (hvd.DistributedOptimizer(make()) for _ in range(3))

        @tf.function
        def apply(grad):
            first.apply_gradients([(grad, self.w)])

        @tf.function
        def outer():
            third.apply_gradients(zip(compute(), [self.w]))

        self.assertEqual(self.warnings_of(first, lambda _: apply(compute()[0])), count)
        self.assertEqual(self.warnings_of(second, lambda _: second.apply_gradients(zip(compute(), [self.w]))), count)
        self.assertEqual(self.warnings_of(third, lambda _: outer()), count)

    def test_a_train_step_of_a_model_warns_once(self):
        class Own(keras.Model):
            def __init__(self, reduces):
                super().__init__()
                self.dense, self.norm = keras.layers.Dense(1), hvd.SyncBatchNormalization()
                self.reduces = reduces

            def call(self, x, training=False):
                return self.norm(self.dense(x), training=training)

            def train_step(self, data):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self(data[0], training=True) - data[1]) ** 2)
                if self.reduces:
                    tape = hvd.DistributedGradientTape(tape)
                grads, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 1.0)
                self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
                return {"loss": loss}

        want = 0 if KERAS_3 or self.size == 1 else 1
        x = numpy.ones((8, 2), "float32")
        for make in MAKERS:
            for reduces in (False, True):
                for eagerly in (False, True):
                    hvd.allreduce(tf.constant(1.0))  # of another value, for example the number of samples
                    model = Own(reduces)
                    model.compile(hvd.DistributedOptimizer(make()), run_eagerly=eagerly)
                    count = self.warnings_of(model, lambda one: one.fit(x, x[:, :1], batch_size=4, verbose=0), 1)
                    self.assertEqual(count, 0 if reduces else want)

    def test_methods_that_compute_gradients_reduce_them(self):
        if KERAS_3:
            self.skipTest("Keras 3 has no such methods")
        for make in MAKERS:
            for keywords, want in [({}, self.mean), ({"op": hvd.Sum}, self.total), ({"groups": 1}, self.mean)]:
                optimizer = hvd.DistributedOptimizer(make(), **keywords)
                for compute in (optimizer.compute_gradients, optimizer._compute_gradients):

                    def gradient():
                        return compute(self.loss, [self.w])[0][0]

                    for run in (gradient, tf.function(gradient)):
                        numpy.testing.assert_allclose(run(), [want, 2 * want], rtol=1e-5)

                def clipped():  # the gradients change in between
                    with tf.GradientTape() as tape:
                        loss = self.loss()
                    ((grad, variable),) = optimizer.compute_gradients(loss, [self.w], tape=tape)
                    optimizer.apply_gradients([(grad / want, variable)])

                self.check_steps(clipped, -0.2)
                self.check_steps(lambda: optimizer.minimize(self.loss, [self.w]), -0.2 * want)
                grads = optimizer._allreduce([tf.ones(2) * (self.rank + 1.0)], [self.w])
                numpy.testing.assert_allclose(grads[0], [want, want], rtol=1e-5)

    def test_applying_gradients_reduces_nothing(self):
        if KERAS_3:
            self.skipTest("Keras 3 reduces where it applies gradients")
        for make in MAKERS:
            for passes in (1, 2):
                optimizer = hvd.DistributedOptimizer(make(), backward_passes_per_step=passes)

                def step():
                    with tf.GradientTape() as tape:
                        loss = self.loss()
                    optimizer.apply_gradients(zip(tape.gradient(loss, [self.w]), [self.w]))

                self.check_steps(step, -0.2 * (self.rank + 1))

    def test_several_passes_in_a_loop(self):
        if KERAS_3:
            self.skipTest("Keras 3 has no method that computes gradients")
        for make in MAKERS:
            for average in (False, True):
                optimizer = hvd.DistributedOptimizer(
                    make(), backward_passes_per_step=2, average_aggregated_gradients=average
                )
                change = -0.1 * self.mean * (1 if average else 2)
                self.check_steps(lambda: optimizer.minimize(self.loss, [self.w]), 2 * change, steps=4)
                # Each step in its own function.
                optimizer = hvd.DistributedOptimizer(
                    make(), backward_passes_per_step=2, average_aggregated_gradients=average
                )
                compute = tf.function(lambda: optimizer.compute_gradients(self.loss, [self.w])[0][0])

                @tf.function
                def apply(grad):
                    optimizer.apply_gradients([(grad, self.w)])

                self.w.assign([1.0, 1.0])
                for _ in range(4):
                    apply(compute())
                numpy.testing.assert_allclose(self.w, [1 + 2 * change, 1 + 4 * change], rtol=1e-5)

    def test_variables_of_this_rank_only(self):
        if KERAS_3:
            self.skipTest("Keras 3 has no method that computes gradients")
        for make in MAKERS:
            optimizer = hvd.DistributedOptimizer(make(), scale_local_gradients=False)
            optimizer.register_local_var(self.w)
            self.check_steps(lambda: optimizer.minimize(self.loss, [self.w]), -0.2 * (self.rank + 1))

    def take_steps(self, optimizer, grads, variables):
        """Makes one step with these gradients of this rank."""
        if KERAS_3:
            optimizer.apply_gradients(zip(grads, variables))
        else:
            optimizer.apply_gradients(zip(optimizer._allreduce(grads, variables), variables))

    def test_attributes_of_an_optimizer(self):
        mine = (
            hvd.global_process_set
            if self.size == 1
            else [hvd.add_process_set([rank]) for rank in range(self.size)][self.rank]
        )
        for make in MAKERS:
            optimizer = hvd.DistributedOptimizer(make(), op=hvd.Sum)
            self.assertIs(optimizer.process_set, hvd.global_process_set)
            self.assertIs(optimizer.scale_local_gradients, True)
            self.assertIn("horovod._keras.SGD", str(optimizer))
            if not KERAS_3:
                self.assertEqual(type(optimizer).__module__, "horovod._keras")
            optimizer.register_local_var(self.w)
            for scales in (True, False):
                optimizer.scale_local_gradients = scales
                self.w.assign([1.0, 1.0])
                self.take_steps(optimizer, [tf.ones(2) * (self.rank + 1.0)], [self.w])
                change = 0.1 * (self.rank + 1) / (self.size if scales else 1)
                numpy.testing.assert_allclose(self.w, [1 - change] * 2, rtol=1e-6)
            optimizer = hvd.DistributedOptimizer(make(), op=hvd.Sum)
            for ranks, total in ((hvd.global_process_set, self.total), (mine, self.rank + 1)):
                optimizer.process_set = ranks
                self.assertIs(optimizer.process_set, ranks)
                self.w.assign([1.0, 1.0])
                self.take_steps(optimizer, [tf.ones(2) * (self.rank + 1.0)], [self.w])
                numpy.testing.assert_allclose(self.w, [1 - 0.1 * total] * 2, rtol=1e-6)
            with self.assertRaises(ValueError):
                optimizer.process_set = 3

    def test_one_place_reduces(self):
        own, calls = tf.Variable(1.0), []

        def replace(optimizer, name):
            before = getattr(optimizer, name)

            def replaced(grads, variables):
                calls.append((name, len(grads), len(variables)))
                return [grad * 2 for grad in before(grads, variables)]

            setattr(optimizer, name, replaced)

        for make in MAKERS:
            for name, factors in (("_allreduce", (2, 2)), ("_allreduce_grads", (2, 1))):
                optimizer = hvd.DistributedOptimizer(make(), scale_local_gradients=False)
                optimizer.register_local_var(own)
                replace(optimizer, name)
                for variable in (self.w, own):
                    variable.assign(tf.ones_like(variable))
                del calls[:]
                self.take_steps(optimizer, [tf.ones(2) * (self.rank + 1.0), tf.constant(1.0)], [self.w, own])
                count = 2 if name == "_allreduce" else 1
                self.assertEqual(calls, [(name, count, count)])
                numpy.testing.assert_allclose(self.w, [1 - 0.1 * factors[0] * self.mean] * 2, rtol=1e-6)
                numpy.testing.assert_allclose(own, 1 - 0.1 * factors[1], rtol=1e-6)

    def test_infinite_gradients_end_with_their_step(self):
        for make in MAKERS:
            optimizer = hvd.DistributedOptimizer(make(), backward_passes_per_step=2)
            one = tf.ones(2) * (self.rank + 1.0)
            for grads in ([one * numpy.inf, one], [one, one * numpy.nan], [one, one]):
                self.w.assign([1.0, 1.0])
                for grad in grads:
                    if KERAS_3:
                        optimizer.apply_gradients([(grad, self.w)])
                    else:  # SGD of Keras 2 keeps an infinite velocity, also without momentum
                        (reduced,) = optimizer._allreduce([grad], [self.w])
            if not KERAS_3:
                self.w.assign_sub(0.1 * reduced)
            numpy.testing.assert_allclose(self.w, [1 - 0.1 * self.mean * 2] * 2, rtol=1e-6)

    def test_several_passes_with_local_and_sparse_gradients(self):
        for make in MAKERS:
            own, table = tf.Variable([1.0, 1.0]), tf.Variable(tf.ones([self.size + 1, 2]))
            optimizer = hvd.DistributedOptimizer(
                make(), backward_passes_per_step=2, op=hvd.Sum, sparse_as_dense=True, scale_local_gradients=False
            )
            optimizer.register_local_var(own)

            def step():
                rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([self.rank]), tf.constant([self.size + 1, 2]))
                one = tf.ones(2) * (self.rank + 1.0)
                self.take_steps(optimizer, [one, rows, one], [own, table, self.w])

            def traced():
                step()

            for run in (step, tf.function(traced)):
                own.assign([1.0, 1.0])
                table.assign(tf.ones_like(table))
                self.w.assign([1.0, 1.0])
                for _ in range(4):
                    run()
                numpy.testing.assert_allclose(own, [1 - 0.4 * (self.rank + 1)] * 2, rtol=1e-5)
                numpy.testing.assert_allclose(self.w, [1 - 0.4 * self.total] * 2, rtol=1e-5)
                want = [[1 - 0.4] * 2] * self.size + [[1.0, 1.0]]
                numpy.testing.assert_allclose(table, want, rtol=1e-5)

    def test_mixed_precision(self):
        scaled = (keras.optimizers if KERAS_3 else keras.mixed_precision).LossScaleOptimizer
        for make in MAKERS:
            for optimizer in (scaled(hvd.DistributedOptimizer(make())), hvd.DistributedOptimizer(scaled(make()))):

                def step():
                    if not KERAS_3:
                        return optimizer.minimize(self.loss, [self.w])
                    with tf.GradientTape() as tape:
                        loss = optimizer.scale_loss(self.loss())
                    optimizer.apply_gradients(zip(tape.gradient(loss, [self.w]), [self.w]))

                self.check_steps(step, -0.2 * self.mean)

    def test_graphs_of_tensorflow_1(self):
        if KERAS_3:
            self.skipTest("Keras 3 has no graphs of TensorFlow 1")
        for make in MAKERS[1:]:
            with tf.Graph().as_default():
                w = tf.Variable([1.0, 1.0])
                loss = tf.reduce_sum(w * [1.0, 2.0]) * (self.rank + 1.0)
                optimizer = hvd_keras.DistributedOptimizer(make(), op=hvd.Sum)
                grads = optimizer.get_gradients(loss, [w])
                step = optimizer.get_updates(loss, [w])
                with v1.Session() as session:
                    session.run(v1.global_variables_initializer())
                    numpy.testing.assert_allclose(session.run(grads)[0], [self.total, 2 * self.total])
                    session.run(step)
                    numpy.testing.assert_allclose(
                        session.run(w), [1 - 0.1 * self.total, 1 - 0.2 * self.total], rtol=1e-5
                    )


if __name__ == "__main__":
    rank_base.main()
