"""Trains a small network on handwritten digits with DistributedDataParallel. The program does not use Horovod: the
launcher starts it again, with another number of ranks, when hosts join or leave. Each start continues from the
checkpoint.

    horovodrun -np 2 --min-np 1 -H a:1,b:1 python3 torch_ddp_digits.py --checkpoint /shared/digits.pt
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tutorials"))
from digits import load

options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, default=10)
options.add_argument("--pause", type=float, default=0, help="seconds between batches")
options.add_argument("--checkpoint", type=Path, default=Path("digits.pt"), help="a file that all hosts see")
options = options.parse_args()

ends = False  # the launcher has sent SIGTERM: --kill-grace seconds are left


def note_end(number, frame):
    global ends
    ends = True


signal.signal(signal.SIGTERM, note_end)
dist.init_process_group("gloo")  # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set
rank, size = dist.get_rank(), dist.get_world_size()
data = torch.utils.data.TensorDataset(*map(torch.from_numpy, load("train")))
sampler = torch.utils.data.DistributedSampler(data, size, rank)
loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
epoch = 0
if options.checkpoint.exists():
    saved = torch.load(options.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    epoch = saved["epoch"]


def save():
    if rank == 0:
        new = options.checkpoint.with_suffix(".new")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, new)
        new.rename(options.checkpoint)


generation = os.environ["HOROVOD_GENERATION"]
print(f"generation {generation}: rank {rank} of {size} begins in epoch {epoch}", flush=True)
while epoch < options.epochs:
    sampler.set_epoch(epoch)
    for images, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        time.sleep(options.pause)
        # All ranks leave after the same batch.
        end = torch.tensor(float(ends))
        dist.all_reduce(end)
        if end:
            save()
            print(f"generation {generation}: rank {rank} leaves in epoch {epoch}", flush=True)
            sys.exit(143)
    epoch += 1
    save()

images, labels = map(torch.from_numpy, load("t10k"))
accuracy = (model(images).argmax(1) == labels).float().mean().item()
print(f"rank {rank} of {size} ends: test accuracy {accuracy:.3f}", flush=True)
