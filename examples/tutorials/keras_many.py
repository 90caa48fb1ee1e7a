"""Trains a small network on handwritten digits with Keras, in all processes of a job."""

from tensorflow import keras

import horovod.tensorflow.keras as hvd
from digits import load

hvd.init()
keras.utils.set_random_seed(1)
images, labels = load("train")
share = len(images) // hvd.size()
images, labels = images[hvd.rank() * share :][:share], labels[hvd.rank() * share :][:share]

model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10, activation="softmax")])
model.build((None, 64))
optimizer = keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer)
model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
model.fit(images, labels, batch_size=32, epochs=5, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)

if hvd.rank() == 0:
    loss, right = model.evaluate(*load("t10k"), verbose=0)
    print(f"test accuracy {right:.3f}")
    model.save_weights("digits.weights.h5")
