"""A rank that trains with TensorFlow; takes the protocol of worker.h, with the command train only.

horovodrun -np N python3 tensorflow_worker.py SOCKET horovod
horovodrun -np N python3 tensorflow_worker.py SOCKET bound
python3 tensorflow_worker.py SOCKET mirrored RANK SIZE PORT...
python3 tensorflow_worker.py SOCKET plain RANK SIZE FOLDER
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
import python_worker
import tensorflow as tf

BATCH = 32
RATE = 0.01
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)


def dense(inputs, outputs):
    return [tf.Variable(tf.random.normal([inputs, outputs], stddev=0.05, seed=1)), tf.Variable(tf.zeros([outputs]))]


def mlp():
    """669,706 parameters in 6 tensors, as in models.py: variables, forward pass, shape of a sample."""
    weights = dense(784, 512) + dense(512, 512) + dense(512, 10)

    def forward(x):
        for i in (0, 2):
            x = tf.nn.relu(x @ weights[i] + weights[i + 1])
        return x @ weights[4] + weights[5]

    return weights, forward, (784,)


def cnn():
    """21,840 parameters in 8 tensors, as in models.py."""

    def kernel(inputs, outputs):
        return [
            tf.Variable(tf.random.normal([5, 5, inputs, outputs], stddev=0.05, seed=1)),
            tf.Variable(tf.zeros([outputs])),
        ]

    weights = kernel(1, 10) + kernel(10, 20) + dense(320, 50) + dense(50, 10)

    def forward(x):
        for i in (0, 2):
            x = tf.nn.conv2d(x, weights[i], 1, "VALID") + weights[i + 1]
            x = tf.nn.relu(tf.nn.max_pool2d(x, 2, 2, "VALID"))
        x = tf.nn.relu(tf.reshape(x, [BATCH, 320]) @ weights[4] + weights[5])
        return x @ weights[6] + weights[7]

    return weights, forward, (28, 28, 1)


def deep():
    """171,530 parameters in 62 tensors, as in models.py."""
    weights = dense(784, 64)
    for _ in range(29):
        weights += dense(64, 64)
    weights += dense(64, 10)

    def forward(x):
        for i in range(0, 60, 2):
            x = tf.nn.relu(x @ weights[i] + weights[i + 1])
        return x @ weights[60] + weights[61]

    return weights, forward, (784,)


MODELS = {"cnn": cnn, "mlp": mlp, "deep": deep}


class Trainer:
    """One rank's copy of a model. `wrap_tape` wraps the tape; `reduce` reduces gradients; `run` calls a function in its
    strategy; `after` runs after each step."""

    def __init__(self, model, wrap_tape=None, reduce=None, run=None, after=None):
        tf.random.set_seed(1)
        weights, forward, shape = MODELS[model]()
        inputs = tf.random.normal([BATCH, *shape], seed=2)
        labels = tf.random.uniform([BATCH], 0, 10, tf.int32, seed=3)

        def compute():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, forward(inputs)))
            if wrap_tape:
                tape = wrap_tape(tape)
            grads = tape.gradient(loss, weights)
            for weight, grad in zip(weights, reduce(grads) if reduce else grads):
                weight.assign_sub(RATE * grad)
            return loss

        self._step = tf.function(lambda: run(compute) if run else compute())
        self._after = after

    def step(self):
        self._step().numpy()
        if self._after:
            self._after()


class Plain(python_worker.Plain):
    """A TensorFlow process without this project."""

    def __init__(self, rank="0", size="1", folder=None):
        self.rank, self.trainers = int(rank), {}
        self.barrier = python_worker.Barrier(f"{folder}/barrier", self.rank, int(size)) if folder else None

    def trainer(self, model):
        return Trainer(model, after=self.barrier)


class Horovod(Plain):
    def __init__(self):
        import horovod.tensorflow as hvd

        hvd.init()
        super().__init__(hvd.rank())
        self.hvd = hvd

    def trainer(self, model):
        return Trainer(model, wrap_tape=self.hvd.DistributedGradientTape)


class Bound(Horovod):
    """Does not reduce the gradients; reduces 4 B after the backward pass, to measure the synchronization alone."""

    def trainer(self, model):
        from horovod.tensorflow._reduction import Reduction

        def meet(grads):
            with tf.control_dependencies(grads):
                met = Reduction()([tf.zeros([1])])
            with tf.control_dependencies(met):
                return [tf.identity(grad) for grad in grads]

        return Trainer(model, reduce=meet)


class Mirrored(Plain):
    """tf.distribute's MultiWorkerMirroredStrategy."""

    def __init__(self, rank, size, *ports):
        super().__init__(rank, size)
        os.environ["TF_CONFIG"] = json.dumps(
            {
                "cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
                "task": {"type": "worker", "index": self.rank},
            }
        )
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def trainer(self, model):
        def reduce(grads):
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, grads)

        def run(compute):
            return self.strategy.experimental_local_results(self.strategy.run(compute))[0]

        with self.strategy.scope():
            return Trainer(model, reduce=reduce, run=run)


if __name__ == "__main__":
    KINDS = {"horovod": Horovod, "bound": Bound, "mirrored": Mirrored, "plain": Plain}
    python_worker.serve(sys.argv[1], KINDS[sys.argv[2]](*sys.argv[3:]))
