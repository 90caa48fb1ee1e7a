"""Steps of PyTorch in which each rank has another number of items (docs/unequal-work.md)."""

import torch
import torch.nn.functional as F

import horovod.torch as hvd


def step(model, optimizer, x, y):
    """Takes a step with any batch, such as the last one of an epoch: a rank may have no rows."""
    total = hvd.total(y.numel())
    optimizer.zero_grad()
    loss_sum = F.mse_loss(model(x), y, reduction="sum")
    (loss_sum * hvd.size() / (total or 1)).backward()
    optimizer.step()


def epoch_until_all_have_joined(model, optimizer, batches):
    """Takes the steps of an epoch in which the ranks have different numbers of batches. A rank that has joined takes no
    steps, so it gets the weights at the end."""
    for x, y in batches:
        step(model, optimizer, x, y)
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    hvd.broadcast_optimizer_state(optimizer, root_rank=last)


def accumulating_step(model, optimizer, parts):
    """`parts`: one batch for each of the `backward_passes_per_step` passes."""
    total = hvd.total(sum(y.numel() for _, y in parts))
    optimizer.zero_grad()
    for x, y in parts:
        loss_sum = F.mse_loss(model(x), y, reduction="sum")
        (loss_sum * hvd.size() / (total or 1)).backward()
    optimizer.step()


def language_model_step(model, optimizer, tokens, labels):
    """Takes a step; labels of -100 are padding. Returns the mean loss of a token over all ranks."""
    total = hvd.total((labels != -100).sum())
    optimizer.zero_grad()
    scores = model(tokens).flatten(0, 1)
    loss_sum = F.cross_entropy(scores, labels.flatten(), ignore_index=-100, reduction="sum")
    (loss_sum * hvd.size() / (total or 1)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return hvd.total(loss_sum.detach()) / (total or 1)


def sequences_step(rnn, head, optimizer, sequences, targets):
    """Takes a step on sequences of any length, with a target for each of their elements; a rank may have no
    sequence."""
    total = hvd.total(sum(target.numel() for target in targets))
    optimizer.zero_grad()
    if sequences:
        packed, _ = rnn(torch.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False))
        wanted = torch.nn.utils.rnn.pack_sequence(targets, enforce_sorted=False)
        loss_sum = F.mse_loss(head(packed.data), wanted.data, reduction="sum")
        (loss_sum * hvd.size() / (total or 1)).backward()
    optimizer.step()


def contrastive_step(model, optimizer, left, right):
    """Takes a step; each row of `left` has its match in `right`, among the rows of all ranks."""
    total = hvd.total(len(left))
    optimizer.zero_grad()
    mine = F.normalize(model(right))
    # The gradient of allgather is the mean over the ranks, each of which has a part of the loss.
    mine.register_hook(lambda gradient: gradient * hvd.size())
    lengths = hvd.allgather(torch.tensor([len(right)]))
    matches = lengths[: hvd.rank()].sum() + torch.arange(len(left))
    scores = F.normalize(model(left)) @ hvd.allgather(mine).T
    loss_sum = F.cross_entropy(10 * scores, matches, reduction="sum")
    (loss_sum * hvd.size() / (total or 1)).backward()
    optimizer.step()


def ddp_step(module, optimizer, x, y):
    """Takes a step with a module of DistributedDataParallel and a plain optimizer: DDP averages over the ranks too."""
    total = hvd.total(y.numel())
    optimizer.zero_grad()
    loss_sum = F.mse_loss(module(x), y, reduction="sum")
    (loss_sum * hvd.size() / (total or 1)).backward()
    optimizer.step()


@torch.no_grad()
def accuracy(model, batches):
    """Returns the accuracy over the rows of all ranks."""
    right = rows = 0
    for x, y in batches:
        right += (model(x).argmax(1) == y).sum()
        rows += len(y)
    return hvd.total(right) / (hvd.total(rows) or 1)
