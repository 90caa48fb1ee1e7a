"""A training loop as users write it for TensorFlow 2 with Horovod, in the form of its README."""

import os
import tempfile

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()

gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

numbers = np.random.RandomState(hvd.rank()).normal(size=(96, 4)).astype("float32")
answers = (numbers @ np.array([1.5, -2.0, 0.5, 3.0]) > 0).astype("int64")
dataset = tf.data.Dataset.from_tensor_slices((numbers, answers)).repeat().shuffle(96).batch(16)

model = tf.keras.Sequential(
    [tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(2, activation="softmax")]
)
loss = tf.losses.SparseCategoricalCrossentropy()
opt = tf.optimizers.Adam(0.02 * hvd.size())
scratch = tempfile.TemporaryDirectory()
checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)


@tf.function
def training_step(inputs, labels, first_batch):
    with tf.GradientTape() as tape:
        loss_value = loss(labels, model(inputs, training=True))
    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables() if callable(opt.variables) else opt.variables, root_rank=0)
    return loss_value


losses = []
for batch, (inputs, labels) in enumerate(dataset.take(60 // hvd.size())):
    loss_value = training_step(inputs, labels, batch == 0)
    losses.append(float(loss_value))
    if batch % 10 == 0 and hvd.local_rank() == 0:
        print("Step #%d\tLoss: %.6f" % (batch, loss_value))
if hvd.rank() == 0:
    checkpoint.save(os.path.join(scratch.name, "model"))

# Checks.
assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5]), losses
assert (hvd.rank() == 0) == os.path.exists(os.path.join(scratch.name, "model-1.index"))
for number, weight in enumerate(model.get_weights()):
    for other in hvd.allgather_object(weight, name=f"weight.{number}"):
        np.testing.assert_array_equal(other, weight)
