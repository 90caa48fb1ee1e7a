"""A network, its optimizer and its rows in PyTorch, for the cases of torch_*.py."""

import itertools

import cases
import torch
import torch.nn.functional as F

import horovod.torch as hvd

torch.set_num_threads(1)
TABLE = cases.Table()
case = TABLE.case
NUMBERS = itertools.count()  # two optimizers of a case have different names


def sgd(params, lr=0.1):
    return torch.optim.SGD(params, lr=lr, momentum=0.9)


def adam(params):
    return torch.optim.Adam(params, lr=0.01)


def network(training):
    model = torch.nn.Sequential(
        torch.nn.Linear(training.inputs, cases.WIDTH), torch.nn.Tanh(), torch.nn.Linear(cases.WIDTH, 2)
    ).to(getattr(torch, training.dtype))
    weights = training.initial()
    with torch.no_grad():
        for layer, number in ((model[0], 1), (model[2], 2)):
            layer.weight.copy_(torch.from_numpy(weights[f"w{number}"]).t())
            layer.bias.copy_(torch.from_numpy(weights[f"b{number}"]))
    return model


def distribute(training, optimizer, *models, **keywords):
    """Returns the optimizer for this run: over all ranks, after the broadcasts from rank 0."""
    if not training.is_distributed:
        return optimizer
    named = [(f"{next(NUMBERS)}.{name}", param) for model in models for name, param in model.named_parameters()]
    optimizer = hvd.DistributedOptimizer(optimizer, named, **keywords)
    for model in models:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return optimizer


def start(training, make=sgd, **keywords):
    model = network(training)
    return model, distribute(training, make(model.parameters()), model, **keywords)


def batches(training, steps=3, **keywords):
    for step in range(steps):
        yield [torch.from_numpy(each) for each in training.batch(step, **keywords)]


def loss_of(model, batch):
    return F.mse_loss(model(batch[0]), batch[1])


def loop(training, model, optimizer, steps=3):
    for batch in batches(training, steps):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return weights_of(model)


def weights_of(*models, **others):
    weights = {
        f"{index}.{name}": param.detach().numpy().copy()
        for index, model in enumerate(models)
        for name, param in model.named_parameters()
    }
    return {**weights, **others}
