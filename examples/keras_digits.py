#!/usr/bin/env python3
"""Trains a small CNN on handwritten digits with Keras, on as many processes as Horovod started.

    horovodrun -np 2 python3 examples/keras_digits.py
    horovodrun -np 4 -H a:2,b:2 python3 examples/keras_digits.py --epochs 8 --folder digits

Written in the form of Horovod users' scripts for Keras 2; also runs with Keras 3. Every line that makes the program
distributed is marked with "Horovod:".
"""

import argparse
import gzip
import os
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow import keras

import horovod.tensorflow.keras as hvd

DATA = Path(__file__).resolve().parent / "data"


def load_digits(part):
    """Returns the images in [0, 1] and digits of the data set `part`, "train" or "t10k"."""

    def read(kind, ndim):
        data = gzip.open(DATA / f"{part}-{kind}-idx{ndim}-ubyte.gz").read()
        shape = np.frombuffer(data, ">u4", ndim, 4)
        return np.frombuffer(data, "u1", -1, 4 + 4 * ndim).reshape(shape)

    return read("images", 3)[..., None].astype("float32") / 16, read("labels", 1).astype("int64")


parser = argparse.ArgumentParser(description="Train a small CNN on handwritten digits.")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch-size", type=int, default=8, help="images per step and process")
parser.add_argument("--folder", help="where rank 0 writes checkpoints")
parser.add_argument("--logs", help="where rank 0 writes what TensorBoard shows")
args = parser.parse_args()

# Horovod: find the other processes.
hvd.init()

# Horovod: each process takes the GPU with its local rank, if the host has GPUs.
gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

# Horovod: each process trains on its own share of the data.
train_data = tf.data.Dataset.from_tensor_slices(load_digits("train"))
train_data = train_data.shard(num_shards=hvd.size(), index=hvd.rank())
steps = len(train_data) // args.batch_size
train_data = train_data.shuffle(2000, seed=1).batch(args.batch_size).take(steps).cache()
test_images, test_digits = load_digits("t10k")

keras.utils.set_random_seed(1)
model = keras.Sequential(
    [
        keras.layers.Conv2D(16, 3, padding="same", activation="relu", input_shape=(8, 8, 1)),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(2),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)

# Horovod: the learning rate grows with the number of processes, as the whole job's batch does, and
# gradients are averaged before they are used.
learning_rate = 0.5
opt = keras.optimizers.Adadelta(learning_rate=learning_rate * hvd.size())
opt = hvd.DistributedOptimizer(opt)
model.compile(
    loss="sparse_categorical_crossentropy", optimizer=opt, metrics=["accuracy"], experimental_run_tf_function=False
)

callbacks = [
    # Horovod: all processes start from rank 0's variables.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Horovod: average the metric, because each process measures only its own share.
    hvd.callbacks.MetricAverageCallback(),
    # Horovod: warm up, because large steps harm a new model.
    hvd.callbacks.LearningRateWarmupCallback(
        lr=learning_rate * hvd.size(), warmup_epochs=3, verbose=1 if hvd.rank() == 0 else 0
    ),
]
# Horovod: one process writes files for all.
if hvd.rank() == 0 and args.folder:
    callbacks.append(keras.callbacks.ModelCheckpoint(os.path.join(args.folder, "checkpoint-{epoch}.keras")))
if hvd.rank() == 0 and args.logs:
    callbacks.append(keras.callbacks.TensorBoard(args.logs))

model.fit(train_data, epochs=args.epochs, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)
accuracy = model.evaluate(test_images, test_digits, verbose=0)[1]
print(
    f"rank {hvd.rank()} of {hvd.size()}: test accuracy {accuracy:.4f}, weights "
    f"{sum(float(abs(w).astype('float64').sum()) for w in model.get_weights())!r}",
    flush=True,
)
