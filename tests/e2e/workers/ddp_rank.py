#!/usr/bin/python3
"""An unmodified script for torchrun: DistributedDataParallel over gloo, with the launcher's variables."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(int(os.environ["RANK"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.full((2, 4), float(dist.get_rank() + 1))).sum().backward()
optimizer.step()
weights = model.module.weight.detach().flatten()
all_weights = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(all_weights, weights)
same = all(torch.equal(each, weights) for each in all_weights)
print(
    f"rank {dist.get_rank()} of {dist.get_world_size()}, local {os.environ['LOCAL_RANK']} of "
    f"{os.environ['LOCAL_WORLD_SIZE']}, group {os.environ['GROUP_RANK']}, same {same}, "
    f"gradient {model.module.weight.grad[0, 0].item():g}",
    flush=True,
)
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # on a busy machine, a thread of gloo may abort the end of the interpreter
