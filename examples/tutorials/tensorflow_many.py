"""Trains a small network on handwritten digits with TensorFlow, in all processes of a job."""

import tensorflow as tf

import horovod.tensorflow as hvd
from digits import load

hvd.init()
tf.keras.utils.set_random_seed(1)
images, labels = load("train")
share = len(images) // hvd.size()
images, labels = images[hvd.rank() * share :][:share], labels[hvd.rank() * share :][:share]
data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images)).batch(32, drop_remainder=True)

model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)])
model.build((None, 64))
optimizer = tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
hvd.broadcast_variables(model.variables, root_rank=0)


@tf.function
def train_step(images, labels):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = loss_function(labels, model(images))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for epoch in range(5):
    for batch_images, batch_labels in data:
        loss = train_step(batch_images, batch_labels)
    loss = hvd.allreduce(loss, name="loss")
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

if hvd.rank() == 0:
    test_images, test_labels = load("t10k")
    right = (model(test_images).numpy().argmax(1) == test_labels).mean()
    print(f"test accuracy {right:.3f}")
    model.save_weights("digits.weights.h5")
