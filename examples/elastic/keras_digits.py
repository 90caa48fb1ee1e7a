"""Trains a small network on handwritten digits with Model.fit of Keras, while hosts join and leave.

horovodrun -np 2 --min-np 1 -H a:1,b:1 python3 keras_digits.py
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import numpy
import tensorflow as tf

import horovod.tensorflow.keras as hvd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tutorials"))
from digits import load

BATCH = 32  # samples per batch of a rank
options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, default=10)
options.add_argument("--pause", type=float, default=0, help="seconds between batches")
options = options.parse_args()

hvd.init()
images, labels = load("train")
model = tf.keras.Sequential(
    [tf.keras.layers.Input((64,)), tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
)
model.compile(
    hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.003)),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
state = hvd.elastic.KerasState(model, batch=0, epoch=0, ranks=hvd.size())


class Pause(tf.keras.callbacks.Callback):
    def on_batch_end(self, batch, logs=None):
        time.sleep(options.pause)


@hvd.elastic.run
def train(state):
    print(f"rank {hvd.rank()} of {hvd.size()} begins in epoch {state.epoch}", flush=True)
    # After a change of the ranks, the new ranks divide the epoch into other batches: no sample of the epoch is
    # repeated.
    state.batch = -(-state.batch * state.ranks // hvd.size())
    state.ranks = hvd.size()
    steps = len(images) // (BATCH * hvd.size())
    callbacks = [
        Pause(),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state),
    ]
    while state.epoch < options.epochs:
        if state.batch >= steps:  # the ranks have changed after the last batch
            state.epoch, state.batch = state.epoch + 1, 0
            continue
        order = numpy.random.default_rng(state.epoch).permutation(len(images))
        mine = order[state.batch * BATCH * hvd.size() + hvd.rank() :: hvd.size()]
        model.fit(
            images[mine],
            labels[mine],
            batch_size=BATCH,
            shuffle=False,
            verbose=0,
            steps_per_epoch=steps - state.batch,
            initial_epoch=state.epoch,
            epochs=state.epoch + 1,
            callbacks=callbacks,
        )


train(state)
images, labels = load("t10k")
accuracy = float(tf.reduce_mean(tf.cast(tf.argmax(model(images), 1) == labels, tf.float32)))
weights = b"".join(weight.numpy().tobytes() for weight in model.trainable_variables)
print(
    f"rank {hvd.rank()} of {hvd.size()} ends: test accuracy {accuracy:.3f}, weights "
    f"{hashlib.sha256(weights).hexdigest()[:12]}",
    flush=True,
)
