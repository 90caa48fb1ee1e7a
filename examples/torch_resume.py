"""Trains on handwritten digits with PyTorch, and continues from its checkpoint.

horovodrun -np 4 python3 examples/torch_resume.py --epochs 4
"""

import argparse
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import horovod.torch as hvd

sys.path.insert(0, str(Path(__file__).resolve().parent / "tutorials"))
from digits import load

options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, default=4)
options.add_argument("--checkpoint", type=Path, default=Path("resume.pt").resolve())
options = options.parse_args()

hvd.init()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

# Data: each rank has its own share, and all shares have the same length.
data = TensorDataset(*map(torch.from_numpy, load("train")))
sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(data, batch_size=32, sampler=sampler)

# Checkpoint: rank 0 reads the file, and the other ranks receive its state.
first = 0
if hvd.rank() == 0 and options.checkpoint.exists():
    saved = torch.load(options.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"]
first = hvd.broadcast_object(first, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
if hvd.rank() == 0:
    print(f"begins at epoch {first} with {hvd.size()} ranks", flush=True)

for epoch in range(first, options.epochs):
    sampler.set_epoch(epoch)  # shuffles the data anew
    for step, (images, labels) in enumerate(loader):
        # Learning rate: rises within two epochs to the rate of one rank times the number of ranks.
        progress = min(1.0, (epoch + step / len(loader)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 + (hvd.size() - 1) * progress)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    loss = hvd.allreduce(loss.detach(), name="loss")
    if hvd.rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
        new = options.checkpoint.with_suffix(".new")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, new)
        new.rename(options.checkpoint)
