"""GPU work ordered by streams: HOROVOD_ENABLE_ASYNC_COMPLETION=1. synchronize() returns when NCCL's stream has the
work, and the caller's stream waits for it.

gpu_streams_test.py DOUBLE [TEST...]

The mock is that of gpu_test.py. HVD_TEST_BATCHES is the number of batches in the test of many batches.
"""

import contextlib
import gc
import os
import resource
import threading
import time
import unittest

os.environ.update(HOROVOD_ENABLE_ASYNC_COMPLETION="1", HOROVOD_CYCLE_TIME="100")

import gpu_hazards_test
from gpu_hazards_test import choose_device, new_stream, on, synchronize
from gpu_test import LOCAL_RANK, GpuTest, here
from rank_case import RankCase, hvd, main, reduced, torch, values

from horovod import _native
from horovod.torch import _devices

BATCHES = int(os.environ.get("HVD_TEST_BATCHES", "300"))
COUNT = 1000


def held_back(stream=None):
    """Stops the stream, by default the caller's, until the end of the context: work on it cannot run."""
    return GpuTest.stopped(None, stream)


class StreamsTest(RankCase):
    calls = GpuTest.calls

    def setUp(self):
        super().setUp()
        choose_device()
        self.total = sum(range(1, self.size + 1))

    def own(self, shape=(COUNT,)):
        return torch.full(shape, self.rank + 1.0)

    def check(self, got, value):
        self.assertEqual(set(got.cpu().flatten().tolist()), {float(value)})

    def test_a_wait_ends_before_the_work(self):
        tensor = here(self.own())
        hvd.allreduce_(tensor.clone(), op=hvd.Sum, name="before")  # Python submits this call
        for submit in (hvd.allreduce_async_, hvd.allreduce_async):
            with held_back():
                handle = submit(tensor.clone(), op=hvd.Sum, name="before")
                result = hvd.synchronize(handle)
                self.assertIsNone(hvd.synchronize(handle))
            self.check(result, self.total)

    def test_all_operations(self):
        shape = (2 * self.size + 1, 3)
        want = reduced(hvd.Sum, self.size, torch.float32, shape)
        everyone = [values(rank, torch.float32, shape) for rank in range(self.size)]
        turned = here(values(self.rank, torch.float32, (4, 6))).t()
        with held_back():
            tensor = here(values(self.rank, torch.float32, shape))
            group = hvd.grouped_allreduce([tensor, tensor.clone()], op=hvd.Sum)
            rows = hvd.allgather(tensor)
            many = hvd.grouped_allgather([tensor, tensor[: self.rank + 1].clone()])
            sent = hvd.broadcast(tensor, self.size - 1)
            part = hvd.reducescatter(tensor, op=hvd.Sum)
            swapped, splits = hvd.alltoall(tensor, [2] * (self.size - 1) + [3])
            del tensor
            gc.collect()
        hvd.allreduce_(turned, op=hvd.Sum, name="turned")  # the CPU computes the input from earlier results
        for got in group:
            self.assert_equal_tensors(got.cpu(), want)
        self.assert_equal_tensors(rows.cpu(), torch.cat(everyone))
        self.assert_equal_tensors(many[0].cpu(), torch.cat(everyone))
        self.assert_equal_tensors(many[1].cpu(), torch.cat([one[: r + 1] for r, one in enumerate(everyone)]))
        self.assert_equal_tensors(sent.cpu(), everyone[-1])
        low = 2 * self.rank + min(self.rank, 1)
        self.assert_equal_tensors(part.cpu(), want[low : low + 2 + (self.rank == 0)])
        counts = [3 if self.rank == self.size - 1 else 2] * self.size
        self.assertEqual(splits.tolist(), counts)
        first = 2 * self.rank
        self.assert_equal_tensors(swapped.cpu(), torch.cat([one[first : first + counts[0]] for one in everyone]))
        self.assert_equal_tensors(turned.cpu(), reduced(hvd.Sum, self.size, torch.float32, (4, 6)).t())

    def test_poll_asks_for_the_end_of_the_work(self):
        with held_back():
            handle = hvd.allreduce_async_(here(self.own()), op=hvd.Sum, name="polled")
            for _ in range(20):
                self.assertFalse(hvd.poll(handle))
                time.sleep(0.002)
        until = time.monotonic() + 20
        while not hvd.poll(handle) and time.monotonic() < until:
            time.sleep(0.001)
        self.assertTrue(hvd.poll(handle))
        self.check(hvd.synchronize(handle), self.total)

    def test_one_event_for_a_cycle(self):
        tensors = [here(self.own((1 + number,))) for number in range(100)]
        for _ in range(70):  # the backend has created its events
            hvd.allreduce_(tensors[0].clone(), op=hvd.Sum, name="warm")
        synchronize()
        handles = []

        def submit():
            for number, tensor in enumerate(tensors):
                submit = (hvd.allreduce_async_, hvd.allreduce_async)[number % 2]
                handles.append(submit(tensor, op=hvd.Sum, name=f"cycle.{number}"))

        with held_back():
            self.assertLessEqual(self.calls(submit).count("event"), 1)
            results = [hvd.synchronize(handle) for handle in handles]
        for result in results:
            self.check(result, self.total)

    def test_the_name_and_the_memory_are_free_before_the_end(self):
        tensor = here(self.own())
        with held_back():
            for _ in range(5):
                hvd.allreduce_(tensor, op=hvd.Sum, name="again")
        self.check(tensor, self.total * self.size**4)

    def test_tensors_are_held(self):
        for submit in (hvd.allreduce_async_, hvd.allreduce_async, hvd.allgather_async):
            arguments = {} if submit is hvd.allgather_async else {"op": hvd.Sum}
            own, other = new_stream(), new_stream()
            with held_back():
                first = hvd.allreduce_async(here(self.own()), op=hvd.Sum, name="first")
                with on(own):
                    tensor = here(self.own())
                    handle = submit(tensor, name="held", **arguments)
                    synchronize()
                with on(other):
                    hvd.synchronize(handle)  # waits, and drops the result
                # The stream of the allocation waits for nothing.
                with on(own):
                    del tensor
                    gc.collect()
                    taken = [here(torch.full((COUNT,), -7.0)) for _ in range(3)]
                    for one in taken:
                        self.check(one, -7)
            self.check(hvd.synchronize(first), self.total)
            with on(own):
                for one in taken:
                    self.check(one, -7)

    def test_a_handle_that_nobody_waits_for(self):
        for step in range(3):
            hvd.allreduce_async(here(self.own()), op=hvd.Sum, name=f"alone.{step}")
            hvd.broadcast_async_(here(self.own()), 0, name=f"sent.{step}")
            gc.collect()
        self.check(hvd.allreduce(here(self.own()), op=hvd.Sum), self.total)

    def test_another_stream_needs_a_wait_of_its_own(self):
        own, other = new_stream(), new_stream()
        with on(own):
            tensor = here(self.own())
            synchronize()
            with held_back():
                hvd.allreduce_(tensor, op=hvd.Sum, name="elsewhere")
                with on(other):
                    early = _devices.cuda.empty((COUNT,), torch.float32, LOCAL_RANK).copy_(tensor, non_blocking=True)
                    self.check(early, self.rank + 1)
                    _devices.cuda.wait(other, own)
                    late = _devices.cuda.empty((COUNT,), torch.float32, LOCAL_RANK).copy_(tensor, non_blocking=True)
        with on(other):
            self.check(late, self.total)

    def test_a_wait_in_another_thread_and_on_its_stream(self):
        handle = hvd.allreduce_async(here(self.own()), op=hvd.Sum, name="thread")
        found = []

        def wait():
            choose_device()
            with on(new_stream()):
                found.append(hvd.synchronize(handle).cpu())

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        self.check(found[0], self.total)

    def test_a_thread_with_another_device(self):
        handle = hvd.allreduce_async(here(self.own()), op=hvd.Sum, name="device")
        with gpu_hazards_test.another_device():
            result = hvd.synchronize(handle)  # waits for the end of the work
        self.check(result, self.total)

    def test_host_memory_does_not_wait_for_a_device(self):
        with held_back():
            hvd.allreduce_(here(self.own()), op=hvd.Sum, name="ahead")
            self.assertEqual(hvd.allgather_object(self.rank), list(range(self.size)))
            hvd.barrier()

    def test_many_batches(self):
        tensor = here(torch.zeros(16))
        hvd.allreduce_(tensor, op=hvd.Sum, name="many")

        def run():
            for _ in range(BATCHES // 2):
                hvd.allreduce_(tensor, op=hvd.Sum, name="many")
                hvd.allreduce(tensor, op=hvd.Sum, name="new")

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        calls = self.calls(run)
        _native.complete_early(-1.0)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 20_000)
        self.assertLess(calls.count("event"), 2 * 1024)  # two for each handle that is held at a time
        self.check(tensor, 0)

    @unittest.skipIf(os.environ.get("HVD_TEST_FEWER"), "gpu_test.py has it; torch.optim takes a second to import")
    def test_a_training(self):
        torch.manual_seed(0)
        shapes = [(number % 7 + 1, 3) for number in range(12)]
        params = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(params, lr=0), [(f"{number}", param) for number, param in enumerate(params)]
        )
        for step in range(3):
            grads = [here(values(self.rank + step, torch.float32, shape)) for shape in shapes]
            for param, grad in zip(params, grads):
                param.grad = grad
            with held_back() if step > 1 else contextlib.nullcontext():
                optimizer.synchronize()
            for grad, shape in zip(grads, shapes):
                want = sum(values(rank + step, torch.float32, shape) for rank in range(self.size)) / self.size
                self.assert_close(grad.cpu(), want, torch.float32)


def load_tests(loader, tests, pattern):
    return loader.loadTestsFromTestCase(StreamsTest)


if __name__ == "__main__":
    main()
