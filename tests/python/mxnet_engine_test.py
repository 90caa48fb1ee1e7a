"""horovod.mxnet: calls that return before their collective is complete, ordered by MXNet's engine.

`broadcast_object`, which waits for no MXNet array, orders the ranks: if a call waited for other ranks, the test would
hang.
"""

import os
import subprocess
import sys
from unittest import mock

import rank_base

mx = rank_base.need("mxnet")
import numpy

import horovod.mxnet as hvd


def slow(value):
    """Returns an array of two values that MXNet is still computing."""
    array = mx.nd.ones((400, 400))
    for _ in range(6):
        array = mx.nd.dot(array, array) / 400
    return array[0, :2] * value


class MxnetEngineTest(rank_base.RankBase):
    def same(self, got, want, message=None):
        numpy.testing.assert_allclose(got.asnumpy(), want, rtol=1e-6, err_msg=str(message))

    def after_the_call_of_rank_0(self, call):
        """Calls the function on rank 0, and then on other ranks."""
        result = call() if self.rank == 0 else None
        hvd.broadcast_object(None, 0)
        return call() if self.rank else result

    def calls(self):
        """Yields a name, a call that starts a collective, and the results of the call."""
        total = sum(range(1, self.size + 1))
        yield from [
            ("allreduce", lambda array: hvd.allreduce(array, op=hvd.Sum), total),
            ("allreduce_", lambda array: hvd.allreduce_(array, op=hvd.Sum), total),
            ("average", hvd.allreduce, total / self.size),
            ("adasum", lambda array: hvd.allreduce(array * 0, op=hvd.Adasum), 0),
            ("broadcast", lambda array: hvd.broadcast(array, self.size - 1), self.size),
            ("broadcast_", lambda array: hvd.broadcast_(array, 0), 1),
            ("grouped", lambda array: hvd.grouped_allreduce([array, array + 0], op=hvd.Sum), total),
            ("grouped_", lambda array: hvd.grouped_allreduce_((array, array + 0), op=hvd.Sum), total),
        ]

    def test_a_call_returns_before_other_ranks_make_it(self):
        for make in (lambda value: mx.nd.full(2, value), slow):
            for name, call, want in self.calls():
                given = make(self.rank + 1)
                got = self.after_the_call_of_rank_0(lambda call=call, given=given: call(given))
                for each in got if isinstance(got, list) else [got]:
                    self.same(each, [want] * 2, name)
                self.same(given, [want if name.endswith("_") else self.rank + 1] * 2, name)

    def test_ranks_call_in_different_orders(self):
        names = [f"order.{number}" for number in range(4)]
        arrays = {name: slow(self.rank + number) for number, name in enumerate(names)}
        for name in reversed(names) if self.rank else names:
            hvd.allreduce_(arrays[name], op=hvd.Sum, name=name)
        for number, name in enumerate(names):
            self.same(arrays[name], [sum(range(self.size)) + number * self.size] * 2)

    def test_computations_and_collectives_without_a_read(self):
        arrays = [mx.nd.full((3, 2), rank + 1) for rank in range(self.size)]
        numbers = [numpy.full((3, 2), rank + 1.0) for rank in range(self.size)]
        mine = arrays[self.rank]
        for step in range(10):
            mine += step
            mean = hvd.allreduce(mine)
            mine *= 0.5  # the allreduce has read the previous values
            hvd.allreduce_(mine, op=hvd.Sum)
            mine -= mean
            hvd.broadcast_(mean, self.size - 1, name="mean")
            mine[1:] = hvd.broadcast(mine[1:] + self.rank, 0) + mean[1:]
            mine += self.rank

            numbers = [each + step for each in numbers]
            average = sum(numbers) / self.size
            numbers = [sum(each * 0.5 for each in numbers) - average for _ in numbers]
            first = numbers[0][1:].copy()
            for rank, each in enumerate(numbers):
                each[1:] = first + average[1:]
                each += rank
        self.same(mine, numbers[self.rank])

    def test_calls_of_one_name_and_names_of_a_trainer(self):
        weight, results = mx.nd.zeros(2), []
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
        for step in range(5):
            results.append(hvd.allreduce(slow(step), op=hvd.Sum, name="gradient.0"))
            optimizer.update(0, weight, slow(step), None)
            results.append(hvd.allreduce(slow(step), op=hvd.Sum, name="gradient.0"))
        for number, result in enumerate(results):
            self.same(result, [number // 2 * self.size] * 2)
        self.same(weight, [-10] * 2)

    def test_a_list_that_changes_after_the_call(self):
        for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
            given = [slow(1), slow(2)]
            results = call(given, op=hvd.Sum)
            given.clear()
            for number, each in enumerate(results, 1):
                self.same(each, [number * self.size] * 2)

    def test_a_blocked_layout_of_onednn(self):
        conv = mx.gluon.nn.Conv2D(32, 3)
        conv.initialize(mx.init.One())
        total = 144 * sum(range(1, self.size + 1))
        for call in (hvd.allreduce, hvd.allreduce_):
            given = conv(mx.nd.ones((2, 16, 6, 6)) * (self.rank + 1))
            self.same(call(given, op=hvd.Sum), numpy.full(given.shape, total))

    def test_arrays_that_share_memory(self):
        whole = mx.nd.ones((4, 2))
        for each in hvd.grouped_allreduce([whole[:2], whole[1:]], op=hvd.Sum):
            self.same(each, numpy.full(each.shape, self.size))
        hvd.grouped_allreduce_([whole[:2], whole[2:]], op=hvd.Sum)
        hvd.allreduce_(whole[3:], op=hvd.Sum)  # the engine orders this view with the other views
        self.same(whole, [[self.size] * 2] * 3 + [[self.size**2] * 2])

    def test_an_empty_array(self):
        with mx.util.np_shape(True):
            empty = mx.nd.zeros((0, 2))
            for got in (hvd.allreduce(empty), hvd.broadcast_(empty, 0)):
                self.assertEqual(got.asnumpy().shape, (0, 2))

    def test_a_collective_is_complete_before_a_join_and_a_removal(self):
        mine, last = slow(1), self.size - 1
        hvd.allreduce_(mine, op=hvd.Sum)
        hvd.join()
        self.same(mine, [self.size] * 2)
        if self.size > 1:
            alone, mine = hvd.add_process_set([last]), slow(3)
            if alone.included():
                hvd.allreduce_(mine, op=hvd.Sum, process_set=alone)
            self.assertTrue(hvd.remove_process_set(alone))
            self.same(mine, [3] * 2)

    def test_a_fork_waits_for_collectives(self):
        def call():
            hvd.allreduce_(mine, op=hvd.Sum)

        mine = slow(1)
        if self.rank:
            hvd.broadcast_object(None, 0)
        call()
        if self.rank == 0:
            hvd.broadcast_object(None, 0)
        self.assertEqual(subprocess.run(["true"], check=False).returncode, 0)
        child = os.fork()
        if child == 0:
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.same(mine, [self.size] * 2)

    def test_a_disagreement_of_ranks_is_raised_where_a_result_is_read(self):
        if self.size == 1:
            self.skipTest("one rank agrees with itself")
        for _ in range(2):  # a name can be used again
            mine = mx.nd.ones(2 + self.rank)
            result = self.after_the_call_of_rank_0(lambda: hvd.allreduce(mine, name="differs"))
            unread = hvd.broadcast_(mx.nd.ones(2), root_rank=int(self.rank == 1), name="root")
            with self.assertRaisesRegex(mx.MXNetError, "Horovod.*shape.*on rank"):
                (result + 1).wait_to_read()
            self.same(mine, [1] * (2 + self.rank))
            self.same(hvd.allreduce(mx.nd.ones(2), op=hvd.Sum), [self.size] * 2)
            with self.assertRaisesRegex(mx.MXNetError, "Horovod.*root"):
                unread.asnumpy()

    def test_a_failed_array_is_not_sent(self):
        failed = mx.nd.random.normal(0, -1, shape=(2,))  # the error occurs in MXNet's engine
        hvd.allreduce(failed, name="failed")
        with self.assertRaisesRegex(mx.MXNetError, "(?i)sigma|std|scale"):
            hvd.allreduce(failed, name="failed").asnumpy()
        self.same(hvd.allreduce(mx.nd.ones(2), name="failed", op=hvd.Sum), [self.size] * 2)

    def test_the_loss_of_the_job(self):
        if self.size == 1:
            self.skipTest("no rank is left")
        lost, mine = mx.nd.ones(2), mx.nd.ones(2)
        if self.rank == 0:
            hvd.allreduce_(mine, name="lost")
            hvd.broadcast_object(None, 0)
            with self.assertRaisesRegex(mx.MXNetError, "Horovod"):
                mine.asnumpy()
            for call in (lambda: hvd.allreduce(lost), lambda: hvd.broadcast_(lost, 0)):
                with self.assertRaises(hvd.HorovodInternalError) as caught:
                    call()
                self.assertNotIsInstance(caught.exception, ValueError)
        else:
            hvd.broadcast_object(None, 0)
        hvd.shutdown()
        with self.assertRaises(hvd.HorovodInternalError):
            hvd.allreduce(lost)
        hvd.init()
        self.same(hvd.allreduce_(lost, op=hvd.Sum), [self.size] * 2)

    def test_an_error_outlives_the_job(self):
        if self.size == 1:
            self.skipTest("one rank agrees with itself")
        result = hvd.allreduce(mx.nd.ones(2 + self.rank), name="differs")
        hvd.shutdown()
        with self.assertRaisesRegex(mx.MXNetError, "Horovod.*shape"):
            result.asnumpy()
        hvd.init()

    def test_a_shutdown_ends_a_collective_that_no_other_rank_submits(self):
        if self.size == 1:
            self.skipTest("one rank submits all")
        result = hvd.allreduce(mx.nd.ones(2), name=f"alone.{self.rank}")
        with mock.patch.dict(os.environ, HOROVOD_STALL_CHECK_TIME_SECONDS="0.5"):
            hvd.shutdown()
        with self.assertRaisesRegex(mx.MXNetError, "Horovod.*alone"):
            result.asnumpy()
        hvd.init()

    def test_an_exception_that_ends_the_program_is_its_last_line(self):
        if self.rank:
            return
        script = (
            "import mxnet as mx, horovod.mxnet as hvd; hvd.init(); array = mx.nd.ones((500, 500))\n"
            "for _ in range(30): array = mx.nd.dot(array, array) / 500\n"
            "hvd.allreduce_(array); raise KeyError('expected')"
        )
        alone = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOROVOD", "PMIX")) and name not in ("RANK", "WORLD_SIZE")
        }
        done = subprocess.run(
            [sys.executable, "-c", script], env=alone, capture_output=True, text=True, timeout=200, check=False
        )
        self.assertEqual(done.stderr.splitlines()[-1], "KeyError: 'expected'", done.stderr)


if __name__ == "__main__":
    rank_base.main()
