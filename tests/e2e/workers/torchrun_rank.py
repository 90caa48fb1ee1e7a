"""A rank of torchrun: Horovod and torch.distributed have the same ranks, in either order of initialisation.

usage: torchrun_rank.py horovod|torch|alone
"""

import os
import sys

import torch
import torch.distributed as dist

import horovod.torch as hvd

first = sys.argv[1]
if first == "torch":
    dist.init_process_group("gloo")
hvd.init()
if first == "horovod":
    dist.init_process_group("gloo")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ours = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
theirs = torch.tensor([rank + 1.0])
if first != "alone":
    dist.all_reduce(theirs)
    dist.destroy_process_group()
hvd.shutdown()
hvd.init()
again = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
os.write(
    1,
    f"rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()} of {hvd.local_size()}, is "
    f"{rank} of {size}: {ours:g} {again:g} {theirs.item():g}\n".encode(),
)  # in one write
hvd.shutdown()
