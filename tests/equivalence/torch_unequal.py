"""Cases of PyTorch in which ranks have different numbers of items: the steps of examples/unequal."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_steps as steps
from torch_training import case, distribute, hvd, network, sgd, start, weights_of


def uneven(training):
    return [[torch.from_numpy(each) for each in batch] for batch in training.unequal_batches()]


def mean(losses, count):
    """Returns the mean, as one process computes it; 0 without items."""
    return losses.sum() / max(1, count)


def step_alone(model, optimizer, x, y):
    optimizer.zero_grad()
    mean(F.mse_loss(model(x), y, reduction="none"), y.numel()).backward()
    optimizer.step()


@case(quick=True, double=True)
def unequal_batches(training):
    model, optimizer = start(training)
    for x, y in uneven(training):
        (steps.step if training.is_distributed else step_alone)(model, optimizer, x, y)
    return weights_of(model)


@case(double=True, layers="1_KiB")
def unequal_batches_with_predivided_groups(training):
    model, optimizer = start(training, groups=1, gradient_predivide_factor=2.0)
    for x, y in uneven(training):
        (steps.step if training.is_distributed else step_alone)(model, optimizer, x, y)
    return weights_of(model)


@case(double=True, layers="1_KiB")
def unequal_numbers_of_batches(training):
    """Each rank joins after its last batch; a step of one process has the rows of the ranks that still train."""
    model, optimizer = start(training)
    counts = {rank: 2 + rank for rank in training.ranks}
    found = [
        [
            torch.from_numpy(each)
            for each in training.batch(step, rows=lambda rank, step=step: 2 + rank if step < counts[rank] else 0)
        ]
        for step in range(max(counts.values()))
    ]
    if training.is_distributed:
        steps.epoch_until_all_have_joined(model, optimizer, found)
        hvd.allreduce(torch.ones(1))  # without a name, like the totals before the join
    else:
        for x, y in found:
            step_alone(model, optimizer, x, y)
    return weights_of(model)


@case(double=True, layers="1_KiB")
def unequal_passes(training):
    model, optimizer = start(training, backward_passes_per_step=2)
    found = uneven(training)
    for parts in (found[:2], found[2:]):
        if training.is_distributed:
            steps.accumulating_step(model, optimizer, parts)
        else:
            step_alone(model, optimizer, *(torch.cat(each) for each in zip(*parts)))
    return weights_of(model)


class LanguageModel(torch.nn.Module):
    def __init__(self, training):
        super().__init__()
        weights = training.initial()
        self.embedding = torch.nn.Parameter(torch.from_numpy(weights["w1"][:13]))
        self.head = torch.nn.Parameter(torch.from_numpy(weights["w1"].T[:, :13].copy()))

    def forward(self, tokens):
        # Each token gets the mean of all tokens up to this one.
        seen = F.embedding(tokens, self.embedding).cumsum(1)
        return (seen / torch.arange(1, tokens.shape[1] + 1)[:, None]) @ self.head


@case(double=True, layers="1_KiB")
def language_model_with_padding(training):
    model = LanguageModel(training)
    optimizer = distribute(training, sgd(model.parameters()), model)
    losses = []
    for step in range(3):
        tokens = torch.from_numpy(training.words(step, 12)).reshape(-1, 6) % 13
        labels = tokens.roll(-1, 1)
        for row, rank in enumerate(each for each in training.ranks for _ in range(2)):
            labels[row, 6 - (step + 2 * rank) % 7 :] = -100  # rank 0 has no tokens in the first step
        if training.is_distributed:
            losses.append(steps.language_model_step(model, optimizer, tokens, labels))
            continue
        optimizer.zero_grad()
        wanted = labels != -100
        loss = F.cross_entropy(model(tokens)[wanted], labels[wanted])
        losses.append(loss.item())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return weights_of(model, losses=[float(loss) for loss in losses])


@case(double=True, layers="1_KiB")
def sequences_of_unequal_length(training):
    torch.manual_seed(training.seed)
    rnn = torch.nn.GRU(training.inputs, 5).double()
    head = torch.nn.Linear(5, 2).double()
    optimizer = distribute(training, sgd([*rnn.parameters(), *head.parameters()]), rnn, head)
    for step in range(3):
        pairs = [
            [torch.from_numpy(each).double() for each in training._rows(10 * step + number, rank, 1 + number + rank)]
            for rank in training.ranks
            for number in range((rank + step) % 3)
        ]
        sequences, targets = [list(each) for each in zip(*pairs)] or ([], [])
        if training.is_distributed:
            steps.sequences_step(rnn, head, optimizer, sequences, targets)
            continue
        optimizer.zero_grad()
        errors = [F.mse_loss(head(rnn(x)[0]), y, reduction="sum") for x, y in pairs]
        (sum(errors) / max(1, sum(y.numel() for _, y in pairs)) if pairs else head.bias.sum() * 0).backward()
        optimizer.step()
    return weights_of(rnn, head)


@case(double=True, layers="1_KiB")
def matches_among_the_rows_of_all_ranks(training):
    model, optimizer = start(training)
    for step in range(3):
        left, _ = training.batch(step, rows=lambda rank: 1 + 2 * rank)
        left = torch.from_numpy(left)
        right = left.flip(1) + left
        if training.is_distributed:
            steps.contrastive_step(model, optimizer, left, right)
            continue
        optimizer.zero_grad()
        scores = F.normalize(model(left)) @ F.normalize(model(right)).T
        F.cross_entropy(10 * scores, torch.arange(len(left))).backward()
        optimizer.step()
    return weights_of(model)


@case(double=True, layers="1_KiB")
def unequal_batches_in_a_module_of_ddp(training):
    model = network(training)
    if training.is_distributed:
        import horovod.torch.distributed  # noqa: F401, registers the backend

        dist.init_process_group("horovod")
        module = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = sgd(model.parameters())
    for x, y in uneven(training):
        if training.is_distributed:
            steps.ddp_step(module, optimizer, x, y)
        else:
            step_alone(model, optimizer, x, y)
    if training.is_distributed:
        del module
        dist.destroy_process_group()
    return weights_of(model)


@case(double=True, layers="1_KiB")
def accuracy_over_shards_of_unequal_size(training):
    model, _ = start(training)
    batches = [map(torch.from_numpy, training.batch(step, rows=lambda rank: 5 * rank)) for step in range(3)]
    found = [(x, (y[:, 0] > y[:, 1]).long()) for x, y in batches]
    if training.is_distributed:
        return {"accuracy": steps.accuracy(model, found)}
    right = torch.cat([model(x).argmax(1) == y for x, y in found])
    return {"accuracy": float(right.sum()) / max(1, len(right))}
