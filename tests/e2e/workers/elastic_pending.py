"""A rank of an elastic PyTorch job whose process 0 ends by SIGKILL while other ranks wait: elastic_pending.py MODE

MODE: "handle": they wait for an allreduce that process 0 has not begun; "join": in hvd.join; "fp16", "adasum": for the
gradients of an optimizer with that compression or operation. Prints "PROCESS caught ERROR" when a wait ends with an
error, and "PROCESS ends with SUM of SIZE", where SUM is that of the weights.
"""

import os
import signal
import sys

import torch

import horovod.torch as hvd

mode = sys.argv[1]
process = os.environ["HOROVOD_ELASTIC_PROCESS"]
hvd.init()
torch.manual_seed(2)
model = torch.nn.Linear(4, 2)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1),
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.fp16 if mode == "fp16" else hvd.Compression.none,
    op=hvd.Adasum if mode == "adasum" else hvd.Average,
)


def wait_for_process_0(state):
    if mode == "handle":
        handle = hvd.allreduce_async(torch.ones(3), name="begun")
        hvd.synchronize(handle)
    if mode == "join":
        hvd.join()


@hvd.elastic.run
def train(state):
    while state.step < 12:
        if state.step == 6 and hvd.size() == 3:
            if process == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                wait_for_process_0(state)
            except Exception as error:
                print(process, "caught", type(error).__name__, flush=True)
                raise
        optimizer.zero_grad()
        model(torch.full((2, 4), hvd.rank() + 1.0)).pow(2).mean().backward()
        optimizer.step()
        state.step += 1
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
train(state)
print(f"{process} ends with {model.weight.detach().sum().item():.7f} of {hvd.size()}", flush=True)
