"""A collective of all ranks in each library, for hanging_rank.py and busy_rank.py.

An object of a class imports its library. `call_in_other_order` and `reduce_in_other_group` on rank 1 never end while
other ranks call `reduce`."""

import json
import os
import pathlib

RANK = int(os.environ["HOROVOD_RANK"])


class Horovod:
    def __init__(self):
        import horovod.numpy as hvd
        import numpy

        hvd.init()
        self.hvd, self.ones = hvd, numpy.ones(4, "f4")
        self.group = hvd.add_process_set([0, 1])  # a subset of the three ranks
        self.reduce("first")

    def reduce(self, name="gradient"):
        self.hvd.allreduce(self.ones, name=name)

    def reduce_in_other_group(self):
        self.hvd.allreduce(self.ones, name="gradient", process_set=self.group)

    def call_in_other_order(self):
        self.reduce(f"gradient of rank {RANK}")


class Torch:
    def __init__(self):
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        self.dist, self.ones = dist, torch.ones(4)
        self.group = dist.new_group([0, 1])
        self.reduce()

    def reduce(self):
        self.dist.all_reduce(self.ones, async_op=True).wait()  # no Python frame is in wait()

    def reduce_in_other_group(self):
        self.dist.all_reduce(self.ones, group=self.group)

    def call_in_other_order(self):
        self.dist.recv(self.ones, src=1 - RANK)


class Ddp:
    def __init__(self):
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        self.torch, self.dist = torch, dist
        self.group = dist.new_group([0, 1])
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        # The second forward pass waits for all ranks, to rebuild the buckets; later ones wait in backward().
        for _ in range(2):
            self.reduce()

    def reduce(self):
        self.model(self.torch.ones(4)).sum().backward()

    def reduce_in_other_group(self):
        self.dist.all_reduce(self.torch.ones(4), group=self.group)


class DeepSpeed:
    def __init__(self):
        import deepspeed
        import torch

        self.torch, model = torch, torch.nn.Linear(4, 4)
        config = json.loads((pathlib.Path(__file__).parent / "deepspeed/ds_config.json").read_text())
        self.engine, _, _, _ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config_params=config
        )
        self.reduce()

    def reduce(self):
        self.engine.backward(self.engine(self.torch.ones(1, 4)).sum())
        self.engine.step()


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

    def call_in_other_order(self):
        self.world.recv(source=1 - RANK)


class Jax:
    def __init__(self):
        import jax

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        jax.distributed.initialize(address, 2, RANK)
        mesh = jax.sharding.Mesh(jax.devices(), "i")
        spec = jax.sharding.PartitionSpec("i")
        sharding = jax.sharding.NamedSharding(mesh, spec)
        self.ones = jax.make_array_from_callback((2,), sharding, lambda index: jax.numpy.ones(1))
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self.sum = jax.jit(lambda x: x.sum(), out_shardings=whole)
        self.reduce()

    def reduce(self):
        self.sum(self.ones).block_until_ready()


LIBRARIES = {
    "horovod": Horovod,
    "torch": Torch,
    "ddp": Ddp,
    "deepspeed": DeepSpeed,
    "mpi": Mpi,
    "jax": Jax,
}
