#!/usr/bin/python3
"""A script with hvd.DistributedOptimizer and DistributedDataParallel that makes no process group."""

import hashlib

import torch

import horovod.torch as hvd

hvd.init()
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer)
model = torch.nn.parallel.DistributedDataParallel(model)
data = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))[hvd.rank() :: hvd.size()]
for _ in range(20):
    optimizer.zero_grad()
    loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
weights = b"".join(param.detach().numpy().tobytes() for param in model.parameters())
sums = hvd.allgather_object(hashlib.sha256(weights).hexdigest())
print(
    f"rank {hvd.rank()} of {torch.distributed.get_world_size()}: identical "
    f"{len(set(sums)) == 1}, learned {hvd.allreduce(loss.detach()).item() < 1.5}",
    flush=True,
)
