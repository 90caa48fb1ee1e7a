"""Trains a small network on handwritten digits with Keras, in one process."""

from tensorflow import keras

from digits import load

keras.utils.set_random_seed(1)
images, labels = load("train")

model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10, activation="softmax")])
model.build((None, 64))
optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])

callbacks = []
model.fit(images, labels, batch_size=32, epochs=5, callbacks=callbacks, verbose=2)

loss, right = model.evaluate(*load("t10k"), verbose=0)
print(f"test accuracy {right:.3f}")
model.save_weights("digits.weights.h5")
