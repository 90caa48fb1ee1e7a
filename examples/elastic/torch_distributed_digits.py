"""Trains a small network on handwritten digits with DistributedDataParallel, while hosts join and leave. The remaining
processes continue: the group of torch.distributed uses the backend horovod, and each generation of ranks creates it
again.

horovodrun -np 2 --min-np 1 -H a:1,b:1 python3 torch_distributed_digits.py
"""

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import horovod.torch as hvd
import horovod.torch.distributed  # noqa: F401  # the backend, which torch 2.5 and later finds by itself in a wheel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tutorials"))
from digits import load

options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, default=10)
options.add_argument("--pause", type=float, default=0, help="seconds between batches")
options = options.parse_args()

hvd.init()
data = torch.utils.data.TensorDataset(*map(torch.from_numpy, load("train")))
sampler = hvd.elastic.ElasticSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)


@hvd.elastic.run  # calls the function again after a failure, and when ranks join or leave
def train(state):
    dist.init_process_group("horovod")
    module = torch.nn.parallel.DistributedDataParallel(model)
    rank, size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {size} begins in epoch {state.epoch}, process {os.getpid()}", flush=True)
    while state.epoch < options.epochs:
        for index, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(images), labels).backward()
            optimizer.step()
            sampler.record_batch(index, 32)
            time.sleep(options.pause)
            state.commit()
        state.epoch += 1
        sampler.set_epoch(state.epoch)


train(state)
images, labels = map(torch.from_numpy, load("t10k"))
accuracy = (model(images).argmax(1) == labels).float().mean().item()
weights = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
print(
    f"rank {dist.get_rank()} of {dist.get_world_size()} ends: test accuracy {accuracy:.3f}, weights "
    f"{hashlib.sha256(weights).hexdigest()[:12]}",
    flush=True,
)
dist.destroy_process_group()
