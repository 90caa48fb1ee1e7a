"""Streams and memory of GPUs that a backend could use too early or too late: inputs that a kernel writes after their
submission, tensors that the program drops or overwrites, streams other than the default, captures of graphs.

gpu_hazards_test.py [DOUBLE] [staged] [TEST...]

The arguments and the mock are those of gpu_test.py. On a GPU, torch.cuda._sleep delays inputs for
HVD_TEST_SLEEP_CYCLES, 0.1 s by default. HVD_TEST_BATCHES_SECONDS is the duration of the test with many small batches,
and HVD_TEST_BATCHES the number of batches of overlapping process sets.
"""

import contextlib
import ctypes
import gc
import os
import random
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import gpu_test
from gpu_test import DOUBLE, LOCAL_RANK, STAGED, Stream, here
from rank_case import RankCase, hvd, main, torch

from horovod.common.util import env
from horovod.torch import _devices

CYCLES = int(os.environ.get("HVD_TEST_SLEEP_CYCLES", "200000000"))
DEVICES = int(os.environ.get("HVD_DOUBLE_DEVICES", "32")) if DOUBLE else torch.cuda.device_count()
SLEEP_US = 10_000  # duration of a sleep on the mock
COUNT = 1000 if DOUBLE else 1 << 20
NAN = float("nan")
libc = ctypes.CDLL(None)


@contextlib.contextmanager
def stream_of_double(stream):
    name = "current" if hasattr(_devices.cuda, "current") else "own"
    before = getattr(_devices.cuda, name)
    setattr(_devices.cuda, name, stream)
    try:
        yield
    finally:
        setattr(_devices.cuda, name, before)


def on(stream):
    """Makes the stream current in a context."""
    return stream_of_double(stream) if DOUBLE else torch.cuda.stream(stream)


def choose_device():
    """Sets this thread's stream."""
    if DOUBLE:
        assert _devices.cuda.library.raw.cudaSetDevice(LOCAL_RANK) == 0
    else:
        torch.cuda.set_device(LOCAL_RANK)


@contextlib.contextmanager
def another_device():
    """Selects a current device that is not the rank's device."""
    if not DOUBLE:
        with torch.cuda.device((LOCAL_RANK + 1) % torch.cuda.device_count()):
            yield
        return
    with env(HVD_DOUBLE_RULES="one_launcher,launch_order"):  # a context on that device is expected
        assert _devices.cuda.library.raw.cudaSetDevice(LOCAL_RANK + 1) == 0
        try:
            yield
        finally:
            choose_device()


def new_stream():
    return Stream(_devices.cuda.library) if DOUBLE else torch.cuda.Stream()


def synchronize():
    """Waits for the current stream."""
    _devices.cuda.stream(LOCAL_RANK).synchronize()


def sleep(part=1.0):
    """Makes the current stream wait."""
    if not DOUBLE:
        torch.cuda._sleep(int(CYCLES * part))
        return
    stream = _devices.cuda.stream(LOCAL_RANK)
    assert (
        stream.library.cudaLaunchHostFunc(
            ctypes.c_void_p(stream.cuda_stream), libc.usleep, ctypes.c_void_p(int(SLEEP_US * part))
        )
        == 0
    )


def late(tensor, part=1.0):
    """Returns a GPU tensor full of NaN that becomes equal to `tensor` once the current stream has slept."""
    values = here(tensor)
    made = here(torch.full(tensor.shape, NAN))
    synchronize()
    sleep(part)
    return made.copy_(values, non_blocking=True)


class HazardTest(RankCase):
    def setUp(self):
        super().setUp()
        choose_device()
        self.total = sum(range(1, self.size + 1))
        self.side = new_stream()

    def own(self, count=COUNT):
        return torch.full((count,), self.rank + 1.0)

    def check(self, got, value):
        self.assertEqual(set(got.cpu().flatten().tolist()), {float(value)})

    def test_inputs_that_are_written_late(self):
        self.check(hvd.allreduce(late(self.own()), op=hvd.Sum), self.total)
        tensors = [late(self.own()), late(self.own(7))]
        for got in hvd.grouped_allreduce(tensors, op=hvd.Sum):
            self.check(got, self.total)
        self.check(hvd.broadcast(late(self.own()), self.size - 1), self.size)
        got = hvd.allgather(late(self.own().reshape(-1, 10)[: self.rank + 1]))
        self.assertEqual(got[:, 0].cpu().tolist(), [r + 1 for r in range(self.size) for _ in range(r + 1)])
        rows = late(self.own(self.size * 10))
        self.check(hvd.reducescatter(rows, op=hvd.Sum), self.total)
        got, _ = hvd.alltoall(late(self.own(self.size)), [1] * self.size)
        self.assertEqual(got.cpu().tolist(), [r + 1.0 for r in range(self.size)])

    def test_a_result_in_place_is_read_at_once(self):
        tensor = late(self.own())
        hvd.allreduce_(tensor, op=hvd.Sum)
        self.check(tensor * 2, 2 * self.total)

    def test_a_result_is_read_on_the_stream_of_the_submission(self):
        with on(self.side):
            self.check(hvd.allreduce(late(self.own()), op=hvd.Sum), self.total)

    def test_an_input_that_is_dropped_while_it_is_in_flight(self):
        for stream in (self.side, new_stream()):
            with on(stream):
                tensor = late(self.own())
                handle = hvd.allreduce_async(tensor, op=hvd.Sum, name="dropped")
                del tensor
                gc.collect()
                # The new tensors get the memory that is free now.
                others = [here(torch.full((COUNT,), -7.0)) for _ in range(8)]
                self.check(hvd.synchronize(handle), self.total)
                for other in others:
                    self.check(other, -7)

    def test_an_input_that_is_overwritten_after_the_wait(self):
        tensor = late(self.own())
        result = hvd.synchronize(hvd.allreduce_async(tensor, op=hvd.Sum, name="overwritten"))
        tensor.copy_(here(torch.full((COUNT,), -1.0)), non_blocking=True)
        self.check(result, self.total)

    def test_each_batch_of_many_has_a_stream_of_its_own(self):
        handles = []
        streams = [new_stream() for _ in range(8)]
        for i, stream in enumerate(streams):
            with on(stream):
                tensor = late(torch.full((500,), float(self.rank + i)), 0.05)
                handles.append(hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"stream.{i}"))
        for i, handle in enumerate(handles):
            with on(streams[i]):
                self.check(hvd.synchronize(handle), sum(r + i for r in range(self.size)))

    def test_many_results_that_are_kept(self):
        kept = [hvd.allgather(here(torch.full((1000,), float(i)))) for i in range(20)]
        for i, got in enumerate(kept):
            self.check(got, i)

    # Two threads that use one communicator collide here at the latest.
    def test_many_small_batches(self):
        end = time.monotonic() + float(os.environ.get("HVD_TEST_BATCHES_SECONDS", "0.5"))
        tensors = [here(torch.ones(1000 + i)) for i in range(8)]
        steps = 0
        while hvd.allreduce(torch.tensor([float(time.monotonic() < end)]), op=hvd.Min, name="go").item() == 1:
            for _ in range(20):
                handles = []
                for i, tensor in enumerate(tensors):
                    handles.append(hvd.allreduce_async(tensor, op=hvd.Sum, name=f"small.{i}"))
                    if i % 2:
                        time.sleep(0.0003)
                for handle in handles:
                    self.check(hvd.synchronize(handle)[:1], self.size)
                steps += 1
        if self.rank == 0:
            print(f"{steps} steps of {len(tensors)} batches", file=sys.stderr)
        self.assertGreater(steps, 0)

    # With HOROVOD_FUSION_THRESHOLD=0 each tensor is a batch.
    def test_overlapping_sets_whose_ranks_submit_in_different_orders(self):
        if self.size == 1:
            self.skipTest("one rank has one set")
        added = [hvd.add_process_set(members) for members in (range(self.size - 1), range(1, self.size))]
        sets = [hvd.global_process_set, *added]
        order = random.Random(self.rank)
        mine = [(number, i) for number, one in enumerate(sets) if one.included() for i in range(3)]
        for step in range(int(os.environ.get("HVD_TEST_BATCHES", "90")) // 9):
            handles = []
            for number, i in order.sample(mine, len(mine)):
                tensor = here(torch.full((64,), float(step)))
                handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"set.{number}.{i}", process_set=sets[number])
                handles.append((sets[number], handle))
            for one, handle in handles:
                self.check(hvd.synchronize(handle), step * one.size())
        for one in added:
            hvd.remove_process_set(one)

    @unittest.skipUnless(DEVICES > 1, "there is one device")
    def test_a_program_whose_current_device_is_another_one(self):
        default = Stream(_devices.cuda.library, is_default=True) if DOUBLE else torch.cuda.default_stream()
        hvd.allreduce_(here(self.own()), op=hvd.Sum, name="first")  # Python submits the first call
        for step in range(20):
            with on(default):
                tensor = late(self.own(), 0.3)
                # Also on the rank's device: one pool has the events of both devices.
                with another_device() if step % 4 != 3 else contextlib.nullcontext():
                    hvd.allreduce_(tensor, op=hvd.Sum, name="elsewhere")
                self.check(tensor, self.total)

    @unittest.skipIf(DOUBLE, "the double keeps tensors row by row")
    def test_a_tensor_that_is_dense_but_not_row_by_row(self):
        tensor = torch.full((2, 8, 4, 4), self.rank + 1.0, device=gpu_test.DEVICE)
        tensor = tensor.to(memory_format=torch.channels_last)
        hvd.allreduce_(tensor, op=hvd.Sum)
        self.check(tensor, self.total)

    @unittest.skipIf(STAGED, "a capture of PyTorch forbids to allocate pinned memory meanwhile")
    def test_a_collective_beside_a_capture(self):
        tensor = here(self.own())
        numbers = here(torch.ones(1000))
        self.check(hvd.allreduce(tensor, op=hvd.Sum), self.total)  # NCCL has started
        synchronize()
        result = {}

        def submit():
            choose_device()
            with on(self.side):
                sleep(3)
                result["handle"] = hvd.allreduce_async_(tensor, op=hvd.Sum, name="beside")

        thread = threading.Thread(target=submit)
        with self.capture() as replay:
            thread.start()
            for _ in range(50):
                doubled = None if DOUBLE else numbers * 2
                time.sleep(0.01)  # the backend's thread queries the device every 100 ms
            thread.join()
        if not DOUBLE:
            replay()
            torch.cuda.synchronize()
            self.check(doubled, 2)
        with on(self.side):
            hvd.synchronize(result["handle"])
            self.check(tensor, self.total)

    @contextlib.contextmanager
    def capture(self):
        """Captures in PyTorch's default mode, in which a forbidden call of any thread spoils the capture."""
        if not DOUBLE:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                yield graph.replay
            return
        library, stream = _devices.cuda.library, new_stream()
        assert library.cudaStreamBeginCapture(ctypes.c_void_p(stream.cuda_stream), 0) == 0
        yield None
        ended = library.cudaStreamEndCapture(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(ctypes.c_void_p()))
        self.assertEqual(ended, 0)

    @unittest.skipIf(DOUBLE and gpu_test.ORDERED, "here the CPU computes the step, and waits for no stream")
    def test_a_training_uses_the_gradients_of_all(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
        if not DOUBLE:
            model.to(gpu_test.DEVICE)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters(), groups=1 if DOUBLE else None
        )
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        for step in range(10):
            optimizer.zero_grad()
            sleep(0.1)
            model(here(torch.full((4, 64), float(self.rank + step % 3)))).square().mean().backward()
            optimizer.step()
        own = torch.cat([each.detach().cpu().flatten() for each in model.parameters()])
        everyone = hvd.allgather_object(own)
        for other in everyone:
            self.assertTrue(torch.equal(own, other))
        self.assertTrue(bool(own.isfinite().all()))

    @unittest.skipIf(DOUBLE or int(os.environ.get("HOROVOD_SIZE", "1")) > 1, "for one process on a GPU")
    def test_init_leaves_the_choice_of_the_gpu_to_the_program(self):
        program = (
            "import os, sys, torch, horovod.torch as hvd; hvd.init(); "
            # torch.cuda.device_count() would call NVML, which reads the variable at each call.
            "os.environ['CUDA_VISIBLE_DEVICES'] = ''; sys.exit(torch._C._cuda_getDeviceCount())"
        )
        self.assertEqual(subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode, 0)


class ShortMemoryTest(RankCase):
    """Takes all memory of the GPU: needs its own process, and runs only if named."""

    @contextlib.contextmanager
    def taken_memory(self, cached):
        """Leaves no GPU memory for an output. `cached`: torch's cache has unused memory for it."""
        if DOUBLE:
            cache = [_devices.cuda.empty((self.size * COUNT,), torch.float32, LOCAL_RANK) for _ in range(3)]

            def empty(shape, dtype, device):
                if not cached:
                    raise RuntimeError("out of memory")
                return cache.pop()[: torch.Size(shape).numel()].reshape(shape)

            with env(HVD_DOUBLE_MEMORY="1000"), mock.patch.object(_devices.cuda, "empty", empty):
                yield
            return
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(LOCAL_RANK)
        kept = torch.empty(free - (64 << 20), dtype=torch.uint8, device=gpu_test.DEVICE)
        if cached:
            del kept
        yield

    def test_an_output_for_which_there_is_no_memory(self):
        choose_device()
        # The output is larger than the free memory: 1000 bytes of the mock, 64 MiB of a GPU.
        tensor = here(torch.arange(COUNT if DOUBLE else 64 << 20, dtype=torch.float32))
        hvd.allreduce(tensor, op=hvd.Sum)
        synchronize()
        with self.taken_memory(cached=True):
            for collective in (hvd.allgather, lambda one: hvd.alltoall(one, [one.shape[0]] + [0] * (self.size - 1))):
                got = collective(tensor)
                got = got if isinstance(got, torch.Tensor) else got[0]
                if got.shape[0] > 0:
                    self.assertTrue(bool((got.cpu()[-1000:] == tensor.cpu()[-1000:]).all()))
                del got
        with self.taken_memory(cached=False), self.assertRaisesRegex(RuntimeError, "out of memory"):
            hvd.allgather(tensor)
        # Only the call without memory fails.
        self.assertEqual(hvd.allreduce(here(torch.ones(4)), op=hvd.Sum).sum().item(), 4 * self.size)


def load_tests(loader, tests, pattern):
    return loader.loadTestsFromTestCase(HazardTest)


if __name__ == "__main__":
    main()
