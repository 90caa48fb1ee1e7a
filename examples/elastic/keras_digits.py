"""Trains a small network on handwritten digits with Model.fit of Keras, while hosts come and go.

    horovodrun -np 2 --min-np 1 -H a:1,b:1 python3 keras_digits.py
"""
import argparse
import hashlib
import sys
import time
from pathlib import Path

import tensorflow as tf

import horovod.tensorflow.keras as hvd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tutorials"))
from digits import load

options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, default=10)
options.add_argument("--pause", type=float, default=0, help="seconds between batches")
options = options.parse_args()

hvd.init()
images, labels = load("train")
model = tf.keras.Sequential([tf.keras.layers.Input((64,)),
                             tf.keras.layers.Dense(64, activation="relu"),
                             tf.keras.layers.Dense(10)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.003)),
              tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
state = hvd.elastic.KerasState(model, batch=0, epoch=0)


class Pause(tf.keras.callbacks.Callback):
    def on_batch_end(self, batch, logs=None):
        time.sleep(options.pause)


@hvd.elastic.run
def train(state):
    print(f"rank {hvd.rank()} of {hvd.size()} begins in epoch {state.epoch}", flush=True)
    share = len(images) // hvd.size()
    mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
    model.fit(images[mine], labels[mine], batch_size=32, verbose=0,
              epochs=options.epochs - state.epoch,
              callbacks=[Pause(), hvd.elastic.UpdateBatchStateCallback(state),
                         hvd.elastic.UpdateEpochStateCallback(state),
                         hvd.elastic.CommitStateCallback(state)])


train(state)
images, labels = load("t10k")
accuracy = float(tf.reduce_mean(tf.cast(tf.argmax(model(images), 1) == labels, tf.float32)))
weights = b"".join(weight.numpy().tobytes() for weight in model.trainable_variables)
print(f"rank {hvd.rank()} of {hvd.size()} ends: test accuracy {accuracy:.3f}, weights "
      f"{hashlib.sha256(weights).hexdigest()[:12]}", flush=True)
