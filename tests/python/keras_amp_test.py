"""horovod.keras and horovod.tensorflow.keras: loss scaling with overflows on single ranks, and loops that give
gradients to an optimizer.

keras_amp_test.py [tensorflow | torch | jax]    the backend, for Keras 3
"""

import contextlib
import functools
import os
import tempfile
import threading
import time

import keras_backend
import rank_base
from keras_backend import BACKEND, KERAS_3, LEGACY, SCALED, keras

hvd = keras_backend.import_horovod()
tf = torch = keras_backend.framework  # the one of BACKEND

import numpy

OPTIMIZERS = [keras.optimizers, LEGACY] if LEGACY else [keras.optimizers]
STEPS, ROWS = 6, 4


def scaled(optimizer):
    return SCALED(optimizer, initial_scale=256.0, dynamic_growth_steps=3)


def network():
    """Returns a network that starts with the same weights on all ranks."""
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1, dtype="float32")]
    )
    generator = numpy.random.default_rng(0)
    model.set_weights([generator.normal(size=w.shape) * 0.3 for w in model.get_weights()])
    return model


def batches(rank, overflows):
    """Returns the batches of a rank. `overflows`: the rank and the step of each batch with an infinite gradient."""
    generator = numpy.random.default_rng(rank)
    x = generator.normal(size=(STEPS, ROWS, 4)).astype("float32")
    y = (x @ numpy.arange(1.0, 5.0, dtype="float32"))[..., None]
    for number, (where, step) in enumerate(overflows):
        if where == rank:
            y[step, 0] = numpy.nan if number % 2 else numpy.inf
    return x, y


def of_all(size, overflows):
    """Returns the concatenated batches of all ranks."""
    pairs = [batches(rank, overflows) for rank in range(size)]
    return [numpy.concatenate([pair[i] for pair in pairs], axis=1) for i in range(2)]


def sets_of_one(test):
    """Adds one process set per rank, with that rank alone, until the test ends."""
    sets = [hvd.add_process_set([rank]) for rank in range(test.size)]
    for each in sets:
        test.addCleanup(hvd.remove_process_set, each)
    return sets


def fit(model, x, y):
    rows = x.shape[1]
    model.fit(x.reshape(-1, 4), y.reshape(-1, 1), batch_size=rows, epochs=1, shuffle=False, verbose=0)


def state_of(optimizer):
    """Returns the loss scale, the steps since its last change, and the updates."""
    if KERAS_3:
        values = optimizer.dynamic_scale, optimizer.step_counter, optimizer.iterations
    else:
        values = optimizer.loss_scale, optimizer.dynamic_counter, optimizer.iterations
    return tuple(float(numpy.asarray(hvd_value(value))) for value in values)


def hvd_value(value):
    return keras.ops.convert_to_numpy(value) if KERAS_3 else value


class AmpTest(rank_base.RankBase):
    @property
    def overflows(self):
        """Each rank overflows alone, in a different step."""
        return [(0, 1), (self.size - 1, 3)]

    def assert_equal_everywhere(self, model):
        mine = [weight.tolist() for weight in model.get_weights()], state_of(model.optimizer)
        for other in hvd.allgather_object(mine):
            self.assertEqual(other, mine)

    def assert_as_one_process(self, model, alone, rtol=2e-4, atol=2e-5):
        self.assert_equal_everywhere(model)
        self.assertEqual(state_of(model.optimizer), state_of(alone.optimizer))
        for got, want, start in zip(model.get_weights(), alone.get_weights(), network().get_weights()):
            numpy.testing.assert_allclose(got, want, rtol, atol)
            self.assertGreater(abs(want - start).max(), 2 * atol)

    def check_fit(self, ours, one, overflows=None):
        """Trains with the optimizer `ours` on each rank, and in one process with `one`."""
        overflows = self.overflows if overflows is None else overflows
        model, alone = network(), network()
        model.compile(ours, "mse")
        alone.compile(one, "mse")
        fit(model, *batches(self.rank, overflows))
        fit(alone, *of_all(self.size, overflows))
        self.assert_as_one_process(model, alone)

    def test_a_distributed_optimizer_inside(self):
        for module in OPTIMIZERS:
            self.check_fit(
                scaled(hvd.DistributedOptimizer(module.SGD(0.1, momentum=0.9))), scaled(module.SGD(0.1, momentum=0.9))
            )
            self.check_fit(scaled(hvd.DistributedOptimizer(module.Adam(0.01))), scaled(module.Adam(0.01)))

    def test_a_distributed_optimizer_around(self):
        for module in OPTIMIZERS:
            self.check_fit(
                hvd.DistributedOptimizer(scaled(module.SGD(0.1, momentum=0.9))), scaled(module.SGD(0.1, momentum=0.9))
            )

    def test_a_class_that_tests_gradients_in_its_own_way(self):
        if not KERAS_3:
            self.skipTest("Keras 2 has no such method")
        ops = keras.ops

        class Own(SCALED):
            def check_finite(self, grads):
                return ops.all(ops.stack([ops.all(ops.isfinite(grad)) for grad in grads if grad is not None]))

        class Derived(Own):
            def check_finite(self, grads):
                return super().check_finite(grads)

        for made in (Own, Derived):
            own = functools.partial(made, initial_scale=256.0, dynamic_growth_steps=3)
            self.check_fit(own(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))), scaled(keras.optimizers.SGD(0.1)))
            self.check_fit(hvd.DistributedOptimizer(own(keras.optimizers.SGD(0.1))), scaled(keras.optimizers.SGD(0.1)))

    def test_compile_adds_the_loss_scale(self):
        keras.mixed_precision.set_global_policy("mixed_float16")
        try:
            models = []
            for make, data in (
                (hvd.DistributedOptimizer, batches(self.rank, self.overflows)),
                (lambda one: one, of_all(self.size, self.overflows)),
            ):
                model = network()
                optimizer = make(keras.optimizers.Adam(0.01))
                model.compile(optimizer, "mse")
                self.assertIs(model.optimizer.inner_optimizer, optimizer)
                if KERAS_3:
                    model.optimizer.initial_scale = 256.0
                else:
                    model.optimizer._loss_scale.current_loss_scale.assign(256.0)
                fit(model, *data)
                models.append(model)
        finally:
            keras.mixed_precision.set_global_policy("float32")
        self.assert_as_one_process(*models, rtol=2e-3, atol=2e-3)

    def test_several_passes_per_step(self):
        # One pass of each of two steps overflows.
        overflows = [(0, 0), (self.size - 1, 3)]
        for module in OPTIMIZERS:
            for average in (False, True):
                ours = scaled(
                    hvd.DistributedOptimizer(
                        module.SGD(0.05, momentum=0.9), backward_passes_per_step=2, average_aggregated_gradients=average
                    )
                )
                rate = 0.05 if average else 0.1
                if KERAS_3:  # skips a pass; a step takes the next two
                    self.check_fit(
                        ours, scaled(module.SGD(rate, momentum=0.9, gradient_accumulation_steps=2)), overflows
                    )
                    continue
                # Keras 2 skips a step; a large batch has both of its passes.
                model, alone = network(), network()
                model.compile(ours, "mse")
                alone.compile(scaled(module.SGD(rate, momentum=0.9)), "mse")
                fit(model, *batches(self.rank, overflows))
                x, y = of_all(self.size, overflows)
                fit(alone, x.reshape(STEPS // 2, -1, 4), y.reshape(STEPS // 2, -1, 1))
                self.assert_as_one_process(model, alone)

    def test_passes_of_one_step_have_one_scale(self):
        if KERAS_3:
            self.skipTest("Keras 3 divides by the loss scale before it adds gradients")
        for module in OPTIMIZERS:
            # The loss scale grows in each step.
            grows = lambda one: SCALED(one, initial_scale=256.0, dynamic_growth_steps=1)  # noqa: E731
            model, alone = network(), network()
            model.compile(
                grows(
                    hvd.DistributedOptimizer(
                        module.SGD(0.05), backward_passes_per_step=2, average_aggregated_gradients=True
                    )
                ),
                "mse",
            )
            alone.compile(grows(module.SGD(0.05)), "mse")
            fit(model, *batches(self.rank, []))
            x, y = of_all(self.size, [])
            fit(alone, x.reshape(STEPS // 2, -1, 4), y.reshape(STEPS // 2, -1, 1))
            self.assert_as_one_process(model, alone)

    def test_adasum_and_local_gradients_are_applied_on_all_ranks_or_on_none(self):
        for module in OPTIMIZERS:
            model = network()
            model.compile(scaled(hvd.DistributedOptimizer(module.SGD(0.1), op=hvd.Adasum)), "mse")
            fit(model, *batches(self.rank, self.overflows))
            self.assert_equal_everywhere(model)
            self.assertEqual(state_of(model.optimizer)[0], 256.0 / 4)
            partial = hvd.PartialDistributedOptimizer
            for wrap in (
                lambda one, layer: scaled(partial(one, local_layers=layer)),
                lambda one, layer: partial(scaled(one), local_layers=layer),
            ):
                model = network()
                model.compile(wrap(module.SGD(0.1), model.layers[0]), "mse")
                fit(model, *self.local_overflows(model))
                self.assertEqual(len(set(hvd.allgather_object(state_of(model.optimizer)))), 1)
                self.assertEqual(state_of(model.optimizer)[0], 256.0 / 4)
                for weight in model.get_weights()[2:]:
                    self.assertTrue(numpy.isfinite(weight).all())
                    for other in hvd.allgather_object(weight):
                        numpy.testing.assert_array_equal(other, weight)

    def local_overflows(self, model):
        """Returns this rank's batches. The first layer's gradients overflow, the second layer's do not."""
        x, y = batches(self.rank, [])
        kernel, *others = model.get_weights()
        kernel[0], x[:, :, 0] = 1e-37, 0
        model.set_weights([kernel, *others])
        for rank, step in self.overflows:
            if rank == self.rank:
                x[step, 0, 0], y[step, 0] = 1e37, 1e6
        return x, y

    def test_each_process_set_decides_for_itself(self):
        sets = [hvd.global_process_set] if self.size == 1 else sets_of_one(self)
        mine = sets[self.rank]
        overflows = [(0, 1), (0, 4)]
        model, alone = network(), network()
        model.compile(scaled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), process_set=mine)), "mse")
        alone.compile(scaled(keras.optimizers.SGD(0.1)), "mse")
        for each in (model, alone):
            fit(each, *batches(self.rank, overflows))
        self.assertEqual(state_of(model.optimizer), state_of(alone.optimizer))
        for got, want in zip(model.get_weights(), alone.get_weights()):
            numpy.testing.assert_allclose(got, want, 2e-4, 2e-5)


class LoopTest(rank_base.RankBase):
    """Loops without Model.compile. The gradient of a step on a rank is (rank + 1) * [1, 2], or not finite."""

    def factors(self, rank):
        """Returns the factor of the loss in each step."""
        factors = numpy.full(4, rank + 1.0, "float32")
        factors[[step for where, step in [(0, 1), (self.size - 1, 2)] if where == rank]] = numpy.inf
        return factors

    def check(self, run, rate=0.1, passes=1):
        """Compares the variable after run(optimizer, variable, factors), starting at [1, 1]."""
        for module in OPTIMIZERS:
            for wrap in ("inside", "around"):
                if wrap == "around" and KERAS_3 and passes > 1:
                    continue  # Horovod refuses this combination
                distribute = lambda one: hvd.DistributedOptimizer(  # noqa: E731
                    one, backward_passes_per_step=passes, average_aggregated_gradients=True
                )
                sgd = module.SGD(rate)
                optimizer = scaled(distribute(sgd)) if wrap == "inside" else distribute(scaled(sgd))
                got = run(optimizer, self.factors(self.rank))
                done = 2 if passes == 1 else (1 if KERAS_3 else 0)  # Keras 2 skips both steps of two passes
                change = -rate * (self.size + 1) / 2 * done
                numpy.testing.assert_allclose(got, [1 + change, 1 + 2 * change], rtol=1e-5, err_msg=wrap)
                # The scale halves twice.
                self.assertEqual(state_of(optimizer)[0], 64.0)

    def test_tensorflow(self):
        if BACKEND != "tensorflow":
            self.skipTest("another backend")
        for traced in (False, True):
            for passes in (1, 2):

                def run(optimizer, factors):
                    # Optimizers of Keras 3 need a keras.Variable.
                    w = keras.Variable([1.0, 1.0]) if KERAS_3 else tf.Variable([1.0, 1.0])

                    def step(factor):
                        if not KERAS_3:
                            optimizer.minimize(lambda: tf.reduce_sum(w * [1.0, 2.0]) * factor, [w])
                            return
                        with tf.GradientTape() as tape:
                            loss = optimizer.scale_loss(tf.reduce_sum(w * [1.0, 2.0]) * factor)
                        value = w.value if KERAS_3 else w
                        optimizer.apply(tape.gradient(loss, [value]), [w])

                    run_step = tf.function(step) if traced else step
                    for factor in factors:
                        run_step(tf.constant(factor))
                    return w.numpy()

                self.check(run, passes=passes)

    def test_torch(self):
        if BACKEND != "torch":
            self.skipTest("another backend")
        import torch

        for passes in (1, 2):

            def run(optimizer, factors):
                w = keras.Variable([1.0, 1.0])
                optimizer.build([w])
                for factor in factors:
                    w.value.grad = None
                    loss = (w.value * torch.tensor([1.0, 2.0])).sum() * float(factor)
                    optimizer.scale_loss(loss).backward()
                    with torch.no_grad():
                        optimizer.apply([w.value.grad], [w])
                return keras.ops.convert_to_numpy(w)

            self.check(run, passes=passes)

    def test_a_rank_that_has_joined_stops_no_step(self):
        if BACKEND != "torch" or self.size == 1:
            self.skipTest("hvd.join is tested on torch with several ranks")
        import torch

        optimizer = scaled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Sum))
        w = keras.Variable([1.0, 1.0])
        optimizer.build([w])
        for _ in range(1 if self.rank == 0 else 2):
            with torch.no_grad():
                optimizer.apply([torch.tensor([256.0, 512.0])], [w])
        hvd.join()
        steps = self.size if self.rank == 0 else 2 * self.size - 1
        numpy.testing.assert_allclose(keras.ops.convert_to_numpy(w), [1 - 0.1 * steps, 1 - 0.2 * steps], rtol=1e-5)

    def test_jax(self):
        if BACKEND != "jax":
            self.skipTest("another backend")
        import jax

        for compiled in (False, True):
            for passes in (1, 2):

                def run(optimizer, factors):
                    w = keras.Variable([1.0, 1.0])
                    optimizer.build([w])

                    def step(factor, value, state):
                        scale = state[[each.path for each in optimizer.variables].index(optimizer.dynamic_scale.path)]
                        grad = jax.grad(
                            lambda value: (value * numpy.array([1.0, 2.0], "float32")).sum() * factor * scale
                        )(value)
                        values, state = optimizer.stateless_apply(state, [grad], [value])
                        return values[0], state

                    call = jax.jit(step) if compiled else step
                    value, state = w.value, [each.value for each in optimizer.variables]
                    for factor in factors:
                        value, state = call(factor, value, state)
                    for variable, each in zip(optimizer.variables, state):
                        variable.assign(each)
                    return numpy.asarray(value)

                self.check(run, passes=passes)


class StepsTest(rank_base.RankBase):
    """Loops that give gradients to an optimizer of Keras 3."""

    def setUp(self):
        super().setUp()
        if not KERAS_3:
            self.skipTest("accumulation_test.py and keras_loops_test.py test Keras 2")

    def apply(self, optimizer, grads, variables):
        with torch.no_grad() if BACKEND == "torch" else contextlib.nullcontext():
            optimizer.apply(grads, variables)

    def test_passes_over_different_variables(self):
        """Each variable gets the sum of its own gradients; a variable without a gradient in a step keeps its value."""
        for lists_all in (False,) if BACKEND == "jax" else (False, True):  # JAX compiles each operation
            variables = {name: keras.Variable([1.0, 1.0], name=name) for name in "abc"}
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.5), backward_passes_per_step=2)
            optimizer.build(list(variables.values()))
            values, velocities = dict.fromkeys("abc", 1.0), dict.fromkeys("abc", 0.0)
            passes = "a b a b b a ab a c c abc c a a".split()
            for number, (one, two) in enumerate(zip(passes[::2], passes[1::2])):
                for pass_, names in enumerate((one, two)):
                    chosen = "abc" if lists_all else names
                    grads = [
                        keras.ops.convert_to_tensor([1.0, 2.0]) * float((self.rank + 1) * (number + pass_ + 1))
                        if name in names
                        else None
                        for name in chosen
                    ]
                    self.apply(optimizer, grads, [variables[name] for name in chosen])
                for name in set(one + two):
                    total = sum(number + pass_ + 1 for pass_, names in enumerate((one, two)) if name in names)
                    velocities[name] = 0.5 * velocities[name] - 0.1 * total * (self.size + 1) / 2
                    values[name] += velocities[name]
                for name, variable in variables.items():
                    self.assertAlmostEqual(
                        float(keras.ops.convert_to_numpy(variable)[0]), values[name], 4, f"{name} after step {number}"
                    )

    def test_a_gradient_that_allreduce_has_summed_is_refused(self):
        if self.size == 1 or BACKEND == "jax":
            self.skipTest("one rank reduces nothing; arrays of JAX have no mark")
        if BACKEND == "tensorflow":
            from horovod.tensorflow import allreduce, grouped_allreduce
        else:
            allreduce, grouped_allreduce = hvd.allreduce, None
        for op in (hvd.Sum, hvd.Average):
            for call in (allreduce, grouped_allreduce):
                if call is None:
                    continue
                w = keras.Variable([1.0, 1.0])
                optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=op)
                optimizer.build([w])
                grad = keras.ops.convert_to_tensor([1.0, 2.0]) * float(self.rank + 1)
                grad = call(grad, op=op) if call is allreduce else call([grad], op=op)[0]
                if op == hvd.Sum:
                    with self.assertRaisesRegex(ValueError, "hvd.allreduce has reduced this gradient.*Leave out"):
                        self.apply(optimizer, [grad], [w])
                else:
                    self.apply(optimizer, [grad], [w])
                    numpy.testing.assert_allclose(keras.ops.convert_to_numpy(w)[0], 1 - 0.1 * (self.size + 1) / 2)

    def test_a_gradient_that_the_optimizer_does_not_reduce_again_is_accepted(self):
        if self.size == 1 or BACKEND == "jax":
            self.skipTest("one rank reduces nothing; arrays of JAX have no mark")
        if BACKEND == "tensorflow":
            from horovod.tensorflow import allreduce
        else:
            allreduce = hvd.allreduce
        given = keras.ops.convert_to_tensor([1.0, 2.0])
        for is_part in (True, False):
            w = keras.Variable([1.0, 1.0])
            make = hvd.PartialDistributedOptimizer if is_part else hvd.DistributedOptimizer
            optimizer = make(keras.optimizers.SGD(0.1), op=hvd.Sum, scale_local_gradients=False)
            optimizer.register_local_var(w)
            optimizer.build([w])
            self.apply(optimizer, [allreduce(given, op=hvd.Sum)], [w])
            numpy.testing.assert_allclose(keras.ops.convert_to_numpy(w)[0], 1 - 0.1 * self.size, rtol=1e-6)
        if BACKEND == "tensorflow":  # hvd.allreduce of Keras has no process set
            sets = sets_of_one(self)
            w = keras.Variable([1.0, 1.0])
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Sum)
            optimizer.build([w])
            self.apply(optimizer, [allreduce(given, op=hvd.Sum, process_set=sets[self.rank])], [w])
            numpy.testing.assert_allclose(keras.ops.convert_to_numpy(w)[0], 1 - 0.1 * self.size, rtol=1e-6)

    def test_optimizers_that_one_rank_makes_alone_change_no_names(self):
        def steps(message):
            """Two optimizers of one class each reduce their gradients and overflows."""
            variables = [keras.Variable([1.0, 1.0]) for _ in range(2)]
            wrap, scale = (lambda one: one, 1.0) if BACKEND == "jax" else (scaled, 256.0)
            optimizers = [wrap(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))) for _ in range(2)]
            for index, (optimizer, variable) in enumerate(zip(optimizers, variables)):
                grad = keras.ops.convert_to_tensor([1.0, 2.0]) * (scale * (self.rank + 1) * (index + 1))
                self.apply(optimizer, [grad], [variable])
                numpy.testing.assert_allclose(
                    keras.ops.convert_to_numpy(variable)[0],
                    1 - 0.1 * (self.size + 1) / 2 * (index + 1),
                    rtol=1e-5,
                    err_msg=message,
                )

        with tempfile.TemporaryDirectory() as folder:
            if self.rank == 0:
                hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
                self.assertRaises(ValueError, hvd.DistributedOptimizer, "sgd")
                model, path = network(), os.path.join(folder, "model.keras")
                model.compile(keras.optimizers.SGD(0.1), "mse")
                model.optimizer.build(model.trainable_variables)
                model.save(path)
                self.assertTrue(hvd.load_model(path).optimizer.built)
            steps("rank 0 has made more")
        hvd.shutdown()
        if self.rank == 0:  # like a process that has trained for longer
            for _ in range(2):
                hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)).build([keras.Variable([1.0])])
        hvd.init()
        hvd.shutdown()  # from here all ranks count from 0
        hvd.init()
        steps("after a restart")

    def test_two_optimizers_in_different_order(self):
        """Two threads each train a model; the ranks start the models in different order, and one model overflows."""
        if self.size == 1 or BACKEND == "tensorflow":
            self.skipTest("eager calls of TensorFlow are numbered in their order")
        variables = [keras.Variable([1.0, 1.0]) for _ in range(2)]
        # Keras on JAX does not scale losses in loops outside of compiled functions.
        wrap, scale = (scaled, 256.0) if BACKEND == "torch" else (lambda one: one, 1.0)
        optimizers = [wrap(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))) for _ in range(2)]
        for optimizer, variable in zip(optimizers, variables):
            optimizer.build([variable])
        failures = []

        def train(index):
            try:
                for step in range(3):
                    factor = scale * (self.rank + 1) * (index + 1)
                    if BACKEND == "torch" and index == 1 and step == 1 and self.rank == 0:
                        factor = float("inf")  # halves the scale
                    self.apply(
                        optimizers[index], [keras.ops.convert_to_tensor([1.0, 2.0]) * factor], [variables[index]]
                    )
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=train, args=(index,)) for index in range(2)]
        for thread in threads if self.rank % 2 else threads[::-1]:
            thread.start()
            time.sleep(0.3)  # the first request waits for the other ranks meanwhile
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        # The second optimizer skips its second step and divides the last gradient by half of the scale (PyTorch).
        for index, variable in enumerate(variables):
            want = 1 - 0.1 * (self.size + 1) / 2 * (index + 1) * 3
            numpy.testing.assert_allclose(keras.ops.convert_to_numpy(variable)[0], want, rtol=1e-5)


if __name__ == "__main__":
    rank_base.main()
