"""horovod.tensorflow with backward_passes_per_step > 1: gradients of different variables per pass, and step counts."""

import functools
import itertools
import os
import warnings
from unittest import mock

os.environ.setdefault("HVD_TEST_SECONDS", "240")  # because all ranks trace functions at the same time
import rank_base

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = rank_base.need("tensorflow")
import horovod.tensorflow as hvd
from horovod.tensorflow import _pass_count
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

import numpy
import table_case

tf.get_logger().setLevel("ERROR")
v1 = tf.compat.v1
keras = tf.keras
KERAS_3 = int(getattr(keras, "__version__", "2").split(".")[0]) >= 3
SHAPES = {"a": (2,), "b": (2,), "c": (3, 2)}
RATE, MOMENTUM = 0.1, 0.5
# The number of passes per step, the variables with a gradient in each pass, and the variables that a pass lists.
# Without a gradient in a step, a variable keeps its value, although it has momentum.
CASES = [
    (2, "a b a b", "own"),
    (2, "a b b a", "all"),  # the step ends in another pass
    (2, "b a a a b b", "own"),
    (2, "a ab ab a b ab b a", "reversed"),
    (3, "a b c c b a b a c a a b abc c c", "all"),
]


def momentum_steps(rate=RATE, momentum=MOMENTUM):
    """Returns a numpy optimizer: a function that applies gradients by name to values by name."""
    velocities = {}

    def apply(values, grads):
        for name, grad in grads.items():
            velocities[name] = momentum * velocities.get(name, 0) + grad
            values[name] = values[name] - rate * velocities[name]

    return apply


def gradient(name, number):
    """Returns the gradient of a variable in pass `number`, on a rank whose factor is 1."""
    shape = SHAPES[name]
    return (numpy.arange(numpy.prod(shape)).reshape(shape) + 1.0 + ord(name) - ord("a")) * (number + 1)


def trained(steps, passes, mean, average=False):
    """Returns the values by name after these passes, in float64. `mean`: the mean of the ranks' factors."""
    values, sums, apply = {name: numpy.ones(shape) for name, shape in SHAPES.items()}, {}, momentum_steps()
    for number, names in enumerate(passes):
        for name in names:
            sums[name] = sums.get(name, 0) + gradient(name, number) * mean / (steps if average else 1)
        if number % steps == steps - 1:
            apply(values, sums)
            sums = {}
    return values


class AccumulationTest(rank_base.RankBase):
    def setUp(self):
        super().setUp()
        self.factor = self.rank + 1.0
        self.mean = (self.size + 1) / 2

    def variables(self):
        return {name: tf.Variable(tf.ones(shape), name=name) for name, shape in SHAPES.items()}

    def listed(self, names, which):
        """Returns the names that a pass gives to the optimizer: names with a gradient, or all names."""
        return {"own": list(names), "all": list(SHAPES), "reversed": list(SHAPES)[::-1]}[which]

    def loss(self, variables, names, number):
        return (
            tf.add_n([tf.reduce_sum(variables[name] * tf.constant(gradient(name, 0), tf.float32)) for name in names])
            * (tf.cast(number, tf.float32) + 1)
            * self.factor
        )

    def check(self, variables, want, note):
        for name, value in want.items():
            numpy.testing.assert_allclose(variables[name], value, rtol=1e-5, err_msg=f"{note}, {name}")

    def check_passes(self, make, note):
        """Trains with the optimizer that make(steps, variables) returns, eagerly and in functions."""
        for steps, text, which in rank_base.some(CASES):
            passes = text.split()
            for in_function in (False, True):
                variables = self.variables()
                optimizer = make(steps, list(variables.values()))

                def one(names, number):
                    optimizer.minimize(
                        lambda: self.loss(variables, names, number),
                        var_list=[variables[name] for name in self.listed(names, which)],
                    )

                # Each set of variables has its own function, compiled at its first call.
                calls = {}
                for number, names in enumerate(passes):
                    if names not in calls:
                        call = functools.partial(one, names)
                        calls[names] = tf.function(call) if in_function else call
                    calls[names](tf.constant(number))
                self.check(
                    variables,
                    trained(steps, passes, self.mean),
                    f"{note}, {steps}, {text}, {which}, in a function: {in_function}",
                )

    def makers(self, name):
        """Returns Keras 2's optimizers of this name; an empty list in Keras 3, which sums gradients itself."""
        legacy = getattr(keras.optimizers, "legacy", None)  # exists since TensorFlow 2.11
        return [] if KERAS_3 else [getattr(one, name) for one in (keras.optimizers, legacy) if one is not None]

    def test_each_variable_gets_its_own_sum(self):
        for maker in self.makers("SGD"):

            def make(steps, variables):
                made = hvd.DistributedOptimizer(maker(RATE, momentum=MOMENTUM), backward_passes_per_step=steps)
                if hasattr(made, "build"):  # newer optimizers of Keras 2 need the list of all variables
                    made.build(variables)
                return made

            self.check_passes(make, maker)
        self.check_passes(
            lambda steps, variables: hvd.DistributedOptimizer(
                v1.train.MomentumOptimizer(RATE, MOMENTUM), backward_passes_per_step=steps
            ),
            "v1",
        )

    def test_each_variable_gets_its_own_sum_in_graphs(self):
        for case, (steps, text, which) in enumerate(CASES):
            passes = text.split()
            with tf.Graph().as_default():
                variables = {name: v1.get_variable(name, initializer=tf.ones(shape)) for name, shape in SHAPES.items()}
                optimizer = hvd.DistributedOptimizer(
                    v1.train.MomentumOptimizer(RATE, MOMENTUM), backward_passes_per_step=steps
                )
                number = v1.placeholder(tf.int32, [])
                count = v1.train.get_or_create_global_step()

                def compute(names):
                    return optimizer.compute_gradients(
                        self.loss(variables, names, number), [variables[name] for name in self.listed(names, which)]
                    )

                def apply(pairs):
                    grads, listed = zip(*[pair for pair in pairs if pair[0] is not None])
                    grads, _ = v1.clip_by_global_norm(list(grads), 1e9)
                    return optimizer.apply_gradients(list(zip(grads, listed)), global_step=count)

                kinds = sorted(set(passes))  # because the session decides which pass comes first
                pairs = {names: compute(names) for names in kinds} if case % 2 else {}
                ops = {names: apply(pairs.get(names) or compute(names)) for names in kinds}
                with v1.Session() as session:
                    session.run(v1.global_variables_initializer())
                    for i, names in enumerate(passes):
                        session.run(ops[names], {number: i})
                        self.assertEqual(session.run(count), i + 1)
                    self.check(session.run(variables), trained(steps, passes, self.mean), f"{steps}, {text}, {which}")

    def test_hooks_count_passes_in_graphs(self):
        with tf.Graph().as_default():
            w = v1.get_variable("w", initializer=tf.ones([]))
            count = v1.train.get_or_create_global_step()
            rate = v1.train.exponential_decay(1.0, count, 1, 0.5)
            optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(rate), backward_passes_per_step=2)
            step, batches = optimizer.minimize(w * self.factor, count), 0
            with v1.train.MonitoredTrainingSession(hooks=[v1.train.StopAtStepHook(last_step=5)]) as session:
                while not session.should_stop():
                    value = session.run([step, w])[1] if batches == 4 else session.run(step)
                    batches += 1
            self.assertEqual(batches, 5)
            # Passes 2 and 4 update the weights; the global step is 1 and 3 there.
            self.assertAlmostEqual(float(value), 1 - 2 * self.mean * (0.5 + 0.125), places=5)

    def test_iterations_count_updates_or_passes(self):
        if KERAS_3:
            self.skipTest("Keras 3 sums gradients itself")
        for maker in [*self.makers("SGD"), *self.makers("Adam")]:
            for given, in_function in [("", False), ("1", False), ("1", True), ("0", True)]:
                w = tf.Variable([1.0, 1.0])
                with mock.patch.dict(os.environ, HOROVOD_COUNT_PASSES=given):
                    optimizer = hvd.DistributedOptimizer(maker(0.5), backward_passes_per_step=3)

                    def one():
                        optimizer.minimize(lambda: tf.reduce_sum(w) * self.factor, [w])

                    run = tf.function(one) if in_function else one
                    for _ in range(7):
                        run()
                self.assertEqual(int(optimizer.iterations), 7 if given == "1" else 2)
                if given != "1":  # if "1", Adam's bias correction counts passes
                    alone, plain = tf.Variable([1.0, 1.0]), maker(0.5)
                    for _ in range(2):
                        plain.apply_gradients([(tf.ones(2) * 3 * self.mean, alone)])
                    numpy.testing.assert_allclose(w, alone, rtol=1e-5)

    def test_a_schedule_that_meets_several_passes_is_reported_once(self):
        if KERAS_3:
            self.skipTest("Keras 3 sums gradients itself")
        _pass_count._warn_of_schedule.cache_clear()
        counts = []
        for maker in self.makers("SGD"):
            schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
            for passes, rate in [(1, schedule), (2, 0.1), (2, schedule), (2, schedule)]:
                optimizer = hvd.DistributedOptimizer(maker(rate), backward_passes_per_step=passes)
                w = tf.Variable(1.0)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    for _ in range(2):
                        optimizer.minimize(lambda: w * 1.0, [w])
                said = [str(one.message) for one in caught if "HOROVOD_COUNT_PASSES" in str(one.message)]
                counts.append(len(said))
        self.assertEqual(counts[:4], [0, 0, 1 if self.rank == 0 else 0, 0])
        self.assertEqual(sum(counts[4:]), 0)

    def test_sums_of_sparse_gradients_are_sparse(self):
        makers = [
            functools.partial(v1.train.MomentumOptimizer, RATE, MOMENTUM),
            *[functools.partial(one, RATE) for one in self.makers("Adam")],
        ]
        for make in makers:
            for case in rank_base.some([(False, True, True), (False, False, False), (True, False, True)]):
                with self.subTest(make=make, case=case):
                    self.check_sparse(make, *case)

    def check_sparse(self, make, dense, average, in_function):
        """Compares with the optimizer alone, which gets the rows of all ranks and passes at once."""
        rows = [[[0, 2, 2], [2, 1], [4, 0]], [[1], [1, 3], [2, 3, 3]]]  # indexed by pass and rank

        def slices(number, rank):
            indices = rows[number % 2][rank % 3]
            values = tf.reshape(tf.range(2.0 * len(indices)) + 1.0 + rank + number, [-1, 2])
            return tf.IndexedSlices(values, tf.constant(indices), tf.constant([5, 2]))

        table, other, plain_table = [tf.Variable(tf.ones([5, 2])) for _ in range(3)]
        ours = hvd.DistributedOptimizer(
            make(), backward_passes_per_step=2, op=hvd.Sum, sparse_as_dense=dense, average_aggregated_gradients=average
        )

        def one(number):
            with tf.GradientTape() as tape:
                given = slices(number, self.rank)
                loss = tf.reduce_sum(tf.gather(table, given.indices) * given.values) + tf.reduce_sum(other)
            if isinstance(ours, v1.train.Optimizer):
                pairs = ours.compute_gradients(
                    lambda: tf.reduce_sum(tf.gather(table, given.indices) * given.values) + tf.reduce_sum(other),
                    [table, other],
                )
            else:
                pairs = ours._compute_gradients(loss, [table, other], tape=tape)
            ours.apply_gradients(pairs)

        plain = make()
        for step in range(2):
            numbers = (2 * step, 2 * step + 1)
            for number in numbers:
                (tf.function(one) if in_function else one)(number)
            parts = [slices(number, rank) for number in numbers for rank in range(self.size)]
            grad = tf.IndexedSlices(
                tf.concat([part.values for part in parts], 0) / (2 if average else 1),
                tf.concat([part.indices for part in parts], 0),
                parts[0].dense_shape,
            )
            plain.apply_gradients([(tf.convert_to_tensor(grad) if dense else grad, plain_table)])
        numpy.testing.assert_allclose(table, plain_table, rtol=1e-5)
        self.assertFalse(numpy.array_equal(table, numpy.ones((5, 2))))

    def test_loops_that_reduce_by_hand(self):
        one, total = tf.ones(2) * self.factor, self.mean * self.size
        for make in (LocalGradientAggregationHelper, LocalGradientAggregationHelperEager):
            for in_function in (False, True):
                a, b = tf.Variable([1.0, 1.0]), tf.Variable([2.0, 2.0])
                helper = make(2, lambda grads, variables: hvd.grouped_allreduce(grads, op=hvd.Sum))

                def run(names, variables):
                    """Makes a pass with gradients of the variables in `names`, 1 of a and 2 of b."""
                    grads = helper.compute_gradients(
                        [one * (i + 1) if name in names else None for i, name in enumerate("ab"[: len(variables)])],
                        variables,
                    )

                    def closure():
                        for grad, variable in zip(grads, variables):
                            if grad is not None:
                                variable.assign_sub(grad)

                    helper.apply_gradients(closure)

                def call(*arguments):
                    body = functools.partial(run, *arguments)
                    (tf.function(lambda: body()) if in_function else body)()

                call("a", [a, b])
                call("b", [a, b])
                numpy.testing.assert_allclose(a, [1 - total] * 2, rtol=1e-6)
                numpy.testing.assert_allclose(b, [2 - 2 * total] * 2, rtol=1e-6)
                call("b", [a, b])
                with self.assertRaisesRegex((ValueError, tf.errors.OpError), "give compute_gradients all variables"):
                    call("a", [a])

    def test_passes_that_are_computed_before_the_first_is_applied(self):
        for maker in [
            functools.partial(v1.train.MomentumOptimizer, RATE, MOMENTUM),
            *[functools.partial(one, RATE, momentum=MOMENTUM) for one in self.makers("SGD")],
        ]:
            for in_function in (False, True):
                variables = self.variables()
                optimizer = hvd.DistributedOptimizer(maker(), backward_passes_per_step=2)
                listed = [variables[name] for name in "ab"]

                def both():
                    compute = getattr(optimizer, "_compute_gradients", optimizer.compute_gradients)
                    pairs = [
                        compute(functools.partial(self.loss, variables, names, number), listed)
                        for number, names in enumerate(("a", "ab"))
                    ]
                    for each in pairs:
                        optimizer.apply_gradients(each)

                (tf.function(both) if in_function else both)()
                self.check(variables, trained(2, ("a", "ab"), self.mean), (maker, in_function))

    def test_adasum_and_local_variables_get_the_sums_of_earlier_passes(self):
        makers = [functools.partial(one, 1.0) for one in (v1.train.GradientDescentOptimizer, *self.makers("SGD"))]
        for maker, op, in_function in itertools.product(makers, (hvd.Adasum, hvd.Sum), (False, True)):
            a, b, own = [tf.Variable([1.0]) for _ in range(3)]
            optimizer = hvd.DistributedOptimizer(
                maker(), backward_passes_per_step=2, op=op, scale_local_gradients=False
            )
            optimizer.register_local_var(own)
            if hasattr(optimizer, "build"):
                optimizer.build([a, b, own])

            def one(*variables):
                optimizer.minimize(
                    lambda: tf.add_n([tf.reduce_sum(each) for each in variables]) * self.factor,
                    var_list=list(variables),
                )

            for variables in ([a, own], [b]):
                body = functools.partial(one, *variables)
                (tf.function(lambda: body()) if in_function else body)()
            want = -self.mean * self.size
            if op == hvd.Adasum:
                want = table_case.adasum([numpy.array([-rank - 1.0]) for rank in range(self.size)])[0]
            for variable, change in ((a, want), (b, want), (own, -self.factor)):
                numpy.testing.assert_allclose(variable, [1 + change], rtol=1e-5)


if __name__ == "__main__":
    rank_base.main()
