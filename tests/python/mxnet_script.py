"""A training script as users write it for MXNet's Gluon with Horovod, in the form of its README."""

import mxnet as mx
import numpy as np
from mxnet import autograd

import horovod.mxnet as hvd

hvd.init()
context = mx.cpu(hvd.local_rank())
num_workers = hvd.size()

numbers = np.random.RandomState(hvd.rank()).normal(size=(96, 4)).astype("float32")
answers = (numbers @ np.array([1.5, -2.0, 0.5, 3.0]) > 0).astype("float32")
train_data = mx.io.NDArrayIter(numbers, answers, batch_size=16)

model = mx.gluon.nn.HybridSequential()
model.add(mx.gluon.nn.Dense(8, activation="relu"), mx.gluon.nn.Dense(2))  # sizes unknown before the first batch
model.hybridize()
model.initialize(mx.init.Xavier(), ctx=context)
params = model.collect_params()
if params is not None:
    hvd.broadcast_parameters(params, root_rank=0)
opt = mx.optimizer.create("sgd", learning_rate=0.2 * num_workers)
trainer = hvd.DistributedTrainer(params, opt)
loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()
metric = mx.metric.Accuracy()

accuracies = []
for epoch in range(8):
    train_data.reset()
    metric.reset()
    for batch in train_data:
        data = batch.data[0].as_in_context(context)
        label = batch.label[0].as_in_context(context)
        with autograd.record():
            output = model(data.astype("float32", copy=False))
            loss = loss_fn(output, label)
        loss.backward()
        trainer.step(16)
        metric.update([label], [output])
    _, accuracy = metric.get()
    accuracies.append(hvd.allreduce(mx.nd.array([accuracy]), name="accuracy").asscalar())

# Checks.
assert accuracies[-1] > max(0.8, accuracies[0]), accuracies
for number, param in enumerate(params.values()):
    weight = param.data().asnumpy()
    for other in hvd.allgather_object(weight, name=f"weight.{number}"):
        np.testing.assert_array_equal(other, weight)
