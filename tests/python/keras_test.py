"""horovod.keras and horovod.tensorflow.keras: optimizers, callbacks, models.

keras_test.py [tensorflow | torch | jax]    the backend, for Keras 3
"""

import contextlib
import io
import os
import pickle
import tempfile
import warnings

import keras_backend
import rank_base
from keras_backend import BACKEND, KERAS_3, LEGACY, keras

hvd = keras_backend.import_horovod()
tf = keras_backend.framework

import numpy

from horovod import _keras
from horovod._keras import callbacks


def data(rank, count=8):
    generator = numpy.random.default_rng(rank)
    x = generator.normal(size=(count, 4)).astype("float32")
    return x, (x @ numpy.arange(1.0, 5.0, dtype="float32"))[:, None]


def network(seed=0):
    """Returns a network; the same seed gives the same weights."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])
    generator = numpy.random.default_rng(seed)
    model.set_weights([generator.normal(size=w.shape) * 0.3 for w in model.get_weights()])
    return model


class KerasTest(rank_base.RankBase):
    def everybody(self, count=8):
        pairs = [data(rank, count) for rank in range(self.size)]
        return (numpy.concatenate([pair[0] for pair in pairs]), numpy.concatenate([pair[1] for pair in pairs]))

    def assert_everywhere(self, model):
        for number, weight in enumerate(model.get_weights()):
            for one in hvd_numpy.allgather(weight[None], f"same.{number}"):
                numpy.testing.assert_array_equal(one, weight)

    def assert_near(self, model, alone):
        for got, want in zip(model.get_weights(), alone.get_weights()):
            numpy.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)

    def check_training(self, make, distribute=lambda one: hvd.DistributedOptimizer(one), **fit):
        """Trains with one batch per rank and epoch, and compares with one process on the data of all ranks."""
        model, alone = network(), network()
        model.compile(optimizer=distribute(make()), loss="mse", **fit)
        alone.compile(optimizer=make(), loss="mse", **fit)
        model.fit(*data(self.rank), batch_size=8, epochs=4, shuffle=False, verbose=0)
        alone.fit(*self.everybody(), batch_size=8 * self.size, epochs=4, shuffle=False, verbose=0)
        self.assert_near(model, alone)
        self.assert_everywhere(model)

    def test_training_is_that_of_one_process(self):
        self.check_training(lambda: keras.optimizers.SGD(0.1, momentum=0.9))
        self.check_training(lambda: keras.optimizers.Adam(0.01, clipnorm=1.0))
        self.check_training(
            lambda: keras.optimizers.SGD(0.1),
            lambda one: hvd.DistributedOptimizer(one, gradient_predivide_factor=2.0, groups=2),
        )
        if BACKEND == "tensorflow":
            self.check_training(lambda: keras.optimizers.SGD(0.1), run_eagerly=True)
        if LEGACY:
            self.check_training(lambda: LEGACY.SGD(0.1, momentum=0.5))

    def test_an_optimizer_around_another(self):
        scaled = (keras.optimizers if KERAS_3 else keras.mixed_precision).LossScaleOptimizer
        self.check_training(
            lambda: keras.optimizers.SGD(0.1, momentum=0.9), lambda one: hvd.DistributedOptimizer(scaled(one))
        )
        self.check_training(
            lambda: scaled(keras.optimizers.SGD(0.1, momentum=0.9)),
            lambda one: scaled(hvd.DistributedOptimizer(one.inner_optimizer)),
        )
        # An overflow on one rank counts on all ranks.
        for wrap in (
            lambda one: hvd.DistributedOptimizer(scaled(one)),
            lambda one: scaled(hvd.DistributedOptimizer(one)),
        ):
            model = network()
            model.compile(wrap(keras.optimizers.SGD(0.1)), "mse")
            x, y = data(self.rank)
            before = model.get_weights()
            model.fit(x * (numpy.inf if self.rank == 0 else 1), y, batch_size=8, epochs=1, verbose=0)
            for got, want in zip(model.get_weights(), before):
                numpy.testing.assert_array_equal(got, want)
        if KERAS_3:
            for keywords in [{"backward_passes_per_step": 2}, {"op": hvd.Adasum}]:
                if self.size > 1 or "op" not in keywords:
                    with self.assertRaisesRegex(ValueError, "LossScaleOptimizer"):
                        hvd.DistributedOptimizer(scaled(keras.optimizers.SGD(0.1)), **keywords)

    def test_compression(self):
        for compression in (hvd.Compression.bf16, hvd.Compression.fp16):
            model = network()
            model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=compression), "mse")
            model.fit(*data(self.rank), epochs=1, verbose=0)
            self.assert_everywhere(model)
        third = numpy.full(2, 1 / 3, "float32")
        got = hvd.allreduce(third, op=hvd.Sum, compression=hvd.Compression.bf16)
        self.assertNotEqual(float(got[0]), float(third[0]) * self.size)
        numpy.testing.assert_allclose(numpy.asarray(got), third * self.size, rtol=1e-2)

    def test_several_backward_passes_per_step(self):
        for average in [False, True]:
            optimizer = hvd.DistributedOptimizer(
                keras.optimizers.SGD(0.05), backward_passes_per_step=2, average_aggregated_gradients=average
            )
            model, alone = network(), network()
            model.compile(optimizer, "mse")
            # Batches of 4; two batches make a step.
            model.fit(*data(self.rank), batch_size=4, epochs=3, shuffle=False, verbose=0)
            alone.compile(keras.optimizers.SGD(0.05 if average else 0.1), "mse")
            alone.fit(*self.everybody(), batch_size=8 * self.size, epochs=3, shuffle=False, verbose=0)
            self.assert_near(model, alone)
        with self.assertRaisesRegex(ValueError, "backward_passes_per_step"):
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=0)

    def test_adasum_combines_steps(self):
        cases = [(lambda: keras.optimizers.SGD(0.05), 2)]
        if hasattr(keras.optimizers, "AdamW"):
            cases.append((lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1), 1))
        if LEGACY:
            cases.append((lambda: LEGACY.Adam(0.01), 1))
        for make, passes in cases:
            model, alone = network(), network()
            model.compile(hvd.DistributedOptimizer(make(), op=hvd.Adasum, backward_passes_per_step=passes), "mse")
            # The gradients of two half batches add up to twice that of the whole batch.
            alone.compile(make() if passes == 1 else keras.optimizers.SGD(0.1), "mse")
            for step in range(2):
                before = alone.get_weights()
                for each, size in ((model, 8 // passes), (alone, 8)):
                    each.fit(*data(self.rank), batch_size=size, epochs=1, shuffle=False, verbose=0)
                alone.set_weights(
                    [
                        start + hvd_numpy.allreduce(weight - start, name=f"step.{i}", op=hvd.Adasum)
                        for i, (start, weight) in enumerate(zip(before, alone.get_weights()))
                    ]
                )
                self.assert_near(model, alone)
            self.assert_everywhere(model)

    def test_local_layers(self):
        model, before = network(), network().get_weights()
        model.compile(hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=model.layers[0]), "mse")
        model.fit(*data(self.rank), batch_size=8, epochs=1, verbose=0)
        alone = network()
        alone.compile(keras.optimizers.SGD(0.1 / self.size), "mse")
        alone.fit(*data(self.rank), batch_size=8, epochs=1, verbose=0)
        numpy.testing.assert_allclose(model.get_weights()[0], alone.get_weights()[0], rtol=1e-4, atol=1e-5)
        self.assertFalse(numpy.array_equal(model.get_weights()[0], before[0]))
        for one in hvd_numpy.allgather(model.get_weights()[2][None], "shared"):
            numpy.testing.assert_array_equal(one, model.get_weights()[2])

    def test_callbacks_make_ranks_equal_and_warm_up(self):
        model = network(seed=self.rank)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), "mse", metrics=["mae"])
        rate = 0.01 * self.size
        schedule = hvd.callbacks.LearningRateScheduleCallback(rate, 0.1, start_epoch=3)
        history = model.fit(
            *data(self.rank),
            batch_size=4,
            epochs=4,
            verbose=0,
            shuffle=False,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.MetricAverageCallback(),
                hvd.callbacks.LearningRateWarmupCallback(lr=rate, warmup_epochs=3),
                schedule,
            ],
        ).history
        self.assert_everywhere(model)
        for name in ("loss", "mae"):
            for one in hvd.allgather_object(history[name]):
                self.assertEqual(one, history[name])
        rates = history["lr"]
        for epoch in range(3):
            want = rate / self.size * ((epoch + 1) * (self.size - 1) / 3 + 1)
            self.assertAlmostEqual(rates[epoch], want, places=5)
        self.assertAlmostEqual(rates[3], rate * 0.1, places=6)
        for arguments in [{}, {"initial_lr": 1.0, "lr": 1.0}]:
            with self.assertRaisesRegex(ValueError, "initial_lr"):
                hvd.callbacks.LearningRateWarmupCallback(**arguments)

    def test_ranks_with_different_numbers_of_batches(self):
        if self.size == 1:
            self.skipTest("it needs ranks that differ")
        x, y = data(self.rank, 12 if self.rank == 0 else 8)
        model = network()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", metrics=["mae"])
        before = model.get_weights()
        fit = {"epochs": 2, "verbose": 0, "callbacks": [hvd.callbacks.MetricAverageCallback()]}
        with self.assertRaisesRegex(ValueError, "2 to 3 batches in an epoch.*, or steps_per_epoch=2 and data that rep"):
            model.fit(x, y, batch_size=4, **fit)
        for got, want in zip(model.get_weights(), before):
            numpy.testing.assert_array_equal(got, want)

        def repeated():
            while True:
                for start in range(0, len(x), 4):
                    yield x[start : start + 4], y[start : start + 4]

        model.fit(repeated(), steps_per_epoch=2, **fit)
        self.assert_everywhere(model)

    def test_equal_epochs_are_needed_where_all_ranks_reduce(self):
        if self.size == 1:
            self.skipTest("it needs ranks that differ")
        alone = [hvd.add_process_set([rank]) for rank in range(self.size)]
        plain = keras.optimizers.SGD(0.1)
        for optimizer, steps, differs in [
            (hvd.DistributedOptimizer(plain), 3 - (self.rank > 0), True),
            (hvd.DistributedOptimizer(plain), 3, False),
            (hvd.DistributedOptimizer(plain), None if self.rank else 3, False),  # rank 1's data has no known size
            (hvd.DistributedOptimizer(plain, process_set=alone[self.rank]), 3 - (self.rank > 0), False),
            (plain, 3 - (self.rank > 0), False),
        ]:
            model = network()
            model.compile(optimizer, "mse")
            callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
            callback.set_model(model)
            callback.set_params({"steps": steps})
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                callback.on_train_begin()
            found = ["steps_per_epoch=2" in str(each.message) for each in seen]
            self.assertEqual(found, [True] * (differs and self.rank == 0))
        for each in alone:
            hvd.remove_process_set(each)

    def test_variables_that_callbacks_leave_to_a_rank(self):
        for way in ("one", "list", "registered"):
            model = network(seed=self.rank)
            model.compile(keras.optimizers.SGD(0.1), "mse")
            kernel = model.layers[0].weights[0]
            callback = hvd.callbacks.BroadcastGlobalVariablesCallback(
                0, local_variables={"one": kernel, "list": [kernel]}.get(way)
            )
            if way == "registered":
                callback.register_local_var(kernel)
            callback.set_model(model)
            callback.on_train_batch_end(0)
            mine, first = network(seed=self.rank).get_weights(), network(seed=0).get_weights()
            for got, want in zip(model.get_weights(), mine[:1] + first[1:]):
                numpy.testing.assert_array_equal(got, want, way)

    def test_callbacks_work_in_the_methods_that_programs_replace(self):
        commits, steps = [], []

        class Commits(hvd.elastic.CommitStateCallback):
            def commit(self):
                commits.append(self.state.batch)

        class Reads(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                steps.append(self.params["steps"])

        def replace(callback, seen):
            before = callback.on_batch_end

            def on_batch_end(batch, logs=None):
                seen.append(batch)
                before(batch, logs)

            callback.on_batch_end = on_batch_end

        state = hvd.elastic.ObjectState(batch=3, epoch=0)
        made = {
            callback: []
            for callback in [
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 1.0),
                hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=1, verbose=1),
                hvd.elastic.UpdateBatchStateCallback(state),
                Commits(state, batches_per_commit=2),
            ]
        }
        for callback, seen in made.items():
            replace(callback, seen)
        model = network()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            model.fit(*data(self.rank), batch_size=2, epochs=2, verbose=0, callbacks=[*made, Reads()])
        for callback, seen in made.items():
            self.assertEqual(seen, 2 * [0, 1, 2, 3], type(callback).__name__)
        self.assertEqual(commits, [5, 7, 0, 2, 4, 0])  # the first epoch continues after 3 batches
        self.assertEqual(steps, [4, 4])
        self.assertEqual(said.getvalue().count("learning rate has been raised"), self.rank == 0)

    def test_a_run_of_training_begins_to_count_batches(self):
        state, commits = hvd.elastic.ObjectState(batch=0), []
        state.commit = lambda: commits.append(len(commits))
        callback = hvd.elastic.CommitStateCallback(state, batches_per_commit=2)
        callback.on_train_batch_end(0)
        callback.on_train_begin()
        callback.on_train_batch_end(0)
        self.assertEqual(commits, [])
        callback.on_train_batch_end(1)
        self.assertEqual(commits, [0])

    def test_arguments_by_position(self):
        try:
            import horovod.keras as plain
        except ImportError as error:  # TensorFlow 2.4 has no package keras
            self.skipTest(str(error))
        sgd, before = keras.optimizers.SGD, (None, "", "", None, False, 1.0, hvd.Sum)
        made = [
            (plain.DistributedOptimizer(sgd(), *before, 0, 3), 1),
            (plain.PartialDistributedOptimizer(sgd(), *before, 3), 1),
            (
                _keras.create_distributed_optimizer(
                    keras, sgd(), None, "", "", hvd.Compression.none, False, 1.0, hvd.Sum, 2, True, 3
                ),
                2,
            ),
        ]
        if BACKEND == "tensorflow":
            made += [
                (hvd.DistributedOptimizer(sgd(), *before, 2, True, 0, 3), 2),
                (hvd.PartialDistributedOptimizer(sgd(), *before, 2, True, 0, 3), 2),
            ]
        for optimizer, steps in made:
            plan = optimizer._hvd
            self.assertEqual((plan["reduction"].op, plan["reduction"].groups, plan["steps"]), (hvd.Sum, 3, steps))

    def test_a_constant_multiplier_is_announced_once(self):
        callbacks._warn_of_constant.cache_clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for multiplier in (0.1, 0.1, 1.0, lambda epoch: 0.5):
                hvd.callbacks.LearningRateScheduleCallback(0.1, multiplier)
        said = [one for one in caught if "m ** (epoch - start_epoch)" in str(one.message)]
        self.assertEqual(len(said), 1 if self.rank == 0 else 0)
        if said:
            self.assertEqual(said[0].filename, __file__)

    def test_the_order_of_best_model_checkpoint(self):
        if BACKEND == "tensorflow":
            best = hvd.callbacks.BestModelCheckpoint("loss", 0, True, "max", "epoch")
            self.assertTrue(best.save_weights_only)
        else:
            best = hvd.callbacks.BestModelCheckpoint("loss", 0, "max", "epoch")
            self.assertFalse(best.save_weights_only)
        self.assertEqual((best.monitor, best.save_freq, best.save_best_only), ("loss", "epoch", True))
        self.assertEqual(getattr(best, "mode", None) or best.monitor_op, "max" if KERAS_3 else numpy.greater)

    def by_hand(self, multiplier, corrects, rate=0.02, momentum=0.9):
        """Returns weights and rates after SGD from weights 0: 4 epochs of 2 batches with the data of all ranks."""
        pairs = [data(rank) for rank in range(self.size)]
        weights, gathered, old, rates = numpy.zeros((4, 1)), numpy.zeros((4, 1)), rate, []
        for epoch in range(4):
            for batch in range(2):
                rows = slice(4 * batch, 4 * batch + 4)
                x = numpy.concatenate([pair[0][rows] for pair in pairs]).astype("float64")
                y = numpy.concatenate([pair[1][rows] for pair in pairs])
                gradient = 2 * x.T @ (x @ weights - y) / len(x)
                new = rate * multiplier(epoch + batch / 2)
                if corrects:
                    gathered = gathered * new / old
                gathered = momentum * gathered - new * gradient
                weights, old = weights + gathered, new
            rates.append(old)
        return weights, rates

    def test_callbacks_can_be_pickled(self):
        made = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5),
            hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2, steps_per_epoch=4),
        ]
        loaded = pickle.loads(pickle.dumps(made))
        self.assertEqual([type(one) for one in loaded], [type(one) for one in made])
        self.assertEqual(loaded[2].multiplier(7), 0.5)
        self.assertAlmostEqual(loaded[3].multiplier(1.75), 1.0)

    def test_momentum_follows_the_learning_rate(self):
        sgds = [keras.optimizers.SGD] + ([LEGACY.SGD] if LEGACY else [])
        steps = {True: lambda epoch: 0.3 ** int(epoch), False: lambda epoch: 1 / (1 + epoch)}
        for sgd in sgds:
            for stairs, corrects in [(True, True), (True, False), (False, True)]:
                model = keras.Sequential(
                    [keras.Input((4,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
                )
                model.compile(hvd.DistributedOptimizer(sgd(0.02, momentum=0.9)), "mse")
                history = model.fit(
                    *data(self.rank),
                    batch_size=4,
                    epochs=4,
                    shuffle=False,
                    verbose=0,
                    callbacks=[
                        hvd.callbacks.LearningRateScheduleCallback(
                            0.02, steps[stairs], staircase=stairs, momentum_correction=corrects
                        )
                    ],
                ).history
                want, rates = self.by_hand(steps[stairs], corrects)
                what = f"{sgd.__module__}, stairs {stairs}, corrects {corrects}"
                numpy.testing.assert_allclose(model.get_weights()[0], want, rtol=1e-4, err_msg=what)
                numpy.testing.assert_allclose(history["lr"], rates, rtol=1e-5)
                other = self.by_hand(steps[stairs], not corrects)[0]
                self.assertGreater(abs(other - want).max(), 1e-2)

    def test_models_are_saved_as_plain_ones_and_loaded_as_distributed_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            model = network()
            model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
            best = hvd.callbacks.BestModelCheckpoint(monitor="loss", filepath=os.path.join(folder, "best.keras"))
            model.fit(*data(self.rank), batch_size=8, epochs=2, verbose=0, callbacks=[best])
            self.assertEqual(os.path.exists(os.path.join(folder, "best.keras")), self.rank == 0)
            model.save(path)
            plain = keras.models.load_model(path)
            self.assertEqual(type(plain.optimizer).__name__, "Adam")
            self.assertNotIn("horovod", str(plain.optimizer))
            for distributed in (model, hvd.load_model(path)):
                self.assertIn("horovod._keras.Adam", str(distributed.optimizer))
            loaded = hvd.load_model(path)
            self.assertEqual(int(numpy.asarray(loaded.optimizer.iterations)), 2)
            for one in (model, loaded):
                one.fit(*data(self.rank), batch_size=8, epochs=2, shuffle=False, verbose=0)
            self.assert_near(loaded, model)
            self.assert_everywhere(loaded)

    def test_compile_takes_what_old_scripts_say(self):
        model = network()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                model.compile(
                    hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", experimental_run_tf_function=False
                )
        said = [one for one in caught if "experimental_run_tf_function" in str(one.message)]
        self.assertEqual(len(said), 1 if KERAS_3 else 0)
        takes_jit_compile = KERAS_3 or hasattr(keras.Model, "jit_compile") or hasattr(model, "_jit_compile")
        if BACKEND == "tensorflow" and takes_jit_compile:
            with self.assertWarnsRegex(UserWarning, "jit_compile is off"):
                model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", jit_compile=True)
            model.fit(*data(self.rank), epochs=1, verbose=0)
            if KERAS_3:  # Keras 3 compiles with XLA by default
                model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", jit_compile="auto")
                self.assertFalse(model.jit_compile)
                model.fit(*data(self.rank), epochs=1, verbose=0)

    def test_training_starts_again_from_the_last_commit(self):
        elastic, runs = hvd.elastic, []
        model = network(self.rank)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)), "mse")
        state = elastic.KerasState(model, batch=0, epoch=0)

        class Fails(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if state.epoch == 3 and len(runs) == 1:
                    if hvd.rank() == 0:  # the other ranks' next operation fails
                        hvd.shutdown()
                    if not hvd.is_initialized():
                        raise hvd.HorovodInternalError("planted")

        @elastic.run
        def train(state):
            runs.append((state.epoch, state.batch))
            state.model.fit(
                *data(self.rank),
                batch_size=8,
                epochs=6 - state.epoch,
                shuffle=False,
                verbose=0,
                callbacks=[
                    Fails(),
                    elastic.UpdateBatchStateCallback(state),
                    elastic.UpdateEpochStateCallback(state),
                    elastic.CommitStateCallback(state),
                ],
            )

        train(state)
        self.assertEqual(runs, [(0, 0), (3, 0)])
        self.assertEqual((state.epoch, state.batch), (6, 0))
        alone = network()
        alone.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
        alone.fit(*self.everybody(), batch_size=8 * self.size, epochs=6, shuffle=False, verbose=0)
        self.assert_near(model, alone)
        self.assert_everywhere(model)
        if BACKEND == "tensorflow":
            from horovod.tensorflow import elastic as plain

            variable = tf.Variable([float(self.rank)])
            kept = plain.TensorFlowState([variable], step=self.rank)
            kept.sync()
            self.assertEqual((float(variable[0]), kept.step), (0, 0))
            variable.assign([5.0])
            kept.restore()
            self.assertEqual(float(variable[0]), 0)
            self.assertEqual(plain.TensorFlowKerasState(model, epoch=1).epoch, 1)
            with self.assertRaisesRegex(ValueError, "needs variables"):
                plain.TensorFlowState()

    def test_functions_of_values(self):
        value = numpy.float32(self.rank)
        self.assertEqual(float(hvd.allreduce(value, op=hvd.Sum, name="v")), sum(range(self.size)))
        self.assertEqual(float(hvd.broadcast(value, self.size - 1, name="b")), self.size - 1)
        self.assertEqual([float(one) for one in hvd.allgather([value], name="g")], list(range(self.size)))
        rows = numpy.ones((self.size, 2), "float32")
        got = hvd.reducescatter(rows, name="r", op=hvd.Sum)
        numpy.testing.assert_array_equal(numpy.asarray(got), numpy.full((1, 2), self.size))

    def test_wrong_arguments_are_refused(self):
        for call in [
            lambda: hvd.DistributedOptimizer("sgd"),
            lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Sum, gradient_predivide_factor=2.0),
            lambda: hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=3),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression="fp16"),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op="sum"),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), groups=1.5),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), groups="ab"),
            lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), process_set=3),
            lambda: hvd.load_model("none.keras", compression="fp16"),
            lambda: hvd.allreduce(numpy.ones(2), compression="fp16"),
        ]:
            with self.assertRaises(ValueError):
                call()
        with self.assertRaisesRegex(RuntimeError, "Broadcast|broadcast_variables"):
            hvd.broadcast_global_variables(0)


import table_case
import table_facades

from horovod import numpy as hvd_numpy


class KerasTableTest(table_case.TableCase):
    """Tests the module's functions on arrays of the backend."""

    def make_facade():
        below = {"tensorflow": table_facades.TensorFlow, "torch": table_facades.Torch, "jax": table_facades.Jax}[
            BACKEND
        ]()
        return table_facades.Keras(hvd, below)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if BACKEND == "jax":
            import jax

            jax.config.update("jax_enable_x64", True)
            cls.addClassCleanup(jax.config.update, "jax_enable_x64", False)


if __name__ == "__main__":
    rank_base.main()
