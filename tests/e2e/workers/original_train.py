"""An elastic training script for PyTorch that uses only Horovod's documented interface, so that it runs on Horovod
itself and on this package: original_train.py STEPS [--slow SECONDS] [--kill HOST:SLOT@STEP]

Prints "HOST:SLOT uses PATH" with the file of its package, "HOST:SLOT begins RANK/SIZE at STEP" when a generation
begins, and "HOST:SLOT ends at STEP with SUM", where SUM is that of the weights; HOST and SLOT are those at the start of
the process. --kill: the process ends by SIGKILL before the reductions of that step.
"""

import argparse
import os
import signal
import time

import torch

import horovod.torch as hvd

options = argparse.ArgumentParser()
options.add_argument("steps", type=int)
options.add_argument("--slow", type=float, default=0.02)
options.add_argument("--kill", default="@-1")
options = options.parse_args()
victim, victims_step = options.kill.split("@")
name = f"{os.environ['HOROVOD_HOSTNAME']}:{os.environ['HOROVOD_LOCAL_RANK']}"
print(f"{name} uses {hvd.__file__}", flush=True)

hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)


@hvd.elastic.run
def train(state):
    print(f"{name} begins {hvd.rank()}/{hvd.size()} at {state.step}", flush=True)
    while state.step < options.steps:
        if name == victim and state.step == int(victims_step):
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(torch.full((2, 4), hvd.rank() + 1.0)).pow(2).sum().backward()
        optimizer.step()
        state.step += 1
        time.sleep(options.slow)
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
train(state)
print(f"{name} ends at {state.step} with {model.weight.detach().sum().item():.9f}", flush=True)
