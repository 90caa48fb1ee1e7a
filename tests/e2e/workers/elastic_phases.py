#!/usr/bin/python3 -B
"""A rank of an elastic job that trains with PyTorch, and in which a rank fails in each of these phases of a step.

usage: elastic_phases.py FOLDER [--no-snapshot] PHASE...

Phases: `before` its gradients are submitted; `between` two of its buckets; `stepped`: rank 1 has stepped, and rank 0
has not; `user`: between step and commit; `idle`: after the commit. With all four ranks, each generation makes two
steps, and rank 2 ends by SIGKILL in the phase of the next one. After the last phase the others make four more steps.

Prints "PROCESS begins GENERATION RANK/SIZE at STEP, newest commit N, source S", and at the end "ends after STEP steps,
B batches, with CHECKSUM" and what one process has after the same batches: "alone CHECKSUM".
"""

import os
import pathlib
import signal
import sys
import time
import zlib

import torch

import horovod.torch as hvd
from horovod import _elastic

folder, *phases = sys.argv[1:]
folder = pathlib.Path(folder)
snapshot = "--no-snapshot" not in phases
phases = [phase for phase in phases if not phase.startswith("--")]
process = os.environ["HOROVOD_ELASTIC_PROCESS"]
BATCHES = 4  # batches in a step of all ranks
LARGE = (1 << 20) + 1  # elements of a gradient with a separate bucket


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(LARGE))
        self.second = torch.nn.Parameter(torch.zeros(LARGE))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def loss_of(self, step, batches):
        """Returns small nonzero integers as gradients: their sums do not depend on the number of ranks."""
        self.batches += BATCHES
        scale = sum((step * 5 + batch * 3) % 8 + 1 for batch in batches)
        return (self.first * self.inputs).sum() * scale + (self.second * self.inputs).sum() * scale * 2

    inputs = torch.arange(LARGE) % 5 * 2 - 5.0


def checksum(model, optimizer):
    tensors = [
        *model.parameters(),
        *(optimizer.state[param][name] for param in model.parameters() for name in ("exp_avg", "exp_avg_sq")),
    ]
    return "{:08x}".format(zlib.crc32(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)))


def alone(steps):
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        (model.loss_of(step, range(BATCHES)) / BATCHES).backward()
        optimizer.step()
    return checksum(model, optimizer)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.01)


hvd.init()
model = Model()
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Sum)
state = hvd.elastic.TorchState(model, optimizer, step=0, phase=0, is_over=False, snapshot=snapshot)
committed = -1


def make_step(state, phase):
    """Makes one step, in which rank 2 fails in this phase; None: no rank fails."""
    fails = phase if hvd.rank() == 2 else None
    optimizer.zero_grad()
    if fails == "before":
        die()
    gradients = []

    def on_gradient(_):
        gradients.append(None)
        if fails == "between" and len(gradients) == 2:
            time.sleep(0.3)  # the first bucket is reduced meanwhile
            die()

    hooks = [param.register_hook(on_gradient) for param in model.parameters()]
    mine = range(hvd.rank(), BATCHES, hvd.size())
    (model.loss_of(state.step, mine) / BATCHES).backward()
    for hook in hooks:
        hook.remove()
    optimizer.synchronize()
    stepped = f"stepped{state.step}"
    if phase == "stepped" and hvd.rank() == 0:  # simulates a rank that the result has not reached
        wait_for(stepped)
        raise hvd.HorovodInternalError("planted")
    with optimizer.skip_synchronize():
        optimizer.step()
    if phase == "stepped" and hvd.rank() == 1:
        (folder / stepped).touch()
    if fails == "stepped":
        wait_for(stepped)
    if fails in ("stepped", "user"):
        die()


def commit(state):
    global committed
    before = state._commits
    try:
        state.commit()
    finally:
        if state._commits > before:
            committed = state.step


@hvd.elastic.run
def train(state):
    newest = max(hvd.allgather_object(committed))
    print(
        f"{process} begins {os.environ['HOROVOD_GENERATION']} {hvd.rank()}/{hvd.size()} at {state.step}, newest "
        f"commit {newest}, source {_elastic.source_rank()}",
        flush=True,
    )
    if hvd.size() == 2:  # rank 2 has failed
        state.phase += 1
    is_last = state.phase == len(phases)
    for count in range(4 if is_last else 1 << 30):
        phase = phases[state.phase] if count == 2 and hvd.size() == 4 else None
        make_step(state, phase)
        state.step += 1
        if hvd.size() == 2 and not is_last:
            time.sleep(0.05)
        commit(state)
        if phase == "idle" and hvd.rank() == 2:
            die()


train(state)
print(
    f"{process} ends after {state.step} steps, {int(model.batches)} batches, with {checksum(model, optimizer)}",
    flush=True,
)
if hvd.rank() == 0:
    print(f"alone {alone(state.step)}", flush=True)
