"""Cases of PyTorch: gradients that change between backward and step, and mixed precision."""

import contextlib
import os

import cases
import torch
import torch.nn.functional as F
import torch_scaler
from torch_scaler import scaler
from torch_training import adam, batches, case, hvd, loop, loss_of, network, sgd, start, weights_of

OVERFLOWS = [(1, 0), (3, -1)]  # steps and ranks
FUSED = None if torch_scaler.IS_OF_TORCH else "this PyTorch fuses optimizers on GPUs only"


@case(quick=True)
def clipped_norm(training):
    model, optimizer = start(training)
    norms = []
    for batch in batches(training):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
        optimizer.step()
    return weights_of(model, norms=norms)


def assigned(training, zero_grad, clip=torch.nn.utils.clip_grad_norm_):
    """The program computes the gradients itself, like evolution strategies and gradient surgery."""
    model, optimizer = start(training)
    params = list(model.parameters())
    for batch in batches(training):
        zero_grad(model, optimizer)
        for param, grad in zip(params, torch.autograd.grad(loss_of(model, batch), params)):
            param.grad = grad
        clip(params, 0.1)
        optimizer.step()
    return weights_of(model)


@case(quick=True)
def assigned_gradients_clipped(training):
    return assigned(training, lambda model, optimizer: None)


@case()
def assigned_gradients_clipped_after_zero_grad_of_the_model(training):
    return assigned(training, lambda model, optimizer: model.zero_grad(), torch.nn.utils.clip_grad_value_)


@case()
def assigned_gradients_clipped_after_zero_grad_of_the_optimizer(training):
    return assigned(training, lambda model, optimizer: optimizer.zero_grad())


@case()
def clipped_norm_with_groups(training):
    model, optimizer = start(training, groups=1)
    for batch in batches(training):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    return weights_of(model)


@case(tolerance=cases.FLOAT16)
def clipped_norm_with_compression(training):
    model, optimizer = start(training, compression=hvd.Compression.fp16)
    for batch in batches(training):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    return weights_of(model)


@case(quick=True)
def clipped_values(training):
    model, optimizer = start(training)
    for batch in batches(training):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
    return weights_of(model)


def after_synchronize(training, passes=1, **keywords):
    model, optimizer = start(training, backward_passes_per_step=passes, **keywords)
    for step in range(3):
        optimizer.zero_grad()
        for pass_ in range(passes):
            batch = [torch.from_numpy(each) for each in training.batch(step * passes + pass_)]
            (loss_of(model, batch) / passes).backward()
        if training.is_distributed:
            optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize() if training.is_distributed else contextlib.nullcontext():
            optimizer.step()
    return weights_of(model)


@case(quick=True)
def clipped_after_synchronize(training):
    return after_synchronize(training)


@case(tolerance=cases.FLOAT16)
def accumulation_with_compression_clipped_after_synchronize(training):
    return after_synchronize(training, 3, compression=hvd.Compression.fp16)


def written_by_hand(training, write):
    model, optimizer = start(training)
    for batch in batches(training):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        largest = max(param.grad.abs().max() for param in model.parameters())
        for param in model.parameters():
            with torch.no_grad():
                write(param, largest)
        optimizer.step()
    return weights_of(model)


@case(may_refuse=r"synchronize\(\)")
def gradients_scaled_by_hand(training):
    return written_by_hand(training, lambda param, largest: param.grad.mul_(0.1 / largest))


@case(may_refuse=r"synchronize\(\)")
def gradients_replaced_by_hand(training):
    def write(param, largest):
        param.grad = param.grad / largest

    return written_by_hand(training, write)


@case(may_refuse=r"synchronize\(\)")
def gradients_written_through_data(training):
    """PyTorch does not count a write through .data; the check by copies detects the write."""
    os.environ["HOROVOD_TORCH_CHECK_GRADIENTS"] = "1"
    try:
        return written_by_hand(training, lambda param, largest: param.grad.data.mul_(0.1 / largest))
    finally:
        del os.environ["HOROVOD_TORCH_CHECK_GRADIENTS"]


@case(may_refuse=r"synchronize\(\)")
def weight_decay_by_hand(training):
    return written_by_hand(training, lambda param, largest: param.grad.add_(param.detach(), alpha=0.1))


@case()
def clipping_in_a_step_hook(training):
    model, optimizer = start(training)
    if not hasattr(optimizer, "register_step_pre_hook"):
        return loop(training, model, optimizer)
    optimizer.register_step_pre_hook(lambda *unused: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1) and None)
    return loop(training, model, optimizer)


# Mixed precision.


def with_scaler(training, make=sgd, clip=None, passes=1, **keywords):
    """Counts the optimizer's steps: all ranks must skip steps in which one rank overflows."""
    if passes > 1:
        keywords["backward_passes_per_step"] = passes
    model, optimizer = start(training, make, **keywords)
    weight = len(training.ranks) if "op" in keywords else 1  # the reduction is a sum over ranks
    scales, amp = [], scaler()
    for step in range(5):
        optimizer.zero_grad()
        for pass_ in range(passes):
            x, y = [
                torch.from_numpy(each)
                for each in training.batch(
                    step * passes + pass_, overflows=[(at * passes, rank) for at, rank in OVERFLOWS]
                )
            ]
            amp.scale(weight * loss_of(model, (x, y)) / passes).backward()
        if clip:
            amp.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        amp.step(optimizer)
        amp.update()
        scales.append(amp.get_scale())
    return weights_of(model, scales=scales)


@case()
def grad_scaler(training):
    return with_scaler(training)


@case()
def grad_scaler_and_clipping(training):
    return with_scaler(training, clip=0.1)


@case()
def grad_scaler_and_accumulation(training):
    return with_scaler(training, passes=2)


@case()
def grad_scaler_and_groups(training):
    return with_scaler(training, groups=1)


@case()
def grad_scaler_and_sums(training):
    return with_scaler(training, lambda params: sgd(params, 0.02), op=hvd.Sum)


@case(double=True, layers="1_KiB")
def grad_scaler_and_adam(training):
    return with_scaler(training, adam)


@case(skip=FUSED, double=True)
def grad_scaler_and_a_fused_optimizer(training):
    return with_scaler(training, lambda params: torch.optim.AdamW(params, lr=0.01, fused=True))


@case()
def grad_scaler_after_synchronize(training):
    model, optimizer = start(training)
    amp = scaler()
    for step in range(5):
        batch = [torch.from_numpy(each) for each in training.batch(step, overflows=OVERFLOWS)]
        optimizer.zero_grad()
        amp.scale(loss_of(model, batch)).backward()
        if training.is_distributed:
            optimizer.synchronize()
            amp.unscale_(optimizer)
            with optimizer.skip_synchronize():
                amp.step(optimizer)
        else:
            amp.step(optimizer)
        amp.update()
    return weights_of(model, scale=amp.get_scale())


# 1 KiB only: isfinite(x) reads x twice, and a concurrent reduction may change x in between, so that x counts as not
# finite. Then only this rank skips the step, and its zero_grad() raises while other ranks wait in step().
@case(may_refuse=r"synchronize\(\)", layers="1_KiB")
def loss_scaled_by_hand(training):
    """The loop of scripts without GradScaler: each rank tests its own gradients."""
    model, optimizer = start(training)
    scale, updates = 1024.0, 0
    for step in range(5):
        batch = [torch.from_numpy(each) for each in training.batch(step, overflows=OVERFLOWS)]
        (loss_of(model, batch) * scale).backward()
        with torch.no_grad():
            for param in model.parameters():
                param.grad.mul_(1 / scale)
        if all(torch.isfinite(param.grad).all() for param in model.parameters()):
            optimizer.step()
            updates += 1
        else:
            scale /= 2
        optimizer.zero_grad()
    return weights_of(model, scale=scale, updates=updates)


@case(tolerance=cases.BFLOAT16, quick=True)
def autocast(training):
    model, optimizer = start(training)
    for x, y in batches(training):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x)
        F.mse_loss(out.float(), y).backward()
        optimizer.step()
    return weights_of(model)


@case(tolerance=cases.BFLOAT16, quick=True)
def master_weights(training):
    """bfloat16 weights compute gradients, and a float32 copy applies them (as in apex)."""
    model = network(training)
    if training.is_distributed:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    half = [param.detach().bfloat16().requires_grad_() for param in model.parameters()]
    optimizer = sgd(model.parameters())
    for x, y in batches(training):
        hidden = torch.tanh(x.bfloat16() @ half[0].t() + half[1])
        loss = F.mse_loss((hidden @ half[2].t() + half[3]).float(), y)
        for param, gradient in zip(model.parameters(), torch.autograd.grad(loss, half)):
            param.grad = gradient.float()
            if training.is_distributed:
                hvd.allreduce_(param.grad)
        optimizer.step()
        with torch.no_grad():
            for copied, param in zip(half, model.parameters()):
                copied.copy_(param)
    return weights_of(model)
