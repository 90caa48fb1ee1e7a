"""Prints the duration of a commit of 100 MB of weights with Adam, in alternation: a line `KIND SECONDS` for each.

usage: elastic_commit.py ROUNDS

Kinds: `copies`, with a snapshot; `marks`, without a snapshot; `deepcopy` of the same state_dicts.
"""

import copy
import sys
import time

import torch

import horovod.torch as hvd

hvd.init()
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(25)])
optimizer = torch.optim.Adam(model.parameters())
for param in model.parameters():
    param.grad = torch.ones_like(param)
states = {
    kind: hvd.elastic.TorchState(model, optimizer, step=0, snapshot=kind == "copies") for kind in ("copies", "marks")
}


def deep_copy():
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()))


for state in states.values():
    state.sync()
for _ in range(int(sys.argv[1]) + 1):  # the first round touches the memory
    optimizer.step()
    for kind, act in [("deepcopy", deep_copy), *((kind, state.commit) for kind, state in states.items())]:
        start = time.perf_counter()
        kept = act()
        print(kind, time.perf_counter() - start, flush=True)
        del kept
