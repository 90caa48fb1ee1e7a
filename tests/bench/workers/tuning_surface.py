#!/usr/bin/python3
"""Records a cost surface for the autotuner's test: for each point of a grid of parameters, the score (bytes per
microsecond) of a training step that submits its tensors one by one.

horovodrun -np 4 -H a:2,b:2 python3 tests/bench/workers/tuning_surface.py NAME > FILE

Rank 0 prints the surface; NAME is one of SHAPES. Run it between two hosts of tests/hosts.
"""

import itertools
import os
import random
import statistics
import sys
import time

import torch

import horovod.torch as hvd

# Elements of each tensor of a step, and the seconds between two submissions.
SHAPES = {
    "small": ([1024] * 120 + [8192] * 30, 10e-6),
    "mixed": ([64, 9216, 128, 73728, 256, 294912] * 4 + [1 << 19], 50e-6),
}
GRID = {
    "fusion_threshold": (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 27),
    "window_ms": (0.05, 0.5, 5),
    "whole_limit": (1 << 10, 1 << 18),
}
VARIABLES = ("HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_ALLREDUCE_WHOLE_LIMIT")
STEPS = 3
SAMPLES = 2
# Each round visits the grid in a different order, so that a disturbance hits different points.
ROUNDS = 3


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def step(tensors, gap):
    handles = []
    for i, tensor in enumerate(tensors):
        handles.append(hvd.allreduce_async_(tensor, name=f"t{i}"))
        spin(gap)
    for handle in handles:
        hvd.synchronize(handle)


def score(tensors, gap):
    size = sum(tensor.numel() * 4 for tensor in tensors) * STEPS
    for _ in range(3):  # repeats until the names are cached
        step(tensors, gap)
    samples = []
    for _ in range(SAMPLES):
        begin = time.perf_counter()
        for _ in range(STEPS):
            step(tensors, gap)
        samples.append(size / (time.perf_counter() - begin) / 1e6)
    return max(samples)


def main():
    counts, gap = SHAPES[sys.argv[1]]
    tensors = [torch.zeros(count) for count in counts]
    torch.set_num_threads(1)
    rank = int(os.environ["HOROVOD_RANK"])
    points = list(itertools.product(*GRID.values()))
    scores = {point: [] for point in points}
    for order in range(ROUNDS):
        for point in random.Random(order).sample(points, len(points)):
            os.environ.update(zip(VARIABLES, map(str, point)))
            hvd.init()
            scores[point].append(score(tensors, gap))
            hvd.shutdown()
    if rank == 0:
        print("axes", *GRID)
        for point in points:
            print(*point, round(statistics.median(scores[point]), 1), flush=True)


main()
