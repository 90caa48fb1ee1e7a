#!/usr/bin/env python3
"""Training on many processes gives the same weights as training in one process.

    horovodrun -np 4 python3 tests/e2e/training_weights.py
    horovodrun -np 8 -H a:4,b:4 python3 tests/e2e/training_weights.py

Every rank trains the example's model in float64 on its part of each global batch. Afterwards all ranks must
have the same weights, bit for bit. Rank 0 then trains in one process, with the mean of the parts' gradients,
and compares the weights: the computation is the same except for the order of additions. Rank 0 prints
`weights identical, max deviation X`. After a difference, rank 0 describes it, and every rank exits with 1.
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import horovod.torch as hvd
from torch_digits import Net, load_digits

TOLERANCE = 1e-12


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=4, help="images per step and rank")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--groups", type=int, default=0)
    return parser.parse_args()


def make(args, seed):
    torch.manual_seed(seed)
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=args.momentum)


def batches(args, size):
    """Returns for each step the part of the global batch of each rank."""
    images, digits = load_digits("train", torch.float64).tensors
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(7))
    length = args.batch_size * size
    for step in range(args.steps):
        chosen = order[torch.arange(step * length, (step + 1) * length) % len(order)]
        yield [(images[part], digits[part]) for part in chosen.reshape(size, args.batch_size)]


def train_distributed(args):
    # The ranks' weights differ until the broadcast from rank 0.
    model, optimizer = make(args, seed=100 + hvd.rank())
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), groups=args.groups)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for parts in batches(args, hvd.size()):
        images, digits = parts[hvd.rank()]
        optimizer.zero_grad()
        F.nll_loss(model(images), digits).backward()
        optimizer.step()
    return model


def train_alone(args, size):
    """Trains as `size` ranks inside this process, without collectives."""
    model, optimizer = make(args, seed=100)
    params = list(model.parameters())
    for parts in batches(args, size):
        sums = [torch.zeros_like(param) for param in params]
        for images, digits in parts:
            gradients = torch.autograd.grad(F.nll_loss(model(images), digits), params)
            for total, gradient in zip(sums, gradients):
                total += gradient
        for param, total in zip(params, sums):
            param.grad = total / size
        optimizer.step()
    return model


def flat(model):
    return torch.cat([param.detach().reshape(-1) for param in model.parameters()])


def main():
    args = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    mine = flat(train_distributed(args))
    everybody = hvd.allgather(mine.reshape(1, -1))
    complaints = [
        f"rank {rank} differs from rank 0 in {(row != everybody[0]).sum().item()} of {len(mine)} weights"
        for rank, row in enumerate(everybody)
        # Compares bits: a NaN equals itself, and -0 does not equal 0.
        if not torch.equal(row.view(torch.int64), everybody[0].view(torch.int64))
    ]
    if hvd.rank() == 0:
        deviation = (mine - flat(train_alone(args, hvd.size()))).abs().max().item()
        if not deviation <= TOLERANCE:
            complaints.append(f"a single process's weights differ by up to {deviation:.3g}")
        untrained = (mine - flat(make(args, seed=100)[0])).abs().max().item()
        if not untrained > 1e-3:
            complaints.append("the weights have hardly moved, so that nothing is proven")
        if complaints:
            print("; ".join(complaints), file=sys.stderr)
        else:
            print(f"weights identical, max deviation {deviation:.3g}")
    return 1 if hvd.broadcast_object(bool(complaints), root_rank=0) else 0


if __name__ == "__main__":
    sys.exit(main())
