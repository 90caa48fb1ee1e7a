#!/usr/bin/env python3
"""Trains a small network on handwritten digits in a custom loop, with TensorFlow, on as many processes as Horovod
started.

    horovodrun -np 2 python3 examples/tensorflow_digits.py
    horovodrun -np 4 -H a:2,b:2 python3 examples/tensorflow_digits.py --checkpoint digits/model

Every line that makes the program distributed is marked with "Horovod:".
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

DATA = Path(__file__).resolve().parent / "data"


def load_digits(part):
    """Returns the images in [0, 1], flat, and digits of the data set `part`, "train" or "t10k"."""

    def read(kind, ndim):
        data = gzip.open(DATA / f"{part}-{kind}-idx{ndim}-ubyte.gz").read()
        shape = np.frombuffer(data, ">u4", ndim, 4)
        return np.frombuffer(data, "u1", -1, 4 + 4 * ndim).reshape(shape)

    images = read("images", 3)
    return images.reshape(len(images), -1).astype("float32") / 16, read("labels", 1).astype("int64")


parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
parser.add_argument("--steps", type=int, default=600, help="of all processes together")
parser.add_argument("--checkpoint", metavar="PREFIX", help="written by rank 0 at the end")
args = parser.parse_args()

# Horovod: find the other processes.
hvd.init()
print(
    "Hello, rank = %d, local_rank = %d, size = %d, local_size = %d"
    % (hvd.rank(), hvd.local_rank(), hvd.size(), hvd.local_size())
)

# Horovod: each process trains on its own share of the data.
dataset = tf.data.Dataset.from_tensor_slices(load_digits("train"))
dataset = dataset.shard(hvd.size(), hvd.rank()).repeat().shuffle(2000, seed=1).batch(16)

tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
# Horovod: the learning rate grows with the number of processes.
opt = tf.keras.optimizers.Adam(0.001 * hvd.size())
checkpoint = tf.train.Checkpoint(model=model)


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        loss_value = loss(labels, model(images, training=True))
    # Horovod: gradients are averaged over all processes.
    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
    return loss_value


for batch, (images, labels) in enumerate(dataset.take(args.steps // hvd.size())):
    loss_value = training_step(images, labels, batch == 0)
    # Horovod: all processes continue with rank 0's values after the first step has created all variables.
    if batch == 0:
        hvd.broadcast_variables(model.variables, root_rank=0)
        variables = opt.variables
        hvd.broadcast_variables(variables() if callable(variables) else variables, root_rank=0)
    if batch % 100 == 0 and hvd.local_rank() == 0:
        print("Step #%d\tLoss: %.6f" % (batch, loss_value))

# Horovod: one process writes files for all.
if hvd.rank() == 0 and args.checkpoint:
    checkpoint.save(args.checkpoint)

test_images, test_digits = load_digits("t10k")
accuracy = float((model(test_images).numpy().argmax(1) == test_digits).mean())
print(
    f"rank {hvd.rank()} of {hvd.size()}: test accuracy {accuracy:.4f}, weights "
    f"{sum(float(abs(w).astype('float64').sum()) for w in model.get_weights())!r}",
    flush=True,
)
