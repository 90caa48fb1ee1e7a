"""Trains a small network on handwritten digits with TensorFlow, while hosts join and leave.

horovodrun -np 2 --min-np 1 -H a:1,b:1 python3 tensorflow_digits.py
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import tensorflow as tf

import horovod.tensorflow as hvd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tutorials"))
from digits import load

options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, default=10)
options.add_argument("--pause", type=float, default=0, help="seconds between batches")
options = options.parse_args()

hvd.init()
images, labels = load("train")
model = tf.keras.Sequential(
    [tf.keras.layers.Input((64,)), tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
)
optimizer = tf.keras.optimizers.Adam(0.003)
loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, batch=0)


@tf.function
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(images, training=True))
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


@hvd.elastic.run
def train(state):
    print(f"rank {hvd.rank()} of {hvd.size()} begins in epoch {state.epoch}", flush=True)
    while state.epoch < options.epochs:
        # All ranks together take the images in order.
        while state.batch * 32 * hvd.size() + 32 * hvd.size() <= len(images):
            first = (state.batch * hvd.size() + hvd.rank()) * 32
            step(tf.constant(images[first : first + 32]), tf.constant(labels[first : first + 32]))
            state.batch += 1
            time.sleep(options.pause)
            state.commit()
        state.epoch += 1
        state.batch = 0


train(state)
images, labels = load("t10k")
accuracy = float(tf.reduce_mean(tf.cast(tf.argmax(model(images), 1) == labels, tf.float32)))
weights = b"".join(weight.numpy().tobytes() for weight in model.trainable_variables)
print(
    f"rank {hvd.rank()} of {hvd.size()} ends: test accuracy {accuracy:.3f}, weights "
    f"{hashlib.sha256(weights).hexdigest()[:12]}",
    flush=True,
)
