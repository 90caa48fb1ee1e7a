"""The elastic callbacks of horovod.keras and horovod.tensorflow.keras: which epochs and batches `fit` trains after the
job's ranks have changed. The test acts as the job: it interrupts `fit`, and calls it again.

keras_elastic_test.py [tensorflow | torch | jax]    the backend, for Keras 3
"""

import keras_backend
import rank_base
from keras_backend import keras

hvd = keras_backend.import_horovod()

import numpy

STEPS, BATCH = 4, 2  # batches of an epoch, samples of a batch


class Interrupt(Exception):
    """Simulates the exception of a commit after a change of hosts."""


class Interrupts(keras.callbacks.Callback):
    """Counts batches, and raises Interrupt after the batches with these numbers."""

    def __init__(self, after):
        super().__init__()
        self.after, self.batches, self.epochs, self.steps = after, 0, [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append(epoch)
        self.steps.append(self.params["steps"])

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches in self.after:
            raise Interrupt


class ElasticCallbacksTest(rank_base.RankBase):
    def setUp(self):
        super().setUp()
        self.model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        # With a gradient of -x for each sample, the weight is the sum of the means of all batches.
        self.model.compile(keras.optimizers.SGD(1.0), loss=lambda wanted, got: -got)
        self.model.set_weights([numpy.zeros((1, 1))])
        self.inputs = 2.0 ** numpy.arange(STEPS * BATCH, dtype="float32")[:, None]
        self.state = hvd.elastic.ObjectState(batch=0, epoch=0)

    def callbacks(self, interrupts):
        return [
            hvd.elastic.UpdateBatchStateCallback(self.state),
            hvd.elastic.UpdateEpochStateCallback(self.state),
            interrupts,
        ]

    def fit(self, first, epochs, callbacks, initial_epoch=0):
        inputs = self.inputs[first * BATCH :]
        self.model.fit(
            inputs,
            inputs,
            batch_size=BATCH,
            shuffle=False,
            verbose=0,
            epochs=epochs,
            initial_epoch=initial_epoch,
            steps_per_epoch=STEPS - first,
            callbacks=callbacks,
        )

    def train(self, epochs, after):
        """Trains like examples/elastic/keras_digits.py. Returns the callback and the epochs and batches that began each
        time."""
        interrupts, begins = Interrupts(after), []
        callbacks = self.callbacks(interrupts)
        while self.state.epoch < epochs:
            if self.state.batch == STEPS:
                self.state.epoch, self.state.batch = self.state.epoch + 1, 0
                continue
            begins.append((self.state.epoch, self.state.batch))
            try:
                self.fit(self.state.batch, self.state.epoch + 1, callbacks, self.state.epoch)
            except Interrupt:
                pass
        return interrupts, begins

    def test_changes_repeat_no_batch_and_skip_none(self):
        # The changes come in the second epoch, twice, and after the last batch of the third epoch.
        interrupts, begins = self.train(5, {5, 7, 12})
        self.assertEqual(begins, [(0, 0), (1, 0), (1, 1), (1, 3), (2, 0), (3, 0), (4, 0)])
        self.assertEqual((self.state.epoch, self.state.batch), (5, 0))
        self.assertEqual(interrupts.batches, 5 * STEPS)
        self.assertEqual(interrupts.epochs, [0, 1, 1, 1, 2, 3, 4])
        self.assertEqual(interrupts.steps, [4, 4, 3, 1, 4, 4, 4])
        numpy.testing.assert_allclose(self.model.get_weights()[0], 5 * self.inputs.sum() / BATCH, rtol=1e-6)

    def test_epochs_are_counted_from_the_first_one_of_each_call(self):
        for is_absolute in (True, False):
            self.state.epoch, self.state.batch, seen = 0, 0, []
            interrupts = Interrupts({2 * STEPS, 2 * STEPS + 2 * STEPS + 1})  # in the epochs 1 and 3
            for _ in range(3):
                first = self.state.epoch
                seen.append(first)
                try:
                    if is_absolute:
                        self.fit(0, 6, self.callbacks(interrupts), first)
                    else:
                        self.fit(0, 6 - first, self.callbacks(interrupts))
                except Interrupt:
                    self.state.batch = 0  # this program repeats an interrupted epoch
            # Each change repeats the epoch that it interrupts.
            self.assertEqual((seen, self.state.epoch, self.state.batch), ([0, 1, 3], 6, 0), is_absolute)
            self.assertEqual(interrupts.epochs, [0, 1, 1, 2, 3, 3, 4, 5] if is_absolute else [0, 1, 0, 1, 2, 0, 1, 2])

    def test_callbacks_may_serve_several_calls_of_fit(self):
        callbacks = self.callbacks(Interrupts(()))
        for end in (2, 3, 7):
            self.fit(0, end, callbacks, self.state.epoch)
            self.assertEqual((self.state.epoch, self.state.batch), (end, 0))

    def test_a_schedule_by_batches_counts_those_of_each_call_of_fit(self):
        seen = []
        schedule = hvd.callbacks.LearningRateScheduleCallback(
            1.0, lambda epoch: seen.append(round(epoch, 4)) or 1.0, staircase=False
        )
        self.fit(2, 1, [schedule])
        self.fit(0, 2, [schedule], 1)
        self.assertEqual(seen, [0, 0.5, 1, 1.25, 1.5, 1.75])


if __name__ == "__main__":
    rank_base.main()
