#!/usr/bin/python3
"""A rank that makes named allreduces during autotuning, and checks each result."""

import sys

import torch

import horovod.torch as hvd

hvd.init()
steps = int(sys.argv[1])
tensors = [torch.empty(count) for count in (3, 1000, 40000, 7, 250000, 1)]
for step in range(steps):
    for i, tensor in enumerate(tensors):
        tensor.fill_(step + i + hvd.rank())
    handles = [hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"t{i}") for i, tensor in enumerate(tensors)]
    for i, handle in enumerate(handles):
        result = hvd.synchronize(handle)
        expected = hvd.size() * (step + i) + sum(range(hvd.size()))
        assert (result == expected).all(), (step, i, result, expected)
print("done", flush=True)
