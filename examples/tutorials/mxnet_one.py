"""Trains a small network on handwritten digits with MXNet's Gluon, in one process."""

import mxnet as mx
from mxnet import autograd, gluon

from digits import load

mx.random.seed(1)
images, labels = load("train")
data = gluon.data.DataLoader(gluon.data.ArrayDataset(images, labels), 32, shuffle=True, last_batch="discard")

model = gluon.nn.Sequential()
model.add(gluon.nn.Dense(64, activation="relu", in_units=64), gluon.nn.Dense(10, in_units=64))
model.initialize(mx.init.Xavier())
trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
loss_function = gluon.loss.SoftmaxCrossEntropyLoss()

for epoch in range(5):
    for batch_images, batch_labels in data:
        with autograd.record():
            loss = loss_function(model(batch_images), batch_labels)
        loss.backward()
        trainer.step(32)
    print(f"epoch {epoch + 1}: loss {loss.mean().asscalar():.3f}")

test_images, test_labels = load("t10k")
right = (model(mx.nd.array(test_images)).asnumpy().argmax(1) == test_labels).mean()
print(f"test accuracy {right:.3f}")
model.save_parameters("digits.params")
