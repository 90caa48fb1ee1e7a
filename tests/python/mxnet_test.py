"""horovod.mxnet: every collective, type and error, compared with numpy; training as in one process."""

import os
import pickle
import subprocess
import sys
from unittest import mock

import rank_base

mx = rank_base.need("mxnet")
import numpy
import table_case
import table_facades

import horovod.mxnet as hvd


def values(rank, dtype="float32", shape=(6, 3)):
    count = int(numpy.prod(shape))
    return ((numpy.arange(count) * 7 + 3 * rank) % 5 + 1).reshape(shape).astype(dtype)


def array(rank, dtype="float32", shape=(6, 3)):
    return mx.nd.array(values(rank, dtype, shape), dtype=dtype)


class OnGpu(mx.nd.NDArray):
    """An array in host memory that counts as a GPU array."""

    context = property(lambda self: mx.gpu(0))

    def copy(self):
        return on_gpu(self)


def on_gpu(array):
    made = OnGpu(mx.nd.ndarray._new_alloc_handle(array.shape, mx.cpu(), False, array.dtype))
    if array.size:
        array.copyto(made)
    return made


def move(array, context):
    return on_gpu(array) if context.device_type == "gpu" else array.copyto(context)


def make_net(seed, is_compiled=False):
    mx.random.seed(seed)
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(8, activation="tanh"), mx.gluon.nn.Dense(1))
    if is_compiled:
        net.hybridize()
    net.initialize(mx.init.Xavier())
    net[0].weight.lr_mult = 0.5
    return net


def inputs(rank, step):
    generator = numpy.random.RandomState(10 * step + rank)
    return mx.nd.array(generator.randn(4, 3))


class MxnetTest(rank_base.RankBase):
    def same(self, got, want, dtype="float32", message=None):
        self.assertIsInstance(got, mx.nd.NDArray, message)
        self.assertEqual(numpy.dtype(got.dtype), numpy.dtype(dtype), message)
        numpy.testing.assert_allclose(
            got.asnumpy().astype("float64"), want, rtol=1e-3 if dtype == "float16" else 1e-6, err_msg=str(message)
        )

    def everybody(self, *arguments):
        return numpy.stack([values(rank, *arguments).astype("float64") for rank in range(self.size)])

    @mock.patch.object(mx.nd.NDArray, "as_in_context", move)
    def test_arrays_on_a_gpu_go_through_host_memory(self):
        def check(got, want):
            self.assertIsInstance(got, OnGpu)
            self.same(got, want)

        total = self.everybody().sum(0)
        mine = on_gpu(array(self.rank))
        check(hvd.allreduce(mine, op=hvd.Sum), total)
        check(mine, values(self.rank))
        for got in hvd.grouped_allreduce([mine, mine], op=hvd.Sum):
            check(got, total)
        mixed = hvd.grouped_allreduce([array(self.rank), mine], op=hvd.Sum)
        self.same(mixed[0], total)
        check(mixed[1], total)
        root = self.size - 1
        check(hvd.broadcast(mine, root), values(root))
        check(hvd.allgather(mine), numpy.concatenate(self.everybody()))
        check(hvd.grouped_allgather([mine])[0], numpy.concatenate(self.everybody()))
        rows = 6 // self.size
        if 6 % self.size == 0:
            check(hvd.reducescatter(mine, op=hvd.Sum), total[rows * self.rank : rows * (self.rank + 1)])
            got, received = hvd.alltoall(mine, [rows] * self.size)
            check(
                got,
                numpy.concatenate(
                    [values(rank)[rows * self.rank : rows * (self.rank + 1)] for rank in range(self.size)]
                ),
            )
            self.assertEqual(received.asnumpy().tolist(), [rows] * self.size)
        self.assertIs(hvd.allreduce_(mine, op=hvd.Sum), mine)
        check(mine, total)
        self.assertIs(hvd.broadcast_(mine, 0), mine)
        check(mine, total)

    def test_arrays_that_mxnet_still_computes_are_waited_for(self):
        slow = mx.nd.ones((300, 300))
        for _ in range(30):
            slow = mx.nd.dot(slow, slow) / 300
        self.same(hvd.allreduce_(slow, op=hvd.Sum)[0, :2] + 1, [self.size + 1] * 2)

    def test_factors_groups_and_the_deprecated_argument(self):
        all_ = self.everybody()
        self.same(hvd.allreduce(array(self.rank), prescale_factor=2.0, postscale_factor=0.25), all_.mean(0) / 2)
        with self.assertWarns(DeprecationWarning):
            self.same(hvd.allreduce(array(self.rank), average=False), all_.sum(0))
        pair = [array(self.rank), array(self.rank, "int32")]
        summed = hvd.grouped_allreduce(pair, op=hvd.Sum, name="pair")
        self.same(summed[0], all_.sum(0))
        self.same(summed[1], all_.sum(0), "int32")
        self.assertIs(hvd.grouped_allreduce_(pair, op=hvd.Sum)[1], pair[1])
        self.same(pair[1], all_.sum(0), "int32")

    def test_process_sets_and_objects(self):
        if self.size > 1:
            alone = hvd.add_process_set([self.size - 1])
            if alone.included():
                self.same(hvd.allreduce(array(1), op=hvd.Sum, process_set=alone), values(1))
            hvd.remove_process_set(alone)
        self.assertEqual(hvd.broadcast_object({"of": self.rank}, 0), {"of": 0})
        self.assertEqual(hvd.allgather_object(self.rank), list(range(self.size)))

    def test_names_are_where_scripts_import_them_from(self):
        from horovod.mxnet import functions, mpi_ops

        done = subprocess.run(  # a new process, since this one has imported the modules
            [
                sys.executable,
                "-c",
                "import horovod.mxnet as hvd; print(hvd.mpi_ops.Sum, "
                "hvd.functions.broadcast_object, hvd.compression.Compression)",
            ],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual({"allgather", "broadcast_", "rank", "size"}, set(functions.__all__))
        with self.assertWarns(DeprecationWarning):
            self.assertEqual(mpi_ops.handle_average_backwards_compatibility(None, False), hvd.Sum)
        self.assertEqual(mpi_ops._basics.rank(), self.rank)
        for module in (mpi_ops, functions):
            for name in module.__all__:
                self.assertIs(getattr(module, name), getattr(hvd, name), name)

    def test_errors_are_sentences(self):
        for bad, words in [
            (numpy.ones(2), "expected an mxnet.nd.NDArray"),
            (mx.nd.ones((2, 2)).tostype("row_sparse"), "row_sparse"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                hvd.allreduce(bad)
        with self.assertRaisesRegex(ValueError, "either op or average"):
            hvd.allreduce(mx.nd.ones(2), average=True, op=hvd.Sum)
        if self.size > 1:
            with self.assertRaises(hvd.HorovodInternalError):
                hvd.alltoall(mx.nd.ones((self.size, 2 + self.rank)), name="differs")
        for arguments, words in [
            ({"gradient_predivide_factor": 0}, "positive"),
            ({"num_groups": -1}, "0 or more"),
            ({"num_groups": "two"}, "0 or more"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                hvd.DistributedOptimizer(mx.optimizer.SGD(), **arguments)
        with self.assertRaisesRegex(ValueError, "not 'sgd', a str"):
            hvd.DistributedOptimizer("sgd")
        with self.assertRaisesRegex(ValueError, "not 3, a int"):
            hvd.DistributedTrainer([], 3)
        with self.assertRaisesRegex(ValueError, "compression is 'fp16'"):
            hvd.DistributedTrainer([], "sgd", compression="fp16")
        for splits, words in [
            ("ab", "give whole numbers"),
            ([0.5] * self.size, "give whole numbers"),
            (2, "give whole numbers"),
            (mx.nd.ones(self.size), "type float32.*int32"),
            ([3] * self.size, "splits"),
        ]:
            with self.assertRaisesRegex(ValueError, words) as caught:
                hvd.alltoall(mx.nd.ones(self.size), splits)
            self.assertIsInstance(caught.exception, RuntimeError)  # like MXNetError, which Horovod raises
        with self.assertRaisesRegex(ValueError, "a dict of arrays"):
            hvd.broadcast_parameters([mx.nd.ones(2)])

    def weights(self, net):
        return [param.data().asnumpy() for param in net.collect_params().values()]

    def reference(self, steps):
        """Returns the weights after training in one process on the data of all ranks."""
        net = make_net(0)
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=None)
        for step in range(steps):
            data = mx.nd.concat(*[inputs(rank, step) for rank in range(self.size)], dim=0)
            with mx.autograd.record():
                loss = (net(data) - data.sum(axis=1, keepdims=True)).square().sum()
            loss.backward()
            trainer.step(4 * self.size)
        return self.weights(net)

    def assert_trained(self, net, steps):
        for index, (got, want) in enumerate(zip(self.weights(net), self.reference(steps))):
            numpy.testing.assert_allclose(got, want, atol=1e-5)
            for other in hvd.allgather_object(got.tobytes(), f"weights.{index}"):
                self.assertEqual(other, got.tobytes())  # bit for bit

    def run_steps(self, net, step_with, steps=5):
        for step in range(steps):
            data = inputs(self.rank, step)
            with mx.autograd.record():
                loss = (net(data) - data.sum(axis=1, keepdims=True)).square().sum()
            loss.backward()
            step_with()

    def test_a_trainer_reaches_the_weights_of_one_process(self):
        for arguments in [{}, {"num_groups": 2}, {"gradient_predivide_factor": 2.0, "prefix": "b."}]:
            net = make_net(self.rank, is_compiled="num_groups" in arguments)
            # The first batch determines the shapes; the broadcast takes place then.
            hvd.broadcast_parameters(net.collect_params(), root_rank=0)
            trainer = hvd.DistributedTrainer(
                net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **arguments
            )
            self.run_steps(net, lambda: trainer.step(4))
            self.assert_trained(net, 5)

    def test_clipping_is_that_of_one_process_or_refused(self):
        from mxnet.gluon.utils import clip_global_norm

        nets = [make_net(0), make_net(0)]
        trainer, alone = (
            make(net.collect_params(), "sgd", {"learning_rate": 0.1})
            for make, net in zip((hvd.DistributedTrainer, mx.gluon.Trainer), nets)
        )
        for net in nets:  # the first batch determines the shapes
            net(inputs(0, 0))
        for param, copy in zip(*(net.collect_params().values() for net in nets)):
            copy.set_data(param.data())
        for step in range(3):
            for net, made, ranks in zip(nets, (trainer, alone), ([self.rank], range(self.size))):
                data = mx.nd.concat(*(inputs(rank, step) for rank in ranks), dim=0)
                with mx.autograd.record():
                    loss = (net(data) - data.sum(axis=1, keepdims=True)).square().sum() / len(ranks)
                loss.backward()
                gradients = [param.grad() for param in net.collect_params().values()]
                if made is trainer and self.size > 1:
                    with self.assertRaisesRegex(AssertionError, r"dense.*allreduce_grads\(\).*update"):
                        clip_global_norm(gradients, 0.5)
                made.allreduce_grads()
                clip_global_norm(gradients, 0.5)
                made.update(1)
        for got, want in zip(*(net.collect_params().values() for net in nets)):
            numpy.testing.assert_allclose(
                got.data().asnumpy(), want.data().asnumpy(), rtol=1e-6, atol=1e-7, err_msg=got.name
            )

    def test_a_step_waits_for_nobody(self):
        net = make_net(0)
        trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        if self.rank:
            hvd.barrier()  # other ranks step after rank 0
        self.run_steps(net, lambda: trainer.step(4), 1)
        if self.rank == 0:
            hvd.barrier()
        self.assert_trained(net, 1)

    def test_gradients_in_a_blocked_layout_of_onednn(self):
        conv = mx.gluon.nn.Conv2D(32, 3)
        conv.initialize(mx.init.One())
        gradient = conv(mx.nd.ones((2, 16, 6, 6)) * (self.rank + 1))
        weight = mx.nd.zeros(gradient.shape)
        hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0)).update(0, weight, gradient, None)
        self.same(weight, numpy.full(weight.shape, -144 * (self.size + 1) / 2))

    def test_a_group_of_gradients_that_share_memory(self):
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), num_groups=1)
        gradient = array(self.rank, shape=(4, 2))
        weights = [mx.nd.zeros((2, 2)) for _ in range(2)]
        optimizer.update([0, 1], weights, [gradient[:2], gradient[2:]], [None, None])
        want = self.everybody("float32", (4, 2)).mean(0)
        for weight, part in zip(weights, (want[:2], want[2:])):
            self.same(weight, -part)
        if self.size > 1:
            with self.assertRaisesRegex(Exception, "overlaps the output of its tensor 0"):
                optimizer.update(
                    [0, 1],
                    [mx.nd.zeros((4, 2)), mx.nd.zeros((2, 4))],
                    [gradient, gradient.reshape((2, 4))],
                    [None, None],
                )

    def slow_update(self, weight, **arguments):
        """Updates with this rank's number as gradient, which MXNet is still computing."""
        slow = mx.nd.ones((700, 700))
        for _ in range(8):
            slow = mx.nd.dot(slow, slow) / 700
        hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), **arguments).update(
            0, weight, slow[0, :2] * self.rank, None
        )

    def test_steps_complete_before_a_join_a_removal_and_a_shutdown(self):
        weight, last = mx.nd.zeros(2), self.size - 1
        for _ in range(1 if self.rank < last else 2):
            self.slow_update(weight)
        self.assertEqual(hvd.join(), last)
        self.same(weight, [-last / 2 - (last / self.size if self.rank == last else 0)] * 2)
        if self.size > 2:
            pair, weight = hvd.add_process_set([0, 1]), mx.nd.zeros(2)
            if pair.included():
                self.slow_update(weight, process_set=pair)
            self.assertTrue(hvd.remove_process_set(pair))
            self.same(weight, [-0.5 if self.rank < 2 else 0] * 2)
        weight = mx.nd.zeros(2)
        self.slow_update(weight)
        hvd.shutdown()
        self.same(weight, [-last / 2] * 2)
        hvd.init()

    def test_an_error_of_a_gradient_is_raised(self):
        if self.size == 1:
            self.skipTest("one rank agrees with itself")
        weight = mx.gluon.Parameter("differs", shape=(2 + self.rank,))
        weight.initialize(mx.init.One())
        trainer = hvd.DistributedTrainer([weight], "sgd", prefix="differs.")

        def step():
            with mx.autograd.record():
                loss = weight.data().sum()
            loss.backward()
            trainer.step(1)

        step()
        with self.assertRaisesRegex(mx.MXNetError, "Horovod.*shape"):
            weight.data().asnumpy()
        with self.assertRaisesRegex(hvd.HorovodInternalError, "shape.*on rank"):
            step()
        self.same(hvd.allreduce(mx.nd.ones(2), op=hvd.Sum), [self.size] * 2)

    def test_an_optimizer_reaches_the_weights_of_one_process(self):
        net = make_net(0)
        net(inputs(0, 0))
        hvd.broadcast_parameters({name: param.data() for name, param in net.collect_params().items()})
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, rescale_grad=0.25))
        self.assertEqual(optimizer.learning_rate, 0.1)
        optimizer.set_lr_mult({0: 0.5})
        updater = mx.optimizer.get_updater(optimizer)

        def step():
            for index, param in enumerate(net.collect_params().values()):
                updater(index, param.grad(), param.data())

        self.run_steps(net, step)
        self.assert_trained(net, 5)
        with self.assertWarnsRegex(UserWarning, "averages gradients itself"):
            hvd.DistributedTrainer(net.collect_params(), optimizer)

    def test_an_optimizer_is_a_class_that_scripts_derive_from_and_pickle(self):
        class Counting(hvd.DistributedOptimizer):
            def __init__(self, optimizer, start):
                super().__init__(optimizer, num_groups=1)
                self.updates = start

            def update(self, index, weight, grad, state):
                self.updates += 1
                super().update(index, weight, grad, state)

        sgd = mx.optimizer.SGD(learning_rate=1.0)
        optimizer, weight = Counting(sgd, 3), mx.nd.zeros(2)
        self.assertIsInstance(optimizer, mx.optimizer.Optimizer)
        optimizer.update(0, weight, mx.nd.ones(2) * self.rank, None)
        self.same(weight, [-(self.size - 1) / 2] * 2)
        self.assertEqual((optimizer.updates, hasattr(sgd, "updates")), (4, False))
        self.assertFalse(hasattr(optimizer, "nothing"))
        updater = mx.optimizer.get_updater(hvd.DistributedOptimizer(sgd))
        updater(0, mx.nd.ones(2) * self.rank, weight)
        read = mx.optimizer.get_updater(mx.optimizer.Test())
        read.set_states(updater.get_states(dump_optimizer=True))
        self.assertIs(type(read.optimizer), hvd.DistributedOptimizer)
        read(0, mx.nd.ones(2) * self.rank, weight)
        self.same(weight, [-3 * (self.size - 1) / 2] * 2)

    def test_gluon_s_own_trainer_with_a_distributed_optimizer(self):
        net = make_net(0)
        trainer = mx.gluon.Trainer(
            net.collect_params(),
            hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)),
            kvstore=None,
        )
        self.run_steps(net, lambda: trainer.step(4))
        self.assert_trained(net, 5)

    def fitted(self, data, labels, batch, optimizer, initial):
        """Returns the weights after Module.fit in a user's script."""
        symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="dense")
        model = mx.mod.Module(
            mx.sym.LinearRegressionOutput(symbol, mx.sym.var("label"), name="out"), label_names=["label"]
        )
        batches = mx.io.NDArrayIter(data, labels, batch_size=batch, label_name="label")
        model.fit(
            batches,
            kvstore=None,
            optimizer=optimizer,
            num_epoch=2,
            eval_metric="mse",
            arg_params={"dense_weight": initial, "dense_bias": mx.nd.zeros(1)},
        )
        return [each.asnumpy() for _, each in sorted(model.get_params()[0].items())]

    def test_a_module_reaches_the_weights_of_one_process(self):
        every = [[inputs(rank, step).asnumpy() for rank in range(self.size)] for step in range(4)]
        mine = numpy.concatenate([step[self.rank] for step in every])
        whole = numpy.concatenate([part for step in every for part in step])
        initial = hvd.broadcast(mx.nd.ones((1, 3)) * (self.rank + 1), root_rank=0)

        def sgd(batch):
            optimizer = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, rescale_grad=1 / batch)
            optimizer.set_lr_mult({"dense_weight": 0.5})
            return optimizer

        got = self.fitted(mine, mine.sum(1), 4, hvd.DistributedOptimizer(sgd(4)), initial)
        want = self.fitted(whole, whole.sum(1), 4 * self.size, sgd(4 * self.size), initial)
        for one, other in zip(got, want):
            numpy.testing.assert_allclose(one, other, atol=1e-5)

    def test_updates_with_gradients_that_nothing_orders_go_one_after_the_other(self):
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
        weight = mx.nd.zeros(4)
        for step in range(20):
            optimizer.update(0, weight, mx.nd.ones(4) * (self.rank + step), None)
        self.same(weight, [-20 * (self.size - 1) / 2 - 190] * 4)

    def test_a_trainer_s_optimizer_can_be_saved(self):
        net = make_net(0)
        trainer = hvd.DistributedTrainer(net.collect_params(), "adam")
        self.run_steps(net, lambda: trainer.step(4), 2)
        file = f"/tmp/tmp-hvd-mxnet-{os.getpid()}"
        try:
            trainer.save_states(file)
            trainer.load_states(file)
        finally:
            os.remove(file)
        pickle.dumps(trainer._optimizer)


class MxnetTableTest(table_case.TableCase):
    make_facade = table_facades.Mxnet


if __name__ == "__main__":
    rank_base.main()
