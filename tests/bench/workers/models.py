"""The models that the training bench trains on synthetic data: many small gradients, or few large ones."""

import os

import torch
from torch import nn

BATCH = 32


def cnn():
    """21,840 parameters in 8 tensors: small convolutions; the gradients cost little to reduce."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    ), (1, 28, 28)


def mlp():
    """669,706 parameters in 6 tensors: the backward pass finishes the largest gradient last."""
    return nn.Sequential(
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    ), (784,)


def deep():
    """171,530 parameters in 62 tensors: each tensor costs a negotiation."""
    layers = [nn.Linear(784, 64), nn.ReLU()]
    for _ in range(29):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10)), (784,)


MODELS = {"cnn": cnn, "mlp": mlp, "deep": deep}


class Trainer:
    """One rank's copy of a model; `step` is one step of training. `between` runs between the backward pass and the
    optimizer's step."""

    def __init__(self, name, wrap_model=None, wrap_optimizer=None, after=None, between=None):
        torch.manual_seed(1)
        self.model, shape = MODELS[name]()
        if wrap_model:
            self.model = wrap_model(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        if wrap_optimizer:
            self.optimizer = wrap_optimizer(self.optimizer, self.model)
        self.after, self.between = after, between
        self.inputs = torch.randn(BATCH, *shape)
        self.labels = torch.randint(10, (BATCH,))

    def step(self):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.inputs), self.labels).backward()
        if self.between:
            self.between()
        self.optimizer.step()
        if self.after:
            self.after()


class ShardedTransformer:
    """4 layers of a transformer with 3,159,040 parameters, sharded over all ranks by FSDP2; `step` is one step."""

    def __init__(self):
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(1)
        layers = [nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True) for _ in range(4)]
        self.model = nn.Sequential(*layers)
        mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        if "HVD_BENCH_ALLOCATES" in os.environ:
            for module in (*layers, self.model):
                module.set_allocate_memory_from_process_group_for_comm(True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.inputs = torch.randn(2, 16, 256)

    def step(self):
        self.optimizer.zero_grad()
        self.model(self.inputs).square().mean().backward()
        self.optimizer.step()
