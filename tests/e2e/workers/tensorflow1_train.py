"""Trains like scripts for TensorFlow 1: a graph, a MonitoredTrainingSession and hooks.

tensorflow1_train.py CHECKPOINTS
"""

import sys

import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

tf.disable_eager_execution()
hvd.init()

# Each rank has points of a plane y = 2 a - 3 b + c. The mean of c over two ranks is 1.
generator = np.random.RandomState(hvd.rank())


def batch():
    points = generator.uniform(-1, 1, (32, 2)).astype(np.float32)
    return points, points @ np.float32([2, -3]) + 0.5 + hvd.rank()


features = tf.placeholder(tf.float32, [None, 2], name="features")
targets = tf.placeholder(tf.float32, [None], name="targets")
weights = tf.get_variable("weights", initializer=tf.random_uniform([2], seed=hvd.rank()))
bias = tf.get_variable("bias", initializer=float(hvd.rank()))
predictions = tf.linalg.matvec(features, weights) + bias
loss = tf.losses.mean_squared_error(targets, predictions)
mean_loss = hvd.allreduce(loss, name="mean_loss")

optimizer = tf.train.MomentumOptimizer(0.05 * hvd.size(), 0.5)
optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Average)
global_step = tf.train.get_or_create_global_step()
train_op = optimizer.minimize(loss, global_step=global_step)

hooks = [
    hvd.BroadcastGlobalVariablesHook(0),
    tf.train.StopAtStepHook(last_step=200 // hvd.size()),
    tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=10),
]
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
checkpoint_dir = sys.argv[1] if hvd.rank() == 0 else None

with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, hooks=hooks, config=config) as mon_sess:
    while not mon_sess.should_stop():
        x, y = batch()
        _, reached, w, b = mon_sess.run([train_op, mean_loss, weights, bias], feed_dict={features: x, targets: y})

print(f"rank {hvd.rank()} of {hvd.size()}: loss {reached:.5f}, weights {w[0]:.5f} {w[1]:.5f} {b:.5f}", flush=True)
