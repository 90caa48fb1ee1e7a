#!/usr/bin/env python3
"""Trains a small CNN on handwritten digits, on as many processes as Horovod started.

    horovodrun -np 8 python3 examples/torch_digits.py
    horovodrun -np 8 -H a:4,b:4 python3 examples/torch_digits.py --epochs 20
    python3 examples/torch_digits.py                     # one process, no launcher

Every line that makes the program distributed is marked with "Horovod:".
"""

import argparse
import gzip
import struct
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

DATA = Path(__file__).resolve().parent / "data"


class Net(torch.nn.Module):
    """Two convolutions and two dense layers; 8 x 8 grey levels in, log-probabilities out."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, kernel_size=3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, kernel_size=3, padding=1)
        self.dense1 = torch.nn.Linear(32 * 4 * 4, 64)
        self.dense2 = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.dense1(x.flatten(1)))
        return F.log_softmax(self.dense2(x), dim=1)


def read_idx(path):
    """Reads a gzipped IDX file of unsigned bytes (the format of MNIST)."""
    with gzip.open(path, "rb") as file:
        data = bytearray(file.read())
    ndim = data[3]
    shape = struct.unpack_from(f">{ndim}I", data, 4)
    return torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * ndim).reshape(shape)


def load_digits(part, dtype=torch.float32):
    """Returns the data set `part`, "train" or "t10k", as images in [0, 1] and digits."""
    images = read_idx(DATA / f"{part}-images-idx3-ubyte.gz").to(dtype).unsqueeze(1) / 16
    digits = read_idx(DATA / f"{part}-labels-idx1-ubyte.gz").long()
    return TensorDataset(images, digits)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Train a small CNN on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=8, help="images per step and process")
    parser.add_argument("--lr", type=float, default=0.0075, help="learning rate of one process")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--warmup-epochs", type=float, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--checkpoint", metavar="FILE", help="written by rank 0 after each epoch")
    parser.add_argument(
        "--save-weights", metavar="FILE", help="weights after training; with {rank} in the name, of every process"
    )
    return parser.parse_args()


def train_epoch(epoch, model, optimizer, loader, args):
    model.train()
    total = 0.0
    for step, (images, digits) in enumerate(loader):
        # Horovod: the job's batch and the learning rate grow with the number of processes. The rate
        # starts at the rate of one process, because large steps harm a new model.
        progress = (epoch + step / len(loader)) / args.warmup_epochs if args.warmup_epochs else 1
        rate = args.lr * (1 + (hvd.size() - 1) * min(1.0, progress))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), digits)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def test(model, dataset):
    """Returns the share of right answers on all of `dataset`; each process tests a part of it."""
    model.eval()
    images, digits = dataset[hvd.rank() :: hvd.size()]
    right = (model(images).argmax(dim=1) == digits).sum()
    # Horovod: parts differ in length by one, so sum the counts instead of averaging shares.
    return hvd.allreduce(right, name="right", op=hvd.Sum).item() / len(dataset)


def main():
    args = parse_arguments()
    hvd.init()  # Horovod: find the other processes.
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # Horovod: processes share the cores of a machine.
    dtype = getattr(torch, args.dtype)
    torch.set_default_dtype(dtype)

    # Horovod: each process trains on its own share of the data.
    train_set = load_digits("train", dtype)
    sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank(), seed=args.seed)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    test_set = load_digits("t10k", dtype)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)

    # Horovod: average gradients over all processes before each step.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # Horovod: all processes start from rank 0's weights.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    started = time.time()
    accuracy = 0.0
    for epoch in range(args.epochs):
        epoch_started = time.time()
        sampler.set_epoch(epoch)
        loss = train_epoch(epoch, model, optimizer, loader, args)
        # Horovod: average the loss, because each process measures only its own share.
        loss = hvd.allreduce(torch.tensor(loss), name="loss").item()
        accuracy = test(model, test_set)
        if hvd.rank() == 0:  # Horovod: one process prints and writes files for all.
            print(
                f"epoch {epoch + 1}/{args.epochs}: loss {loss:.4f}, "
                f"test accuracy {accuracy:.4f}, {time.time() - epoch_started:.2f} s",
                flush=True,
            )
            if args.checkpoint:
                torch.save(
                    {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, args.checkpoint
                )

    if args.save_weights and (hvd.rank() == 0 or "{rank}" in args.save_weights):
        torch.save(model.state_dict(), args.save_weights.replace("{rank}", str(hvd.rank())))
    if hvd.rank() == 0:
        print(
            f"test accuracy {accuracy:.4f} after {time.time() - started:.1f} s of training on {hvd.size()} processes",
            flush=True,
        )


if __name__ == "__main__":
    main()
