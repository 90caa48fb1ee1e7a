"""Trains a small network on handwritten digits with PyTorch, while hosts join and leave.

horovodrun -np 2 --min-np 1 -H a:1,b:1 python3 torch_digits.py
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import torch

import horovod.torch as hvd

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
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), lr=0.003), named_parameters=model.named_parameters()
)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)


@hvd.elastic.run
def train(state):
    print(f"rank {hvd.rank()} of {hvd.size()} begins in epoch {state.epoch}", flush=True)
    while state.epoch < options.epochs:
        for index, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
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
    f"rank {hvd.rank()} of {hvd.size()} ends: test accuracy {accuracy:.3f}, weights "
    f"{hashlib.sha256(weights).hexdigest()[:12]}",
    flush=True,
)
