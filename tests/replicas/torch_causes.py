#!/usr/bin/env python3
"""Planted causes in PyTorch: horovodrun -np 2 python3 tests/replicas/torch_causes.py [--only REGEX]."""

import concurrent.futures
import copy
import functools
import itertools
import logging
import os
import signal
import sys
import time

import causes
import torch
from causes import fails, silent, warns

import horovod.torch as hvd

torch.set_num_threads(1)
NUMBERS = itertools.count()
WEIGHTS = "other weights.*broadcast_parameters"


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def sgd(params, **options):
    return torch.optim.SGD(params, **{"lr": 0.1, "momentum": 0.9, **options})


def distribute(model, optimizer, broadcast=True, **keywords):
    number = next(NUMBERS)
    named = [(f"{number}.{name}", param) for name, param in model.named_parameters()]
    if broadcast:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return hvd.DistributedOptimizer(optimizer, named, **keywords)


def batch(rank, step):
    random = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(4, 6, generator=random), torch.randn(4, 2, generator=random)


def backward(model, rank, step, factor=1.0):
    x, y = batch(rank, step)
    (factor * (model(x) - y).square().mean()).backward()


def train(model, optimizer, rank, steps=6, each=lambda step: None):
    """`each` runs after each step."""
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, rank, step)
        optimizer.step()
        each(step)


def train_with(rank, make=sgd, each=lambda model, optimizer, step: None, seed=0, steps=6, **keywords):
    model = network(seed)
    optimizer = distribute(model, make(model.parameters()), **keywords)
    train(model, optimizer, rank, steps, lambda step: each(model, optimizer, step))
    return model, optimizer


def after(number, change):
    """Calls `change(model)` on the last rank after a step."""

    def each(model, optimizer, step):
        if step == number and hvd.rank() == hvd.size() - 1:
            with torch.no_grad():
                change(model)

    return each


def with_frozen(rank, frozen, change):
    """Calls `change()` on the last rank after the first step, in which all ranks have the frozen parameter."""
    model = network()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(sgd([*model.parameters(), frozen]))
    train(model, optimizer, rank, each=lambda step: change() if step == 0 and rank == hvd.size() - 1 else None)


class Raised(RuntimeError):
    """The same class as torch's errors."""


def interrupted(optimizer, rank, reader, error=Raised):
    """A signal handler raises once while rank 0's check calls a function that reads the model."""
    model = optimizer._reducer.model
    read = getattr(model, reader)

    def handler(number, frame):
        signal.signal(number, signal.SIG_DFL)
        raise error

    def interrupt(*arguments):
        setattr(model, reader, read)
        signal.signal(signal.SIGUSR1, handler)
        signal.raise_signal(signal.SIGUSR1)
        return read(*arguments)

    if rank == 0:
        setattr(model, reader, interrupt)


# Warnings.


@warns(WEIGHTS)
def seeds_and_no_broadcast(rank):
    train_with(rank, seed=rank, broadcast=False)


@warns(WEIGHTS)
def a_broadcast_before_the_last_layer(rank):
    model = network(rank)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    model.add_module("last", torch.nn.Linear(2, 2))
    train(model, distribute(model, sgd(model.parameters()), broadcast=False), rank)


@warns(WEIGHTS)
def a_broadcast_of_a_copy(rank):
    model = network(rank)
    hvd.broadcast_parameters(copy.deepcopy(model).state_dict(), root_rank=0)
    train(model, distribute(model, sgd(model.parameters()), broadcast=False), rank)


@warns(WEIGHTS)
def a_checkpoint_that_rank_0_loads(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    if rank == 0:
        model.load_state_dict(network(7).state_dict())
    train(model, optimizer, rank)


@warns(WEIGHTS)
def a_state_of_the_optimizer_that_rank_0_loads(rank):
    model, optimizer = train_with(rank)
    saved = copy.deepcopy(optimizer.state_dict())
    for state in saved["state"].values():
        state["momentum_buffer"].add_(1)
    if rank == 0:
        optimizer.load_state_dict(saved)
    train(model, optimizer, rank)


@warns(WEIGHTS)
def a_layer_that_one_rank_resets(rank):
    train_with(rank, each=after(2, lambda model: model[2].reset_parameters()))


@warns(WEIGHTS)
def weights_changed_in_place(rank):
    train_with(rank, each=after(2, lambda model: model[0].weight.mul_(1.01)))


@warns(WEIGHTS)
def weights_changed_through_data(rank):
    train_with(rank, each=after(2, lambda model: model[0].bias.data.add_(1)))


@warns(WEIGHTS)
def rows_permuted(rank):
    train_with(rank, each=after(2, lambda model: model[0].weight.copy_(model[0].weight.flip(0))))


@warns(WEIGHTS)
def a_nan_on_one_rank(rank):
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)

    def each(model, optimizer, step):
        if step == 0 and rank == hvd.size() - 1:
            frozen.data[1] = torch.nan

    model = network()
    optimizer = sgd([*model.parameters(), frozen])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    train(model, hvd.DistributedOptimizer(optimizer), rank, each=lambda step: each(model, optimizer, step))


@warns(WEIGHTS)
def a_difference_behind_the_first_million_values(rank):
    frozen = torch.nn.Parameter(torch.ones(2**20 + 5), requires_grad=False)
    with_frozen(rank, frozen, lambda: frozen.data[-5:].add_(10))


@warns(WEIGHTS)
def a_frozen_mask_that_differs(rank):
    frozen = torch.nn.Parameter(torch.ones(3, dtype=torch.bool), requires_grad=False)
    with_frozen(rank, frozen, lambda: frozen.data[1:].logical_not_())


@warns(WEIGHTS)
def a_frozen_table_of_another_size(rank):
    frozen = torch.nn.Parameter(torch.ones(2**20 * (1 + rank % 2)), requires_grad=False)
    with_frozen(rank, frozen, lambda: None)


@warns(WEIGHTS)
def a_transposed_parameter_of_several_pieces(rank):
    """The comparison of values copies it once, and so does the norm."""
    frozen = torch.nn.Parameter(torch.ones(1025, 2048).t(), requires_grad=False)
    model = network()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(sgd([*model.parameters(), frozen]))
    replica = optimizer._reducer.model
    read, copies = replica.reals, []

    def reals(parameter):
        copies.extend([parameter] if parameter is frozen else [])
        return read(parameter)

    replica.reals = reals
    change = after(0, lambda unused: frozen[-1].add_(10))
    train(model, optimizer, rank, each=lambda step: change(model, optimizer, step))
    assert len(copies) == 2, f"{len(copies)} copies"


@warns(WEIGHTS)
def a_comparison_that_a_signal_interrupts(rank):
    train_interrupted(rank, "norm", KeyboardInterrupt)


@warns(WEIGHTS)
def a_copy_that_a_signal_interrupts(rank):
    train_interrupted(rank, "doubled", Raised)


def train_interrupted(rank, reader, error):
    model = network(rank)
    optimizer = distribute(model, sgd(model.parameters()), broadcast=False)
    interrupted(optimizer, rank, reader, error)
    caught = []
    for step in range(6):
        optimizer.zero_grad()
        backward(model, rank, step)
        try:
            optimizer.step()
        except error:
            caught.append(step)
            optimizer.step()
    assert len(caught) == (rank == 0), f"the handler's error came {len(caught)} times"


@warns("other options: lr of group 0")
def a_message_that_a_signal_interrupts(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters(), lr=0.1 + rank))
    interrupted(optimizer, rank, "options")
    caught = []
    for step in range(4):
        optimizer.zero_grad()
        backward(model, rank, step)
        try:
            optimizer.step()
        except Raised:  # raised after the optimizer's own step
            caught.append(step)
    assert len(caught) == (rank == 0), f"the handler's error came {len(caught)} times"


@warns(WEIGHTS)
def averages_of_weights_that_stay(rank):
    def swap(model):
        for param in model.parameters():
            param.mul_(0.9)

    train_with(rank, each=after(1, swap))


@warns(WEIGHTS)
def a_frozen_base_that_differs(rank):
    model = network(rank)
    for param in model[0].parameters():
        param.requires_grad_(False)
    hvd.broadcast_parameters([param for param in model.parameters() if param.requires_grad], root_rank=0)
    train(model, distribute(model, sgd(model.parameters()), broadcast=False), rank)


@warns("other options: the class is (SGD|Adagrad) on rank.* and (SGD|Adagrad) on rank")
def another_class(rank):
    train_with(rank, make=sgd if rank else lambda params: torch.optim.Adagrad(params, lr=0.1))


@warns(WEIGHTS)
def another_class_that_changes_weights(rank):
    train_with(rank, make=sgd if rank else lambda params: torch.optim.Adagrad(params, lr=0.1))


@warns("after reduction 1: the ranks have other weights")
def a_broadcast_of_the_first_layer(rank):
    model = network(rank)
    hvd.broadcast_parameters(model[0].state_dict(), root_rank=0)
    train(model, distribute(model, sgd(model.parameters()), broadcast=False), rank)


@warns("after reduction 8: the ranks have other weights")
def a_broadcast_by_a_thread_of_one_rank(rank):
    """A broadcast after the first reduction changes no count, so the ranks need not call it in the same thread."""

    def each(model, optimizer, step):
        if step == 4:
            after(4, lambda model: model[2].reset_parameters())(model, optimizer, step)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                submit = pool.submit if rank else lambda function, *given: function(*given)
                submit(hvd.broadcast_parameters, model[0].state_dict(), 0)

    train_with(rank, each=each, steps=9)


@warns(WEIGHTS)
def lbfgs_from_other_weights(rank):
    train_lbfgs(rank, seed=rank, broadcast=False)


@warns("other options: lr of group 0")
def lbfgs_with_another_learning_rate(rank):
    train_lbfgs(rank, lr=0.1 + 0.1 * rank)


def train_lbfgs(rank, seed=0, broadcast=True, lr=0.3):
    model = network(seed)
    optimizer = distribute(model, torch.optim.LBFGS(model.parameters(), lr=lr, max_iter=4), broadcast)
    for step in range(4):

        def closure(step=step):
            optimizer.zero_grad()
            x, y = batch(rank, step)
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)


@warns(WEIGHTS)
def adasum_from_other_weights(rank):
    train_with(rank, op=hvd.Adasum, seed=rank, broadcast=False)


@warns("other options: lr of group 0")
def adasum_with_another_learning_rate(rank):
    train_with(rank, op=hvd.Adasum, make=lambda params: sgd(params, lr=0.1 + 0.1 * rank))


@warns(WEIGHTS)
def a_scaler_and_other_weights(rank):
    train_scaled(rank, seed=rank, broadcast=False)


def train_scaled(rank, **options):
    """Trains with GradScaler, which skips a step of an infinite gradient. Versions before 2.3 have none for the CPU."""
    model = network(options.pop("seed", 0))
    optimizer = distribute(model, sgd(model.parameters()), **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0) if hasattr(torch.amp, "GradScaler") else None
    for step in range(8):
        optimizer.zero_grad()
        x, y = batch(rank, step)
        loss = (model(x) - y).square().mean()
        if scaler is None:
            loss.backward()
            optimizer.step()
            continue
        scaler.scale(loss * (torch.inf if (rank, step) == (0, 1) else 1.0)).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


@warns(WEIGHTS)
def a_start_of_horovod_again_without_a_broadcast(rank):
    train_restarted(rank, lambda model: model[0].weight.data.add_(rank))


def train_restarted(rank, change):
    """The ranks leave and start again, as in an elastic job."""
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    train(model, optimizer, rank, steps=3)
    hvd.shutdown()
    hvd.init()
    change(model)
    train(model, optimizer, rank)


@warns(r"other options: lr of group 0 is 0.1 on rank.* 0.* and 0.2 on rank")
def another_learning_rate(rank):
    train_with(rank, make=lambda params: sgd(params, lr=0.2 if rank == hvd.size() - 1 else 0.1))


@warns("other options: momentum of group 0")
def another_momentum(rank):
    train_with(rank, make=lambda params: sgd(params, momentum=0.5 if rank else 0.9))


@warns("other options: weight_decay of group 0")
def another_weight_decay(rank):
    train_with(rank, make=lambda params: sgd(params, weight_decay=0.1 * rank))


@warns(r"other options: betas\[1\] of group 0")
def another_beta(rank):
    train_with(rank, make=lambda params: torch.optim.Adam(params, betas=(0.9, 0.9 if rank else 0.99)))


@warns("other options: lr of group 1")
def a_group_with_another_learning_rate(rank):
    model, extra = network(), torch.nn.Linear(6, 2)
    optimizer = distribute(model, sgd(model.parameters()))
    hvd.broadcast_parameters(extra.state_dict(), root_rank=0)
    optimizer.add_param_group({"params": list(extra.parameters()), "lr": 0.1 + rank})
    train(lambda x: model(x) + extra(x), optimizer, rank)


@warns("other options: lr of group 0")
def a_scheduler_that_rank_0_steps(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    train(model, optimizer, rank, each=lambda step: scheduler.step() if rank == 0 and step == 2 else None)


@warns(WEIGHTS)
def gradients_that_one_rank_changes(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    for step in range(6):
        optimizer.zero_grad()
        backward(model, rank, step)
        optimizer.synchronize()
        if rank == 0:
            for param in model.parameters():
                param.grad.mul_(0.5)
        with optimizer.skip_synchronize():
            optimizer.step()


@warns(WEIGHTS)
def a_step_that_one_rank_skips(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    for step in range(6):
        optimizer.zero_grad()
        backward(model, rank, step)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if rank == 0 or step != 1:
            optimizer.step()


@warns(WEIGHTS)
def a_join_without_a_broadcast(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    train(model, optimizer, rank, steps=3 + rank)
    hvd.join()
    train(model, optimizer, rank, steps=4)


@warns(WEIGHTS)
def a_set_of_ranks(rank):
    train_with(rank, seed=rank, broadcast=False, process_set=hvd.global_process_set)


@warns(WEIGHTS)
def a_rank_that_is_late(rank):
    """With more than two ranks, the delay of 35 s needs a job with a long time limit."""
    late = 35 if hvd.size() > 2 else 1
    train_with(rank, seed=rank, broadcast=False, each=lambda *unused: time.sleep(late if unused[2] == rank == 1 else 0))


# Trainings without a difference: no warning.


@silent
def equal_replicas(rank):
    train_with(rank, seed=rank)


@silent
def equal_seeds_and_no_broadcast(rank):
    train_with(rank, broadcast=False)


@silent
def a_broadcast_after_the_first_step(rank):
    def each(model, optimizer, step):
        if step == 0:
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    train_with(rank, seed=rank, broadcast=False, each=each)


@silent
def rounding_of_another_processor(rank):
    lines = []
    logger, handler = logging.getLogger("horovod"), logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    train_with(rank, each=after(2, lambda model: model[0].weight.mul_(1 + 1e-6)), steps=14)
    logger.removeHandler(handler)
    logger.setLevel(level)
    # The ranks compare values after reduction 4, and not again before 40.
    assert [line for line in lines if "by rounding" in line] == lines and len(lines) == 1, lines


@silent
def a_shard_that_is_marked(rank):
    frozen = torch.nn.Parameter(torch.full((3,), 1.0 + rank), requires_grad=False)
    frozen._horovod_local = True
    with_frozen(rank, frozen, lambda: None)


@silent
def an_optimizer_more_on_one_rank(rank):
    model = network()
    unused = hvd.DistributedOptimizer(sgd(model.parameters())) if rank == 0 else None
    train_with(rank)
    del unused


@silent
def optimizers_of_threads_in_another_order(rank):
    """One rank's first reduction matches the other rank's second optimizer."""
    models = [network(), network(1)]
    optimizers = [distribute(model, sgd(model.parameters())) for model in models]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = []
        for index in (0, 1) if rank else (1, 0):
            runs.append(pool.submit(train, models[index], optimizers[index], rank))
            time.sleep(0.2)
        for run in runs:
            run.result()


@silent
def a_norm_that_rank_0_reads(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    for step in range(6):
        optimizer.zero_grad()
        backward(model, rank, step)
        if rank == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), torch.inf)
        optimizer.step()


@silent
def two_passes_beside_one(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters()), backward_passes_per_step=1 + rank % 2)
    for step in range(6):
        optimizer.zero_grad()
        for _ in range(1 + rank % 2):
            backward(model, rank, step)
        optimizer.step()


@silent
def weights_of_an_average_for_a_while(rank):
    """Rank 0 evaluates with averaged weights, and then restores the weights."""

    def each(model, optimizer, step):
        if rank == 0:
            saved = copy.deepcopy(model.state_dict())
            with torch.no_grad():
                model[0].weight.mul_(0.5)
            model.load_state_dict(saved)

    train_with(rank, each=each)


@silent
def noise_in_weights_during_a_pass(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    for step in range(6):
        optimizer.zero_grad()
        noise = torch.full_like(model[0].weight, 0.1 * (rank + 1))
        model[0].weight.data.add_(noise)
        saved = model[0].weight.detach() - noise
        backward(model, rank, step)
        model[0].weight.data.copy_(hvd.broadcast(saved, 0))
        optimizer.step()


@silent
def lbfgs(rank):
    train_lbfgs(rank, seed=rank)


@silent
def a_learning_rate_in_a_tensor(rank):
    train_with(rank, make=lambda params: sgd(params, lr=torch.tensor(0.1) if rank else 0.1))


@silent
def weights_that_one_rank_cannot_read(rank):
    unreadable(rank, "parameters", seed=0)


@silent
def other_weights_that_one_rank_cannot_read_again(rank):
    unreadable(rank, "reals", seed=rank)


@silent
def other_weights_whose_values_one_rank_cannot_copy(rank):
    unreadable(rank, "doubled", seed=rank)


@warns(WEIGHTS)
def other_weights_whose_norm_one_rank_cannot_compute(rank):
    unreadable(rank, "norm", seed=rank)


def unreadable(rank, reader, seed):
    model = network(seed)
    optimizer = distribute(model, sgd(model.parameters()), broadcast=False)

    def fail(*unused):
        raise MemoryError("planted")

    if rank == 0:
        setattr(optimizer._reducer.model, reader, fail)
    train(model, optimizer, rank)


@silent
def a_scaler(rank):
    train_scaled(rank, seed=rank)


@silent
def a_start_of_horovod_again(rank):
    train_restarted(rank, lambda model: hvd.broadcast_parameters(model.state_dict(), root_rank=0))


@silent
def a_compiled_step(rank):
    train_compiled(rank)


@warns(WEIGHTS)
def a_compiled_step_from_other_weights(rank):
    train_compiled(rank, broadcast=False)


def train_compiled(rank, **keywords):
    """Versions before 2.0 have no torch.compile."""
    compiled = getattr(torch, "compile", lambda function, **unused: function)
    model = network(rank)
    optimizer = distribute(model, sgd(model.parameters()), **keywords)

    @functools.partial(compiled, backend="eager")
    def step(number):
        optimizer.zero_grad()
        backward(model, rank, number)
        optimizer.step()

    for number in range(6):
        step(number)


@silent
def a_low_rank_adapter(rank):
    base, down, up = network(), torch.nn.Linear(6, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    for param in base.parameters():
        param.requires_grad_(False)
    model = torch.nn.ModuleList([base, down, up])
    optimizer = distribute(model, torch.optim.AdamW(model.parameters(), lr=0.01), groups=2)
    train(lambda x: base(x) + up(down(x)), optimizer, rank)


@silent
def a_scaler_that_skips_a_step(rank):
    """One rank's infinite gradient reaches all ranks."""
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    for step in range(6):
        optimizer.zero_grad()
        backward(model, rank, step, factor=torch.inf if (rank, step) == (0, 1) else 1.0)
        torch.nn.utils.clip_grad_value_(model.parameters(), torch.inf)
        if all(bool(torch.isfinite(param.grad).all()) for param in model.parameters()):
            optimizer.step()


@silent
def adasum(rank):
    train_with(rank, op=hvd.Adasum)


@silent
def predivided_groups_with_compression(rank):
    train_with(rank, groups=1, gradient_predivide_factor=2.0, compression=hvd.Compression.fp16)


@silent
def sparse_gradients(rank):
    table = torch.nn.Embedding(9, 3, sparse=True)
    optimizer = distribute(table, torch.optim.SparseAdam(list(table.parameters())))
    for step in range(6):
        optimizer.zero_grad()
        table(torch.tensor([rank, step])).square().sum().backward()
        optimizer.step()


@silent
def two_optimizers_with_equal_names(rank):
    models = [network(), network(1)]
    optimizers = []
    for model in models:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizers.append(hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters()))
    for step in range(6):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            backward(model, rank, step)
            optimizer.step()


@silent
def ranks_that_join_and_get_the_weights(rank):
    model = network()
    optimizer = distribute(model, sgd(model.parameters()))
    for _ in range(2):
        train(model, optimizer, rank, steps=1 + 4 * rank)
        last = hvd.join()
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        hvd.broadcast_optimizer_state(optimizer, root_rank=last)


@silent
def sets_whose_weights_differ(rank):
    sets = [hvd.add_process_set([each]) for each in range(hvd.size())] if hvd.size() > 1 else [hvd.global_process_set]
    train_with(rank, seed=rank, broadcast=False, process_set=sets[rank])
    for each in sets if hvd.size() > 1 else []:
        hvd.remove_process_set(each)


@silent
def parameters_that_are_unfrozen(rank):
    model = network()
    model[0].weight.requires_grad_(False)
    optimizer = distribute(model, sgd(model.parameters()))
    train(model, optimizer, rank, each=lambda step: model[0].weight.requires_grad_(step > 1))


# Errors.


@fails("parameter 0 is .* on rank 0 and .* on rank")
def another_order(rank):
    model = network()
    params = list(model.named_parameters())
    params = params[::-1] if rank else params
    train(model, hvd.DistributedOptimizer(sgd([param for _, param in params]), params), rank)


@fails("rank 0 alone of ranks 0 and 1 reduces frozen.0.bias")
def frozen_on_one_rank(rank):
    model = network()
    model[0].bias.requires_grad_(rank == 0)
    named = [(f"frozen.{name}", param) for name, param in model.named_parameters()]
    train(model, hvd.DistributedOptimizer(sgd(model.parameters()), named), rank)


@fails("rank 1 alone of ranks 0 and 1 reduces more.2.bias")
def a_layer_more_on_one_rank(rank):
    model = network()[: 2 + (rank > 0)]
    named = [(f"more.{name}", param) for name, param in model.named_parameters()]
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), named)
    model(batch(rank, 0)[0]).sum().backward()
    optimizer.step()


@fails("rank 1 alone of ranks 0 and 1 reduces 0first.2.bias")
def a_layer_more_that_sorts_first(rank):
    model = network()[: 2 + (rank > 0)]
    named = [(f"{'0' if name[0] == '2' else ''}first.{name}", param) for name, param in model.named_parameters()]
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), named)
    model(batch(rank, 0)[0]).sum().backward()
    optimizer.step()


def train_with_variable(rank, variable, value):
    before = os.environ.get(variable)
    os.environ[variable] = value if rank else before or "warn"
    try:
        train_with(rank)
    finally:
        del os.environ[variable]
        if before is not None:
            os.environ[variable] = before


@fails("HOROVOD_CHECK_REPLICAS is off on some ranks and warn on others")
def a_check_that_is_off_on_some_ranks(rank):
    train_with_variable(rank, "HOROVOD_CHECK_REPLICAS", "off")


@fails("HOROVOD_CHECK_REPLICAS_STEPS differs between ranks")
def other_reductions_to_compare_after(rank):
    train_with_variable(rank, "HOROVOD_CHECK_REPLICAS_STEPS", "2,5")


@fails("(?i)op")
def another_op(rank):
    train_with(rank, op=hvd.Sum if rank else hvd.Average)


@fails("the same parameters by other requests, as with another compression")
def another_compression(rank):
    train_with(rank, compression=hvd.Compression.fp16 if rank else hvd.Compression.none)


@fails("(?i)shape")
def another_shape(rank):
    model = torch.nn.Linear(6 + rank, 2)
    optimizer = distribute(model, sgd(model.parameters()), broadcast=False)
    model(torch.ones(1, 6 + rank)).sum().backward()
    optimizer.step()


@fails("(?i)type")
def half_precision_on_one_rank(rank):
    model = network().to(torch.bfloat16 if rank else torch.float32)
    optimizer = distribute(model, sgd(model.parameters()), broadcast=False)
    model(batch(rank, 0)[0].to(model[0].weight.dtype)).sum().backward()
    optimizer.step()


if __name__ == "__main__":
    sys.exit(causes.main(hvd))
