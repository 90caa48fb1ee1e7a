"""Tensors on GPUs: through NCCL on the GPU, or through host memory.

gpu_test.py [DOUBLE] [staged | tried] [TEST...]

staged: through host memory. tried: by the path that the ranks choose; each rank sometimes pretends not to know the path
yet.

Without DOUBLE, the tests need a GPU for each rank, and are skipped otherwise; with HVD_TEST_SHARES_GPU=1, all ranks use
the first GPU. With DOUBLE, a .so, the test library of tests/plugins/nccl mocks NCCL and CUDA. Tensors then lie in the
mock's memory, get their values late on a stream, and end the process when the CPU touches a tensor that a running
operation uses. The tests check the order of calls, events, results and gradients, but not the GPU itself.
"""

import contextlib
import ctypes
import gc
import os
import random
import shutil
import sys
import tempfile
import threading
import unittest
import weakref
from unittest import mock

DOUBLE = sys.argv.pop(1) if sys.argv[1:2] and sys.argv[1].endswith(".so") else None
WAY = sys.argv.pop(1) if sys.argv[1:2] in (["staged"], ["tried"]) else None
STAGED, TRIED = WAY == "staged", WAY == "tried"
ORDERED = os.environ.get("HOROVOD_ENABLE_ASYNC_COMPLETION") == "1"  # results by streams: native code records the events
EVENTS = int(not STAGED and not ORDERED)
if DOUBLE:
    os.environ.update(HOROVOD_NCCL_LIBRARY=DOUBLE, HOROVOD_CUDA_LIBRARY=DOUBLE, HVD_DOUBLE_RULES="all")
if not TRIED:
    os.environ["HOROVOD_GPU_OPERATIONS"] = "HOST" if STAGED else "NCCL"

from rank_case import RankCase, hvd, main, reduced, torch, values

from horovod import _basics
from horovod.common.util import env
from horovod.exceptions import HorovodInternalError
from horovod.torch import _devices, _paths

SHARES_GPU = os.environ.get("HVD_TEST_SHARES_GPU") == "1"
LOCAL_RANK = 0 if SHARES_GPU else int(os.environ.get("HOROVOD_LOCAL_RANK", "0"))  # the number of the rank's GPU
if not DOUBLE and torch.cuda.device_count() <= LOCAL_RANK:
    print(f"SKIP: rank {LOCAL_RANK} of this host has no GPU: torch finds {torch.cuda.device_count()}")
    sys.exit(77)


def nccl_code(version):
    return version[0] * 10000 + version[1] * 100 + version[2]


class Library:
    """The test library. Like torch, makes each call on the rank's GPU, whatever the thread's current device is."""

    def __init__(self):
        self.raw = ctypes.CDLL(DOUBLE)  # makes calls on the thread's current device

    def __getattr__(self, name):
        function = getattr(self.raw, name)

        def call(*arguments):
            before = ctypes.c_int()
            assert self.raw.cudaGetDevice(ctypes.byref(before)) == 0
            if before.value == LOCAL_RANK:
                return function(*arguments)
            assert self.raw.cudaSetDevice(LOCAL_RANK) == 0
            try:
                return function(*arguments)
            finally:
                assert self.raw.cudaSetDevice(before) == 0

        setattr(self, name, call)
        return call


class Stream:
    """A stream of the test library."""

    def __init__(self, library, is_default=False):
        handle = ctypes.c_void_p(0)
        if not is_default:
            assert library.cudaStreamCreateWithPriority(ctypes.byref(handle), 1, 0) == 0  # flag 1: nonblocking
        self.cuda_stream = handle.value or 0
        self.library = library

    def synchronize(self):
        assert self.library.cudaStreamSynchronize(ctypes.c_void_p(self.cuda_stream)) == 0

    def query(self):
        """Returns whether all work on the stream has ended."""
        event = Event(self.library, self)
        is_over = self.library.cudaEventQuery(ctypes.c_void_p(event.cuda_event)) == 0
        self.library.raw.cudaGetLastError()
        return is_over

    def wait(self, event):
        assert (
            self.library.cudaStreamWaitEvent(ctypes.c_void_p(self.cuda_stream), ctypes.c_void_p(event.cuda_event), 0)
            == 0
        )


class Event:
    def __init__(self, library, stream):
        self.library = library
        handle = ctypes.c_void_p()
        assert library.cudaEventCreateWithFlags(ctypes.byref(handle), 2) == 0
        self.cuda_event = handle.value
        if library.cudaEventRecord(handle, ctypes.c_void_p(stream.cuda_stream)) != 0:
            raise RuntimeError("the double has failed")

    def __del__(self):
        self.library.cudaEventDestroy(ctypes.c_void_p(self.cuda_event))


# Functions of a tensor that do not access its numbers, and functions that return a view.
METADATA = {
    "__get__",
    "data_ptr",
    "dim",
    "element_size",
    "is_complex",
    "is_conj",
    "is_contiguous",
    "is_floating_point",
    "is_neg",
    "numel",
    "requires_grad_",
    "size",
    "storage_offset",
    "stride",
}
VIEWS = {"__getitem__", "detach", "reshape", "t", "view"}
without_functions = getattr(torch._C, "DisableTorchFunctionSubclass", torch._C.DisableTorchFunction)


class DoubleTensor(torch.Tensor):
    """A tensor in memory of the test library. A stream copies it; the CPU executes all other functions after it has
    waited for the stream, like a kernel on that stream."""

    is_cuda = True

    def get_device(self):
        return LOCAL_RANK

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name, kwargs = function.__name__, kwargs or {}
        if name == "_foreach_copy_":
            for target, source in zip(*args):
                target.copy_(source, non_blocking=True)
            return None
        if name == "copy_" and _devices.cuda.copies(args[0], args[1]):
            _devices.cuda.copy(args[0], args[1], kwargs.get("non_blocking", False))
            return args[0]
        if name == "empty_like" or (name == "clone" and args[0].is_contiguous()):
            made = _devices.cuda.empty(args[0].shape, args[0].dtype, LOCAL_RANK)
            return made if name == "empty_like" else made.copy_(args[0], non_blocking=True)
        if name not in METADATA and name not in VIEWS:
            _devices.cuda.current.synchronize()
        with without_functions():
            result = function(*args, **kwargs)
            if name in {"clone", "contiguous"} and result is not args[0]:
                return _devices.cuda.late(result)
            return result.as_subclass(DoubleTensor) if name in VIEWS else result


class DoubleCuda:
    """Replaces _devices.Cuda: every tensor counts as a tensor on GPU number LOCAL_RANK."""

    def __init__(self):
        self.library = Library()
        assert self.library.raw.cudaSetDevice(LOCAL_RANK) == 0
        self.current = Stream(self.library)  # stream number 0 of the process
        self.copying = Stream(self.library)  # stream number 1: copies to host memory
        self.new_streams = [Stream(self.library), self.copying]
        self.streams = [self.current, *self.new_streams]
        # Memory that several streams have used is freed in the order of this stream.
        self.returning = Stream(self.library)
        self.events = self.waits = self.pins = 0

    def holds(self, tensor):
        return isinstance(tensor, torch.Tensor)

    def ordinal(self, tensor):
        return LOCAL_RANK

    def stream(self, device):
        return self.current

    def new_stream(self, device):
        return self.new_streams.pop() if self.new_streams else Stream(self.library)

    @contextlib.contextmanager
    def on(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def wait(self, stream, other):
        self.waits += 1
        stream.wait(Event(self.library, other))

    def fast_path(self):
        functions = [getattr(self.library.raw, f"cuda{name}") for name in _devices.EVENT_FUNCTIONS]
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        return (*addresses, DoubleTensor, lambda device: self.current.cuda_stream)

    def launcher(self):
        if "cudaLaunchHostFunc" in os.environ.get("HVD_DOUBLE_IGNORES", ""):
            return 0
        return ctypes.cast(self.library.raw.cudaLaunchHostFunc, ctypes.c_void_p).value

    def is_capturing(self):
        status = ctypes.c_int()
        assert self.library.cudaStreamIsCapturing(ctypes.c_void_p(self.current.cuda_stream), ctypes.byref(status)) == 0
        return status.value != 0

    def event(self, stream):
        self.events += not STAGED  # staged waits need an event every second
        return Event(self.library, stream)

    def pinned(self, like):
        self.pins += 1
        return self._allocate(self.library.cudaHostAlloc, like.shape, like.dtype)

    def view(self, address, size, device):
        return self._over((ctypes.c_uint8 * size).from_address(address), (size,), torch.uint8)

    def empty(self, shape, dtype, device):
        return self._allocate(self.library.cudaMallocManaged, shape, dtype)

    def late(self, tensor):
        """Returns a tensor that gets the values of `tensor` when the stream reaches the copy."""
        made = self.empty(tensor.shape, tensor.dtype, LOCAL_RANK)
        return made.copy_(tensor.contiguous(), non_blocking=True)

    def copies(self, target, source):
        """Returns whether the stream can copy the tensor as bytes."""
        return (
            target.dtype == source.dtype
            and target.shape == source.shape
            and target.is_contiguous()
            and source.is_contiguous()
        )

    def forget_error(self):
        self.library.raw.cudaGetLastError()

    def copy(self, target, source, non_blocking):
        # torch does the same for each kernel.
        assert self.library.raw.cudaGetLastError() == 0, "a call before has failed"
        size = target.numel() * target.element_size()
        if size:
            assert (
                self.library.cudaMemcpyAsync(
                    ctypes.c_void_p(target.data_ptr()),
                    ctypes.c_void_p(source.data_ptr()),
                    ctypes.c_size_t(size),
                    4,
                    ctypes.c_void_p(self.current.cuda_stream),
                )
                == 0
            )
        if not non_blocking:
            self.current.synchronize()

    def _allocate(self, function, shape, dtype):
        count = torch.Size(shape).numel()
        if count == 0:
            return torch.empty(shape, dtype=dtype).as_subclass(DoubleTensor)
        size = count * torch.empty((), dtype=dtype).element_size()
        memory = ctypes.c_void_p()
        assert function(ctypes.byref(memory), ctypes.c_size_t(size), 1) == 0
        buffer = (ctypes.c_uint8 * size).from_address(memory.value)
        weakref.finalize(
            buffer, self._free, memory, None if function is self.library.cudaHostAlloc else self.current
        ).atexit = False
        return self._over(buffer, shape, dtype)

    def _free(self, memory, stream):
        """Frees memory like torch's allocators: device memory in the order of the stream of its allocation, and pinned
        memory once the copies on all streams are complete."""
        if stream is None:
            stream = self.returning
            for other in self.streams:
                stream.wait(Event(self.library, other))
        self.library.cudaFreeAsync(memory, ctypes.c_void_p(stream.cuda_stream))

    def _over(self, buffer, shape, dtype):
        return torch.frombuffer(buffer, dtype=dtype).reshape(shape).as_subclass(DoubleTensor)


if DOUBLE:
    _devices.cuda = DoubleCuda()


class ForgetfulTrial(_paths.Trial):
    def outcome(self, waits=False):
        known = super().outcome(waits)
        return known if random.random() < 0.5 else None


if TRIED:
    _paths.Trial = ForgetfulTrial
DEVICE = "cpu" if DOUBLE else f"cuda:{LOCAL_RANK}"
DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.bool,
]


def in_place(tensor, **arguments):
    # An integer factor keeps tensors in host memory off the fast path.
    return hvd.allreduce_(tensor, prescale_factor=1, **arguments)


def here(tensor):
    return _devices.cuda.late(tensor) if DOUBLE else tensor.to(DEVICE)


class GpuTest(RankCase):
    def setUp(self):
        super().setUp()
        if not DOUBLE:
            torch.cuda.set_device(LOCAL_RANK)

    def check(self, got, want, message=None):
        self.assertEqual(str(got.device), str(here(torch.empty(0)).device), message)
        self.assert_equal_tensors(got.cpu(), want, message)

    def test_nccl_built_is_its_version(self):
        if DOUBLE:
            version = ctypes.c_int()
            self.assertEqual(ctypes.CDLL(DOUBLE).ncclGetVersion(ctypes.byref(version)), 0)
            self.assertEqual(hvd.nccl_built(), version.value)
            with tempfile.TemporaryDirectory() as folder, env(HOROVOD_NCCL_LIBRARY=None):
                loaded = ctypes.CDLL(shutil.copy(DOUBLE, os.path.join(folder, "libnccl.so.2")))
                self.assertIsNotNone(loaded.ncclGetVersion)
                self.assertEqual(_basics._nccl_version(), version.value)
        else:
            self.assertEqual(hvd.nccl_built(), nccl_code(torch.cuda.nccl.version()))

    def test_allreduces_of_every_type(self):
        for dtype in DTYPES:
            for op in (hvd.Sum, hvd.Min, hvd.Max, hvd.Product, hvd.Average):
                if op == hvd.Average and dtype == torch.bool:
                    continue
                for shape in ((), (7,), (3, 5), (0,)):
                    tensor = here(values(self.rank, dtype, shape))
                    before = tensor.clone()
                    name = f"{dtype}.{op}.{len(shape)}.{tensor.numel()}"
                    want = reduced(op, self.size, dtype, shape)
                    self.check(hvd.allreduce(tensor, op=op, name=name), want, name)
                    self.check(tensor, before.cpu(), name)
                    self.assertIs(in_place(tensor, op=op, name=name), tensor)
                    self.check(tensor, want, name)

    def test_a_group_with_factors_in_place(self):
        tensors = [here(values(self.rank, torch.float32, (n,))) for n in (3, 1, 40)]
        hvd.grouped_allreduce_(tensors, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        for tensor, n in zip(tensors, (3, 1, 40)):
            self.check(tensor, 2 * reduced(hvd.Sum, self.size, torch.float32, (n,)))
        integers = here(values(self.rank, torch.int32, (9,)))
        got = hvd.allreduce(integers, op=hvd.Sum, prescale_factor=3.0)
        self.check(got, 3 * reduced(hvd.Sum, self.size, torch.int32, (9,)))

    def test_rows(self):
        for dtype in (torch.float32, torch.int16, torch.bool):
            got = hvd.allgather(here(values(self.rank, dtype, (self.rank + 1, 3))))
            self.check(got, torch.cat([values(r, dtype, (r + 1, 3)) for r in range(self.size)]))
            splits = [r + 1 for r in range(self.size)]
            sent = here(values(self.rank, dtype, (sum(splits), 2)))
            got, received = hvd.alltoall(sent, splits)
            start = sum(splits[: self.rank])
            want = [values(r, dtype, (sum(splits), 2))[start : start + self.rank + 1] for r in range(self.size)]
            self.check(got, torch.cat(want))
            self.assertEqual(received.tolist(), [self.rank + 1] * self.size)
        for rows in (2 * self.size, 2 * self.size + 1):
            got = hvd.reducescatter(here(values(self.rank, torch.float32, (rows, 3))), op=hvd.Sum)
            want = reduced(hvd.Sum, self.size, torch.float32, (rows, 3))
            low, longer = divmod(rows, self.size)
            start = self.rank * low + min(self.rank, longer)
            self.check(got, want[start : start + low + (1 if self.rank < longer else 0)])

    def test_broadcasts(self):
        for dtype in (torch.float64, torch.int16):
            tensor = here(values(self.rank, dtype, (4, 2)))
            last = self.size - 1
            self.check(hvd.broadcast(tensor, last), values(last, dtype, (4, 2)))
            hvd.broadcast_(tensor, 0)
            self.check(tensor, values(0, dtype, (4, 2)))

    def test_tensors_that_lie_otherwise(self):
        tensor = here(values(self.rank, torch.float32, (4, 6))).t()
        want = reduced(hvd.Sum, self.size, torch.float32, (4, 6)).t()
        self.check(hvd.allreduce(tensor, op=hvd.Sum), want)
        in_place(tensor, op=hvd.Sum)
        self.check(tensor, want)

    @contextlib.contextmanager
    def capture(self):
        if DOUBLE:
            stream, graph = _devices.cuda.current, ctypes.c_void_p()
            handle = ctypes.c_void_p(stream.cuda_stream)
            assert stream.library.cudaStreamBeginCapture(handle, 0) == 0
            yield
            assert stream.library.cudaStreamEndCapture(handle, ctypes.byref(graph)) == 0
        else:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                yield

    def test_a_collective_in_a_graph_is_refused(self):
        tensor = here(torch.ones(3))
        for _ in range(2):  # NCCL has started, and the fast path
            hvd.allreduce_(tensor.clone(), op=hvd.Sum, name="first")
        with self.capture():
            for collective in (
                in_place,
                hvd.allreduce,
                hvd.allgather,
                lambda one: hvd.broadcast_(one, 0),
                lambda one: hvd.allreduce_(one, op=hvd.Sum, name="named"),
            ):
                with self.assertRaisesRegex(ValueError, "the current stream captures a CUDA graph"):
                    collective(tensor)
        self.check(hvd.allreduce(tensor, op=hvd.Sum), torch.full((3,), float(self.size)))

    def test_adasum_goes_through_host_memory(self):
        tensor = here(torch.ones(5))
        self.check(hvd.allreduce(tensor, op=hvd.Adasum), torch.ones(5))

    def test_an_optimizer_has_the_gradients_of_all(self):
        torch.manual_seed(1)
        model = torch.nn.Linear(6, 3)
        if not DOUBLE:
            model.to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        for step in range(3):
            optimizer.zero_grad()
            loss = model(here(torch.full((2, 6), float(self.rank + step)))).sum()
            loss.backward()
            optimizer.step()
            mean = sum(2.0 * (r + step) for r in range(self.size)) / self.size
            self.assert_close(model.weight.grad.cpu(), torch.full((3, 6), mean), torch.float32)
        for weights in hvd.allgather_object(model.weight.detach().cpu()):
            self.assert_equal_tensors(weights, model.weight.detach().cpu())

    def test_a_rank_that_has_joined_takes_part(self):
        if self.rank != 0:
            for op, want in ((hvd.Sum, 3.0 * (self.size - 1)), (hvd.Min, 3.0)):
                self.check(hvd.allreduce(here(torch.full((4,), 3.0)), op=op, name=f"join{op}"), torch.full((4,), want))
        hvd.join()

    def test_new_factors_are_not_remembered(self):
        tensor, known = here(torch.ones(3)), []
        for factor in (0.5, 0.25, 0.125):
            got = hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=factor, name="scaled")
            self.check(got, torch.full((3,), self.size * factor))
            known.append(len(_devices._runs))
        self.assertEqual(known[-1], known[0])

    def test_streams_of_the_caller(self):
        want = reduced(hvd.Sum, self.size, torch.float32, (50, 2))
        for number in range(10):
            with _devices.cuda.on(_devices.cuda.new_stream(LOCAL_RANK)):
                tensor = here(values(self.rank, torch.float32, (50, 2)))
                first = hvd.allreduce_async(tensor, op=hvd.Sum, name=f"first{number}")
                rows = hvd.allgather_async(tensor, name=f"rows{number}")
                second = hvd.allreduce_async_(tensor.clone(), op=hvd.Sum, name=f"second{number}")
                del tensor
                self.check(hvd.synchronize(first), want)
            # Waits on a stream other than the submission's.
            self.check(hvd.synchronize(second), want)
            self.check(hvd.synchronize(rows), torch.cat([values(r, torch.float32, (50, 2)) for r in range(self.size)]))

    def test_buffers_that_are_dropped_in_flight(self):
        want = reduced(hvd.Sum, self.size, torch.float32, (1000,))
        for step in range(10):
            handles = [
                submit(here(values(self.rank, torch.float32, (1000,))), op=hvd.Sum, name=f"dropped{number}")
                for number, submit in enumerate([hvd.allreduce_async, hvd.allreduce_async_] * 3)
            ]
            hvd.broadcast_async_(here(torch.ones(1000)), 0, name=f"unwanted{step}")
            gc.collect()
            for handle in handles:
                hvd.synchronize(handle)  # waits, and drops the result
            got = hvd.grouped_allreduce([here(values(self.rank, torch.float32, (1000,))) for _ in range(3)], op=hvd.Sum)
            self.check(got[step % 3], want)

    def calls(self, function):
        """Returns the lines that the mock logs during the call."""
        with tempfile.NamedTemporaryFile("r") as log, env(HVD_DOUBLE_LOG=log.name):
            function()
            return log.read().splitlines()

    def synchronizations(self, function):
        """Returns how often the function waited for a stream."""
        return self.calls(function).count("synchronize")

    @unittest.skipUnless(DOUBLE and not STAGED, "for tensors that NCCL takes")
    def test_the_fast_path(self):
        def step(number):
            tensors = [here(values(self.rank, torch.float32, (20 + index,))) for index in range(30)]
            with self.stopped():  # keeps all operations incomplete
                handles = [
                    hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"fast{index}")
                    for index, tensor in enumerate(tensors)
                ]
                if not ORDERED:  # with ordered results, a name is free once the work is on the stream
                    with self.assertRaisesRegex(ValueError, "'allreduce.fast0' has the same name as another"):
                        hvd.allreduce_async_(tensors[0], op=hvd.Sum, name="fast0")
            for index, handle in enumerate(handles):
                self.assertIs(hvd.synchronize(handle), tensors[index])
                self.check(tensors[index], reduced(hvd.Sum, self.size, torch.float32, (20 + index,)))

        for _ in range(70):  # the backend has created its events
            hvd.allreduce_(here(torch.ones(3)), op=hvd.Sum, name="first")
        before = _devices.cuda.events
        calls = self.calls(lambda: list(map(step, range(4))))
        # The module reuses its events: at most one for each tensor in flight, and one for the refused tensor.
        self.assertLessEqual(calls.count("event"), 31)
        self.assertEqual(_devices.cuda.events, before)
        # Python submits other layouts, and tensors that NCCL cannot reduce.
        turned = here(values(self.rank, torch.float32, (4, 6))).t()
        hvd.allreduce_(turned, op=hvd.Sum, name="turned")
        self.check(turned, reduced(hvd.Sum, self.size, torch.float32, (4, 6)).t())
        short = here(values(self.rank, torch.int16, (5,)))
        hvd.allreduce_(short, op=hvd.Sum, name="short")
        self.check(short, reduced(hvd.Sum, self.size, torch.int16, (5,)))
        halved = here(torch.ones(3))
        hvd.allreduce_(halved, op=hvd.Sum, prescale_factor=0.5, name="halved")
        self.check(halved, torch.full((3,), self.size / 2))

    @unittest.skipUnless(DOUBLE and not TRIED, "a GPU does not count, and ranks choose different paths")
    def test_a_reducescatter_writes_to_memory_of_torch(self):
        for rows in (2 * self.size, 1):
            tensor = here(values(self.rank, torch.float32, (rows, 3)))
            results = []
            calls = self.calls(lambda: results.append(hvd.reducescatter(tensor, op=hvd.Sum)))
            self.assertEqual((calls.count("malloc"), calls.count("synchronize")), (0, 0))
            first, last = (2 * self.rank, 2 * self.rank + 2) if rows > 1 else (0, int(self.rank == 0))
            self.check(results[0], reduced(hvd.Sum, self.size, torch.float32, (rows, 3))[first:last])

    @unittest.skipUnless(DOUBLE and not TRIED, "a GPU does not count, and ranks choose different paths")
    def test_a_group_of_rows_waits_for_a_stream_once(self):
        tensors = [here(values(self.rank, torch.float32, (number + 1, 2))) for number in range(10)]
        got = []
        waits = self.synchronizations(lambda: got.extend(hvd.grouped_allgather(tensors)))
        self.assertLessEqual(waits, 0 if STAGED else 1)
        for number, tensor in enumerate(got):
            want = [values(rank, torch.float32, (number + 1, 2)) for rank in range(self.size)]
            self.check(tensor, torch.cat(want))

    @unittest.skipUnless(DOUBLE and not TRIED, "a GPU does not count, and ranks choose different paths")
    def test_a_group_waits_for_no_stream(self):
        tensors = [here(values(self.rank, torch.float32, (number + 1,))) for number in range(50)]
        before = (_devices.cuda.events, _devices.cuda.waits)
        waits = self.synchronizations(lambda: hvd.grouped_allreduce_(tensors, op=hvd.Sum))
        after = (_devices.cuda.events, _devices.cuda.waits)
        self.assertEqual(waits, 0)
        self.assertEqual((after[0] - before[0], after[1] - before[1]), (EVENTS, 2 * STAGED))
        for number, tensor in enumerate(tensors):
            self.check(tensor, reduced(hvd.Sum, self.size, torch.float32, (number + 1,)))

    def new_optimizer(self, shapes, dtype=torch.float32):
        params = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype, device=DEVICE)) for shape in shapes]
        named = [(f"{dtype}.{len(shapes)}.{index}", param) for index, param in enumerate(params)]
        return params, hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0), named)

    def check_gradients(self, optimizer, params, grads, dtype=torch.float32):
        for param, grad in zip(params, grads):
            param.grad = grad
        optimizer.synchronize()
        for number, (param, grad) in enumerate(zip(params, grads)):
            self.assertIs(param.grad, grad)
            want = reduced(hvd.Average, self.size, dtype, tuple(param.shape))
            self.check(grad, want, f"{dtype} {number}")

    def test_a_step_of_160_gradients(self):
        shapes = [(number % 40 + 1, 3) for number in range(160)]
        for dtype in (torch.float32, torch.float16):
            params, optimizer = self.new_optimizer(shapes, dtype)
            for step in range(4):
                grads = [here(values(self.rank, dtype, shape)) for shape in shapes]
                self.check_gradients(optimizer, params, grads, dtype)
            # The same operation in host memory gives the same values.
            grads = [here(values(self.rank, dtype, shape) / 3) for shape in shapes]
            hosts = hvd.grouped_allreduce([grad.cpu().as_subclass(torch.Tensor) for grad in grads])
            for param, grad in zip(params, grads):
                param.grad = grad
            optimizer.synchronize()
            for grad, host in zip(grads, hosts):
                self.check(grad, host.cpu().as_subclass(torch.Tensor))
            for param, shape in zip(params, shapes):
                param.grad = here(values(self.rank, dtype, shape))
            if DOUBLE and not TRIED and self.size > 1:
                before = (_devices.cuda.events, _devices.cuda.waits)
                self.assertEqual(self.synchronizations(optimizer.synchronize), 0)
                after = (_devices.cuda.events, _devices.cuda.waits)
                self.assertEqual((after[0] - before[0], after[1] - before[1]), (EVENTS, 2 * STAGED))

    def test_gradients_of_many_bytes_are_not_held_back_to_the_end_of_a_pass(self):
        if self.size == 1:
            self.skipTest("one rank reduces nothing")
        params, optimizer = self.new_optimizer([(4,), (5,), (200, 200)])
        sum(param.as_subclass(torch.Tensor).sum() for param in params).backward()
        is_started = [bool(bucket.works) for bucket in optimizer._reducer.buckets]
        optimizer.synchronize()
        self.assertEqual(is_started, [False, True])

    def test_gradients_that_do_not_fit_their_bucket(self):
        shapes = [(5,), (4, 3), (7,), (2, 2)]
        params, optimizer = self.new_optimizer(shapes)
        for step in range(3):
            grads = [here(values(self.rank, torch.float32, shape)) for shape in shapes]
            if step > 0:
                grads[1] = here(values(self.rank, torch.float32, (4, 3)).t().contiguous()).t()
            self.check_gradients(optimizer, params, grads)
            self.check_gradients(
                optimizer, params, grads=[here(values(self.rank, torch.float32, shape)) for shape in shapes]
            )
            # One rank has no gradient and contributes zeros.
            for param, shape in zip(params, shapes):
                param.grad = here(values(self.rank, torch.float32, shape))
            if self.rank == 0 and self.size > 1:
                params[2].grad = None
            optimizer.synchronize()
            rest = sum(values(r, torch.float32, (7,)) for r in range(self.size) if r > 0 or self.size == 1) / self.size
            self.check(params[2].grad, rest)
            self.check(params[3].grad, reduced(hvd.Average, self.size, torch.float32, (2, 2)))

    @contextlib.contextmanager
    def stopped(self, stream=None):
        """Stops the stream, by default the caller's, until the end of the context or until the returned event is set.
        On a GPU, whose host functions run one after the other, stops for about 2 s."""
        going, stream = threading.Event(), stream or _devices.cuda.stream(LOCAL_RANK)
        if DOUBLE:
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda unused: going.wait(60))
            assert stream.library.cudaLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), function, None) == 0
        else:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(4_000_000_000)
        try:
            yield going
        finally:
            going.set()
            stream.synchronize()

    @unittest.skipUnless(STAGED, "NCCL runs batches in the order of their streams")
    def test_a_late_input_holds_up_no_other_work(self):
        with self.stopped():
            handle = hvd.allreduce_async(here(values(self.rank, torch.float32, (9,))), op=hvd.Sum, name="late")
            self.assertEqual(hvd.allgather_object(self.rank), list(range(self.size)))
            self.assertFalse(hvd.poll(handle))
        self.check(hvd.synchronize(handle), reduced(hvd.Sum, self.size, torch.float32, (9,)))

    @unittest.skipUnless(STAGED, "NCCL writes to the tensors themselves")
    def test_the_stream_of_the_caller_waits_for_results(self):
        tensor = here(values(self.rank, torch.float32, (9,)))
        with self.stopped(_devices._streams_of(LOCAL_RANK).back) as going:
            hvd.allreduce_(tensor, op=hvd.Sum)
            self.assertFalse(_devices._streams_of(LOCAL_RANK).back.query())
            threading.Timer(0.05, going.set).start()
            self.check(tensor, reduced(hvd.Sum, self.size, torch.float32, (9,)))

    @unittest.skipUnless(STAGED, "NCCL reports it otherwise")
    def test_a_wait_ends_when_the_device_fails(self):
        with self.stopped():
            handle = hvd.allreduce_async(here(values(self.rank, torch.float32, (9,))), op=hvd.Sum, name="failing")
            with mock.patch.object(_devices.cuda, "event", side_effect=RuntimeError("out of order")):
                said = (
                    f"rank {self.rank}: GPU {LOCAL_RANK} has failed before its tensors were in host memory: "
                    "out of order"
                )
                with self.assertRaisesRegex(RuntimeError, said):
                    hvd.synchronize(handle)
        self.check(hvd.synchronize(handle), reduced(hvd.Sum, self.size, torch.float32, (9,)))

    @unittest.skipUnless(STAGED, "for NCCL, nccl_test has it")
    def test_memory_stays_until_the_copies_of_failed_work_are_complete(self):
        if self.size == 1:
            self.skipTest("no other rank fails the work")
        if self.rank == 1:
            hvd.barrier()
        else:
            with self.stopped(_devices._streams_of(LOCAL_RANK).out) as going:
                handle = hvd.allreduce_async_(here(torch.ones(1000)), name="left")
                hvd.barrier()
                with self.assertRaisesRegex(HorovodInternalError, "rank 1 has"):
                    hvd.synchronize(handle)
                del handle
                gc.collect()
                threading.Timer(0.05, going.set).start()
                _devices.cuda.stream(LOCAL_RANK).synchronize()  # the tensors' memory is freed on this stream
        hvd.shutdown()
        hvd.init()

    @unittest.skipUnless(STAGED, "NCCL needs no start")
    def test_work_is_complete_before_a_join(self):
        for step in range(5):
            tensor = here(values(self.rank, torch.float32, (1000,)))
            handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="before")
            hvd.join()
            self.check(hvd.synchronize(handle), reduced(hvd.Sum, self.size, torch.float32, (1000,)))

    @unittest.skipUnless(DOUBLE and not TRIED, "a GPU does not count, and ranks choose different paths")
    def test_which_way_they_went(self):
        before = (_devices.cuda.events, _devices.cuda.pins)
        hvd.allreduce(torch.ones(3), name="way")
        after = (_devices.cuda.events, _devices.cuda.pins)
        self.assertEqual((after[0] - before[0], after[1] - before[1]), (EVENTS, int(STAGED)))


if __name__ == "__main__":
    main()
