"""A rank of this project or of torch.distributed in Python; takes the protocol of worker.h.

horovodrun -np N python3 python_worker.py SOCKET horovod
horovodrun -np N python3 python_worker.py SOCKET group
horovodrun -np N python3 python_worker.py SOCKET launched
horovodrun -np N python3 python_worker.py SOCKET bound word|registered
python3 python_worker.py SOCKET gloo RANK SIZE FOLDER INTERFACE
python3 python_worker.py SOCKET plain RANK SIZE FOLDER [ddp]
"""

import mmap
import os
import socket
import statistics
import sys
import time


def median_us(iterations, step):
    for _ in range(3):
        step()
    times = []
    for _ in range(iterations):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def per_thousand_us(count, step):
    """Returns the µs of 1,000 steps, extrapolated from `count` steps in a row."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count * 1e9


def way_us(iterations, rank, distributed, out, into):
    """Returns the one-way time of a message between two ranks: half of a ping-pong."""

    def step():
        if rank == 0:
            distributed.send(out, 1)
            distributed.recv(into, 1)
        else:
            distributed.recv(into, 0)
            distributed.send(out, 0)

    return median_us(iterations, step) / 2


def memory():
    """Returns the resident and the proportional memory of this process in MiB."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        kib = {line.split()[0]: line.split()[1] for line in file if line.split()[2:] == ["kB"]}
    return [int(kib["Rss:"]) / 1024, int(kib["Pss:"]) / 1024]


class Barrier:
    """A barrier of processes on one machine: each process counts its arrivals in shared memory."""

    def __init__(self, path, rank, size):
        with open(path, "a+b") as file:
            os.ftruncate(file.fileno(), 4096)
            self._arrivals = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
        self._rank, self._ranks = rank, range(size)

    def __call__(self):
        arrivals = self._arrivals
        mine = arrivals[self._rank] + 1
        arrivals[self._rank] = mine
        for rank in self._ranks:
            while arrivals[rank] < mine:
                os.sched_yield()


def wrap_in_ddp(model):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, gradient_as_bucket_view="HVD_BENCH_BUCKET_VIEWS" in os.environ)


class Plain:
    """A torch process without this project; it meets its peers at a barrier only. `kind` ddp: its module is wrapped in
    DistributedDataParallel with a group of this process alone, to measure DDP without communication."""

    def __init__(self, rank="0", size="1", folder=None, kind=None):
        import torch

        torch.set_num_threads(1)
        self.rank = int(rank)
        self.torch = torch
        self.trainers = {}
        self.wrap_model = None
        if kind == "ddp":
            import torch.distributed

            torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
            self.wrap_model = wrap_in_ddp
        self.barrier = Barrier(f"{folder}/barrier", self.rank, int(size)) if folder else None
        torch.ones(1000).sum()

    def memory(self):
        return memory()

    def train(self, model, steps):
        """Returns the microseconds per step."""
        if model not in self.trainers:
            self.trainers[model] = self.trainer(model)
        trainer = self.trainers[model]
        trainer.step()  # this step also synchronizes the ranks
        start = time.perf_counter()
        for _ in range(int(steps)):
            trainer.step()
        return [(time.perf_counter() - start) / int(steps) * 1e6]

    def steps(self, model, count):
        return [1000 * self.train(model, count)[0]]

    def trainer(self, model):
        from models import Trainer

        return Trainer(model, wrap_model=self.wrap_model, after=self.barrier)


class Distributed(Plain):
    """torch.distributed, on the group that a subclass makes."""

    def trainer(self, model):
        from models import ShardedTransformer, Trainer

        if model == "transformer":
            return ShardedTransformer()
        return Trainer(model, wrap_model=wrap_in_ddp)

    def allreduce(self, size, iterations, *_):
        tensor = self.torch.zeros(int(size) // 4)
        return [median_us(int(iterations), lambda: self.torch.distributed.all_reduce(tensor))]

    def whole(self, size):
        """Returns memory for all ranks' rows, and this rank's rows in it."""
        count, group = int(size) // 4, self.torch.distributed.group.WORLD
        if "HVD_BENCH_ALLOCATES" in os.environ:
            memory = group.allocate_tensor(count, dtype=self.torch.float32, device=self.torch.device("cpu")).zero_()
        else:
            memory = self.torch.zeros(count)
        return memory, memory.chunk(group.size())[group.rank()]

    def gather(self, size, iterations):
        whole, own = self.whole(size)
        return [median_us(int(iterations), lambda: self.torch.distributed.all_gather_into_tensor(whole, own))]

    def scatter(self, size, iterations):
        whole, own = self.whole(size)
        part = self.torch.zeros_like(own)
        return [median_us(int(iterations), lambda: self.torch.distributed.reduce_scatter_tensor(part, whole))]

    def message(self, size, iterations):
        """Returns the one-way time of a message between two ranks, and the time to copy as many bytes."""
        out, into = (self.torch.ones(int(size), dtype=self.torch.uint8) for _ in range(2))
        both = way_us(int(iterations), self.rank, self.torch.distributed, out, into)
        copy = median_us(int(iterations), lambda: into.copy_(out)) if self.rank == 0 else 0.0
        return [both, copy]


class Horovod(Plain):
    def __init__(self):
        super().__init__()
        import horovod.torch as hvd

        hvd.init()
        self.hvd = hvd
        self.rank = hvd.rank()

    def trainer(self, model):
        from models import Trainer

        def distributed(optimizer, network):
            names = [(f"{model}.{name}", param) for name, param in network.named_parameters()]
            return self.hvd.DistributedOptimizer(optimizer, named_parameters=names)

        return Trainer(model, wrap_optimizer=distributed)

    def allreduce(self, size, iterations, *_):
        tensor = self.torch.zeros(int(size) // 4)
        return [median_us(int(iterations), lambda: self.hvd.allreduce_(tensor, name="bench", op=self.hvd.Sum))]

    def allreduces(self, size, count):
        tensor = self.torch.zeros(int(size) // 4)
        return [per_thousand_us(int(count), lambda: self.hvd.allreduce_(tensor, name="bench", op=self.hvd.Sum))]

    def names(self, count, size, iterations):
        tensors = [self.torch.zeros(int(size) // 4) for _ in range(int(count))]
        names = [f"bench.layer.{index}" for index in range(len(tensors))]
        submit, wait, op = self.hvd.allreduce_async_, self.hvd.synchronize, self.hvd.Sum
        submits = []

        def step():
            start = time.perf_counter()
            handles = [submit(tensor, name=name, op=op) for tensor, name in zip(tensors, names)]
            submits.append((time.perf_counter() - start) * 1e6 / len(handles))
            for handle in handles:
                wait(handle)

        return [median_us(int(iterations), step), statistics.median(submits)]


class Bound(Horovod):
    """Does not reduce the gradients, but in each step reduces `kind`: "word" is 4 B, to measure the synchronization
    alone; "registered" is as many bytes as the gradients in shared memory, without a copy."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def trainer(self, model):
        from horovod._memory import registered_buffer
        from models import Trainer

        trainer = Trainer(
            model, between=lambda: self.hvd.allreduce_(tensor, name=f"{model}.bound", op=self.hvd.Average)
        )
        count = sum(param.numel() for param in trainer.model.parameters())
        tensor = self.torch.frombuffer(
            registered_buffer(4 * (count if self.kind == "registered" else 1)), dtype=self.torch.float32
        )
        return trainer


class Group(Distributed):
    """torch.distributed on the backend horovod."""

    def __init__(self):
        super().__init__(os.environ["HOROVOD_RANK"])
        import horovod.torch.distributed  # noqa: F401, registers the backend

        self.torch.distributed.init_process_group("horovod")


class Gloo(Distributed):
    def __init__(self, rank, size, folder, interface):
        super().__init__(rank)
        import torch.distributed  # noqa: F401, as an attribute of self.torch

        os.environ["GLOO_SOCKET_IFNAME"] = interface
        self.torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/torch", rank=int(rank), world_size=int(size)
        )

    def allreduces(self, size, count):
        tensor = self.torch.zeros(int(size) // 4)
        return [per_thousand_us(int(count), lambda: self.torch.distributed.all_reduce(tensor))]

    def names(self, count, size, iterations):
        tensors = [self.torch.zeros(int(size) // 4) for _ in range(int(count))]

        def step():
            works = [self.torch.distributed.all_reduce(tensor, async_op=True) for tensor in tensors]
            for work in works:
                work.wait()

        return [median_us(int(iterations), step)]


class Launched(Gloo):
    """torch.distributed on gloo, set up by a launcher's variables."""

    def __init__(self):
        Plain.__init__(self, os.environ["RANK"])
        import torch.distributed  # noqa: F401, as an attribute of self.torch

        self.torch.distributed.init_process_group("gloo")


def serve(path, worker):
    driver = socket.socket(socket.AF_UNIX)
    driver.connect(path)
    driver.sendall(f"hello {worker.rank}\n".encode())
    for line in driver.makefile():
        verb, *arguments = line.split()
        if verb == "quit":
            break
        try:
            numbers = getattr(worker, verb)(*arguments)
            reply = " ".join(["ok"] + [repr(number) for number in numbers])
        except Exception as error:  # the driver reports the error and continues with the next line
            reply = f"no {type(error).__name__}: {error}".splitlines()[0]
        driver.sendall(f"{reply}\n".encode())


if __name__ == "__main__":
    KINDS = {"horovod": Horovod, "bound": Bound, "group": Group, "gloo": Gloo, "launched": Launched, "plain": Plain}
    made = KINDS[sys.argv[2]](*sys.argv[3:])
    if os.environ.get("HVD_BENCH_BOUND"):
        cores = sorted(os.sched_getaffinity(0))
        # Bind all threads, also those that libraries have started.
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), {cores[made.rank % len(cores)]})
    serve(sys.argv[1], made)
