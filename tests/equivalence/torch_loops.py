"""Cases of PyTorch: loops, closures, arguments of the optimizer, several passes, and a group."""

import cases
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch_training import adam, batches, case, distribute, hvd, loop, loss_of, network, sgd, start, weights_of


@case(quick=True)
def plain_loop(training):
    return loop(training, *start(training))


@case(quick=True, double=True)
def plain_loop_with_adam(training):
    return loop(training, *start(training, adam))


@case(layers="1_KiB", double=True)
def every_optimizer(training):
    weights = {}
    for name in ("Adadelta", "Adagrad", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"):
        model = loop(training, *start(training, lambda params: getattr(torch.optim, name)(params, lr=0.01)))
        weights.update({f"{name}.{key}": value for key, value in model.items()})
    return weights


@case(quick=True)
def zeros_in_place_of_dropped_gradients(training):
    model, optimizer = start(training)
    for batch in batches(training):
        optimizer.zero_grad(set_to_none=False)
        loss_of(model, batch).backward()
        optimizer.step()
    return weights_of(model)


@case(quick=True)
def groups(training):
    return loop(training, *start(training, groups=2))


@case()
def listed_groups(training):
    model = network(training)
    listed = [list(model[0].parameters()), list(model[2].parameters())]
    return loop(training, model, distribute(training, sgd(model.parameters()), model, groups=listed))


@case(quick=True)
def sums(training):
    model, optimizer = start(training, lambda params: sgd(params, 0.02), op=hvd.Sum)
    for batch in batches(training):
        optimizer.zero_grad()
        (loss_of(model, batch) * len(training.ranks)).backward()
        optimizer.step()
    return weights_of(model)


@case()
def predivided_averages(training):
    return loop(training, *start(training, gradient_predivide_factor=2.0))


@case(quick=True, tolerance=cases.FLOAT16)
def gradients_sent_as_float16(training):
    return loop(training, *start(training, compression=hvd.Compression.fp16))


@case(tolerance=cases.BFLOAT16)
def gradients_sent_as_bfloat16(training):
    return loop(training, *start(training, compression=hvd.Compression.bf16))


@case(quick=True)
def closure(training):
    model, optimizer = start(training)
    losses = []
    for batch in batches(training):

        def evaluate(batch=batch):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            losses.append(0)
            return loss

        optimizer.step(evaluate)
    return weights_of(model, evaluations=len(losses))


@case(quick=True, double=True, tolerance=1e-9)
def closure_of_lbfgs(training):
    model, optimizer = start(
        training, lambda params: torch.optim.LBFGS(params, lr=0.3, max_iter=4, line_search_fn="strong_wolfe")
    )
    evaluations = []
    for batch in batches(training, 2):

        def evaluate(batch=batch):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            evaluations.append(0)
            return loss

        optimizer.step(evaluate)
    return weights_of(model, evaluations=len(evaluations))


class SharpnessAware(torch.optim.Optimizer):
    """Reads the gradients that exist before the closure."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure):
        params = self.param_groups[0]["params"]
        norm = torch.stack([param.grad.norm() for param in params]).norm()
        before = [param.clone() for param in params]
        for param in params:
            param.add_(param.grad, alpha=float(0.5 / norm))
        self.zero_grad()
        with torch.enable_grad():
            closure()
        for param, old in zip(params, before):
            param.copy_(old - 0.1 * param.grad)


def backward_before_closure(training, make, **keywords):
    model, optimizer = start(training, make, **keywords)
    weight = len(training.ranks) if "op" in keywords else 1  # the reduction is a sum over ranks
    for batch in batches(training, 4):

        def evaluate(batch=batch):
            loss = weight * loss_of(model, batch)
            loss.backward()
            return loss

        evaluate()
        optimizer.step(evaluate)
        optimizer.zero_grad()
    return weights_of(model)


@case(quick=True)
def backward_before_a_closure_of_sharpness_aware_minimization(training):
    return backward_before_closure(training, SharpnessAware)


@case()
def backward_before_a_closure_that_adds(training):
    return backward_before_closure(training, sgd)


@case(layers="1_KiB")
def backward_before_a_closure_that_adds_to_a_sum(training):
    return backward_before_closure(training, lambda params: sgd(params, 0.02), op=hvd.Sum)


@case()
def backward_of_two_passes_before_a_closure(training):
    model, optimizer = start(training, backward_passes_per_step=2)
    for number in range(3):
        first, second = batches(training, 2)
        loss_of(model, first).backward()

        def evaluate(batch=second):
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        optimizer.step(evaluate)
        optimizer.zero_grad()
    return weights_of(model)


@case(quick=True)
def steps_by_the_loss_of_the_closure(training):
    """Uses Polyak's step size."""

    class Polyak(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        @torch.no_grad()
        def step(self, closure):
            loss, params = float(closure()), self.param_groups[0]["params"]
            total = sum(float(param.grad.square().sum()) for param in params)
            for param in params:
                param.sub_(param.grad, alpha=min(0.1, loss / total))
            return loss

    model, optimizer = start(training, Polyak)
    losses = []
    for batch in batches(training, 4):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        losses.append(optimizer.step(lambda loss=loss: float(loss)))
    return weights_of(model, losses=[float(f"{loss:.5g}") for loss in losses])


# Passes.


@case(quick=True)
def accumulation(training):
    model, optimizer = start(training, backward_passes_per_step=2)
    for number, batch in enumerate(batches(training, 6)):
        (loss_of(model, batch) / 2).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    return weights_of(model)


@case()
def accumulation_with_clipping(training):
    model, optimizer = start(training, backward_passes_per_step=2)
    for number, batch in enumerate(batches(training, 6)):
        (loss_of(model, batch) / 2).backward()
        if number % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    return weights_of(model)


@case()
def a_write_between_passes(training):
    model, optimizer = start(training, backward_passes_per_step=2)
    for number, batch in enumerate(batches(training, 6)):
        loss_of(model, batch).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
        else:
            with torch.no_grad():
                for param in model.parameters():
                    param.grad.mul_(0.5)
    return weights_of(model)


@case(quick=True)
def two_passes_over_different_parameters(training):
    first, second = network(training), network(training)
    optimizer = distribute(training, sgd([*first.parameters(), *second.parameters()]), first, second)
    for batch in batches(training):
        optimizer.zero_grad()
        loss_of(first, batch).backward()
        F.l1_loss(second(batch[0]), batch[1]).backward()
        optimizer.step()
    return weights_of(first, second)


@case(quick=True)
def a_collective_between_backward_and_step(training):
    """Each rank uses a different layer in each step, and all ranks log the mean loss before the step."""
    first, second = network(training), network(training)
    optimizer = distribute(training, sgd([*first.parameters(), *second.parameters()]), first, second)
    logged = []
    for step in range(4):
        optimizer.zero_grad()
        losses = []
        for rank in training.ranks:
            own = cases.Training([rank], training.size, False, "1_KiB", training.double)
            own.inputs = training.inputs
            batch = [torch.from_numpy(each) for each in own.batch(step)]
            losses.append(loss_of((first, second)[(step + rank) % 2], batch))
        loss = sum(losses) / len(losses)
        loss.backward()
        logged.append((hvd.allreduce(loss.detach()) if training.is_distributed else loss).item())
        optimizer.step()
    return weights_of(first, second, losses=logged)


@case()
def gradient_penalty(training):
    model, optimizer = start(training)
    for x, y in batches(training):
        x.requires_grad_()
        optimizer.zero_grad()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (F.mse_loss(out, y) + slope.square().mean()).backward()
        optimizer.step()
    return weights_of(model)


@case(quick=True)
def recomputed_activations(training):
    from torch.utils.checkpoint import checkpoint

    model, optimizer = start(training)
    for x, y in batches(training):
        optimizer.zero_grad()
        hidden = checkpoint(model[:2], x.requires_grad_(), use_reentrant=True)
        F.mse_loss(model[2](hidden), y).backward()
        optimizer.step()
    return weights_of(model)


@case(quick=True, layers="1_KiB")
def losses_weighted_by_the_mean_number_of_rows(training):
    """Lightning averages these integers in a group; the mean is truncated."""
    model, optimizer = start(training)
    numbers = torch.tensor([[7 + 4 * rank, -8 - 3 * rank, 2**40 + rank] for rank in training.ranks])
    if training.is_distributed:
        import horovod.torch.distributed  # noqa: F401, registers the backend

        dist.init_process_group("horovod")
        dist.all_reduce(numbers, dist.ReduceOp.AVG)
        dist.destroy_process_group()
    mean = numbers.sum(0).div(len(training.ranks), rounding_mode="trunc")
    for batch in batches(training):
        optimizer.zero_grad()
        (loss_of(model, batch) * mean[0] / -mean[1]).backward()
        optimizer.step()
    return weights_of(model, numbers=mean.numpy())
