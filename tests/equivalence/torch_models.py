"""Cases of PyTorch: frozen, sparse, tied and complex parameters, several models, schedules, copies and checkpoints."""

import copy
import io

import cases
import torch
import torch.nn.functional as F
from torch_training import adam, batches, case, distribute, hvd, loop, loss_of, network, sgd, start, weights_of


def unfreezing(training, **keywords):
    """The first layer joins the training after two steps."""
    model = network(training)
    model[0].requires_grad_(False)
    if keywords.get("groups") == "listed":
        keywords["groups"] = [list(model[0].parameters()), list(model[2].parameters())]
    weight = len(training.ranks) if "op" in keywords else 1  # the reduction is a sum over ranks
    optimizer = distribute(training, sgd(model.parameters(), 0.02), model, **keywords)
    for step, batch in enumerate(batches(training, 5)):
        if step == 2:
            model[0].requires_grad_(True)
        optimizer.zero_grad()
        (weight * loss_of(model, batch)).backward()
        optimizer.step()
    return weights_of(model)


@case(quick=True)
def unfrozen(training):
    return unfreezing(training)


@case()
def unfrozen_with_groups(training):
    return unfreezing(training, groups=2)


@case()
def unfrozen_with_listed_groups(training):
    return unfreezing(training, groups="listed")


@case(tolerance=cases.FLOAT16)
def unfrozen_with_compression(training):
    return unfreezing(training, compression=hvd.Compression.fp16)


@case()
def unfrozen_with_sums(training):
    return unfreezing(training, op=hvd.Sum)


@case()
def unfrozen_with_accumulation(training):
    model = network(training)
    model[0].requires_grad_(False)
    optimizer = distribute(training, sgd(model.parameters()), model, backward_passes_per_step=2)
    for number, batch in enumerate(batches(training, 8)):
        if number == 4:
            model[0].requires_grad_(True)
        loss_of(model, batch).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    return weights_of(model)


@case(quick=True)
def frozen_later(training):
    model, optimizer = start(training)
    for step, batch in enumerate(batches(training, 5)):
        if step == 2:
            model[0].requires_grad_(False)
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, batch).backward()
        optimizer.step()
    return weights_of(model)


@case(quick=True)
def group_added_later(training):
    model = network(training)
    model[0].requires_grad_(False)
    optimizer = distribute(training, sgd(model[2].parameters()), model[2])
    if training.is_distributed:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step, batch in enumerate(batches(training, 4)):
        if step == 2:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.05})
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return weights_of(model)


def embedding(training, make, **keywords):
    table = torch.nn.Embedding(training.inputs, cases.WIDTH, sparse=True)
    with torch.no_grad():
        table.weight.copy_(torch.from_numpy(training.initial()["w1"]))
    table = table.to(getattr(torch, training.dtype))
    optimizer = distribute(training, make(list(table.parameters())), table, **keywords)
    for step in range(4):
        optimizer.zero_grad()
        table(torch.from_numpy(training.words(step))).square().sum(1).mean().backward()
        optimizer.step()
    return weights_of(table)


@case(quick=True)
def sparse_gradients(training):
    return embedding(training, lambda params: torch.optim.SGD(params, lr=0.5))


@case()
def sparse_gradients_sent_as_dense(training):
    return embedding(training, lambda params: torch.optim.SGD(params, lr=0.5), sparse_as_dense=True)


@case(double=True)
def sparse_gradients_and_sparse_adam(training):
    return embedding(training, lambda params: torch.optim.SparseAdam(params, lr=0.05))


@case()
def tied_weights(training):
    table = torch.nn.Embedding(training.inputs, cases.WIDTH)
    with torch.no_grad():
        table.weight.copy_(torch.from_numpy(training.initial()["w1"]))
    optimizer = distribute(training, sgd(table.parameters()), table)
    for step in range(3):
        words = torch.from_numpy(training.words(step))
        optimizer.zero_grad()
        F.cross_entropy(table(words) @ table.weight[:50].t(), words % 16).backward()
        optimizer.step()
    return weights_of(table)


@case(quick=True, layers="1_KiB")
def complex_parameters(training):
    weight = training.initial()["w1"]
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.complex(torch.from_numpy(weight), torch.from_numpy(weight[::-1].copy())))
    optimizer = distribute(training, sgd(model.parameters()), model)
    for x, y in batches(training):
        optimizer.zero_grad()
        F.mse_loss((x.to(torch.complex64) @ model.weight)[:, :2].abs(), y).backward()
        optimizer.step()
    return weights_of(model)


@case(quick=True)
def two_optimizers(training):
    """A generator and a discriminator, whose gradients are in flight at the same time."""
    maker, judge = network(training), network(training)
    with torch.no_grad():
        judge[0].weight.mul_(-0.5)
    makers, judges = (distribute(training, sgd(each.parameters(), 0.05), each) for each in (maker, judge))
    for x, y in batches(training, 4):
        judges.zero_grad()
        fake = torch.cat([maker(x), x[:, 2:]], 1)
        F.softplus(judge(fake.detach()) - judge(x)).mean().backward()
        judges.step()
        makers.zero_grad()
        fake = torch.cat([maker(x), x[:, 2:]], 1)
        (F.softplus(-judge(fake)).mean() + F.mse_loss(fake[:, :2], y)).backward()
        if training.is_distributed:
            judges.synchronize()  # the generator's loss has gradients in the discriminator too
        makers.step()
    return weights_of(maker, judge)


@case(quick=True)
def averages_of_weights(training):
    model, optimizer = start(training)
    mean, smooth = torch.optim.swa_utils.AveragedModel(model), copy.deepcopy(model)
    for step, batch in enumerate(batches(training, 4)):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        mean.update_parameters(model)
        with torch.no_grad():
            for kept, param in zip(smooth.parameters(), model.parameters()):
                kept.mul_(0.9).add_(param, alpha=0.1)
    copied = copy.deepcopy(model)
    return weights_of(model, mean.module, smooth, copied)


def schedule(training, make):
    model, optimizer = start(training)
    scheduler, rates = make(optimizer), []
    for batch in batches(training, 6):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    return weights_of(model, rates=rates)


@case(quick=True)
def learning_rate_schedule(training):
    return schedule(training, lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5))


@case()
def learning_rate_warm_up(training):
    return schedule(
        training, lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8, pct_start=0.5)
    )


@case(quick=True)
def schedule_made_before_wrapping(training):
    model = network(training)
    plain = sgd(model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(plain, lambda step: 1 / (step + 1))
    optimizer = distribute(training, plain, model)
    for batch in batches(training):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        scheduler.step()
    return weights_of(model)


def resume(training, make):
    """Rank 0 saves after two steps; a new model and optimizer continue from the file, which only rank 0 reads."""
    model, optimizer = start(training, make)
    loop(training, model, optimizer, 2)
    saved = io.BytesIO()
    if 0 in training.ranks:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    model = network(training)
    plain = make(model.parameters())
    if 0 in training.ranks:
        saved.seek(0)
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])
    return loop(training, model, distribute(training, plain, model), 4)


@case(quick=True)
def saved_and_resumed(training):
    return resume(training, sgd)


@case(double=True)
def saved_and_resumed_with_adam(training):
    return resume(training, adam)


@case(quick=True, layers="1_KiB", tolerance=1e-5)
def synchronized_batch_normalization(training):
    """Uses statistics of the whole batch; per-rank BatchNorm would differ from one process."""
    model = network(training)
    normalize = hvd.SyncBatchNorm if training.is_distributed else torch.nn.BatchNorm1d
    model = torch.nn.Sequential(model[0], normalize(cases.WIDTH), *model[1:])
    optimizer = distribute(training, sgd(model.parameters()), model)
    loop(training, model, optimizer)
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def changed_type(training, dtype, **keywords):
    model, optimizer = start(training, lambda params: torch.optim.SGD(params, lr=0.1), **keywords)
    loop(training, model, optimizer, 2)
    model.to(dtype)
    for batch in batches(training, 3):
        optimizer.zero_grad()
        loss_of(lambda x: model(x.to(dtype)).float(), batch).backward()
        optimizer.step()
    model.double()
    return weights_of(model)


@case(quick=True, layers="1_KiB 256_KiB")
def type_changed_after_wrapping(training):
    return changed_type(training, torch.double)


# bfloat16 rounds weights near 1 to 1/128.
@case(quick=True, layers="256_KiB", tolerance=1 / 128)
def type_changed_to_bfloat16_after_wrapping(training):
    return changed_type(training, torch.bfloat16)


@case(layers="256_KiB", tolerance=1 / 128)
def type_changed_to_bfloat16_with_groups(training):
    return changed_type(training, torch.bfloat16, groups=2)


@case(
    quick=True,
    layers="1_KiB 256_KiB",
    skip=None if hasattr(torch.Tensor, "register_post_accumulate_grad_hook") else "from PyTorch 2.1 on",
)
def layer_that_grows_after_wrapping(training):
    model, optimizer = start(training, lambda params: torch.optim.SGD(params, lr=0.1))
    loop(training, model, optimizer, 2)
    with torch.no_grad():
        for param, dim in ((model[0].weight, 0), (model[0].bias, 0), (model[2].weight, 1)):
            param.data = torch.cat([param, param.mul(0.5)], dim)
    return loop(training, model, optimizer)
