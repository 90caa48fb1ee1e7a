#!/usr/bin/python3
"""Two ranks without horovod: rank 0 waits in a collective of --library, and rank 1 hangs in the way of --kind.
Prints "hangs" on each rank when it is about to."""

import argparse
import atexit
import os
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--library", required=True)
parser.add_argument("--kind", required=True)
options = parser.parse_args()
rank = int(os.environ["HOROVOD_RANK"])


class Torch:
    def __init__(self):
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        self.dist, self.ones = dist, torch.ones(4)
        self.group = dist.new_group([0, 1])
        self.reduce()

    def reduce(self):
        self.dist.all_reduce(self.ones)

    def reduce_in_other_group(self):
        self.dist.all_reduce(self.ones, group=self.group)

    def receive(self):
        self.dist.recv(self.ones, src=1 - rank)


class Ddp:
    def __init__(self):
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        self.torch = torch
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        self.reduce()

    def reduce(self):
        self.model(self.torch.ones(4)).sum().backward()


class Mpi:
    def __init__(self):
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD
        self.other = self.world.Dup()
        self.reduce()

    def reduce(self):
        self.world.allreduce(1)

    def reduce_in_other_group(self):
        self.other.allreduce(1)

    def receive(self):
        self.world.recv(source=1 - rank)


class Jax:
    def __init__(self):
        import jax

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        jax.distributed.initialize(address, 2, rank)
        mesh = jax.sharding.Mesh(jax.devices(), "i")
        spec = jax.sharding.PartitionSpec("i")
        sharding = jax.sharding.NamedSharding(mesh, spec)
        self.ones = jax.make_array_from_callback((2,), sharding, lambda index: jax.numpy.ones(1))
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self.sum = jax.jit(lambda x: x.sum(), out_shardings=whole)
        self.reduce()

    def reduce(self):
        self.sum(self.ones).block_until_ready()


def skip():
    time.sleep(600)


def lock_twice():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def read_a_dead_file():
    path = f"/tmp/hanging-{os.getpid()}"
    os.mkfifo(path)
    atexit.register(os.unlink, path)
    open(path).close()


def wait_at_exit():
    time.sleep(600)


def main():
    library = {"torch": Torch, "ddp": Ddp, "mpi": Mpi, "jax": Jax}[options.library]()
    print("hangs", flush=True)
    if options.kind == "order":
        library.receive()
    elif rank == 0:
        library.reduce()
    elif options.kind == "group":
        library.reduce_in_other_group()
    elif options.kind == "exit":
        atexit.register(wait_at_exit)
    else:
        {"skip": skip, "lock": lock_twice, "file": read_a_dead_file}[options.kind]()


main()
