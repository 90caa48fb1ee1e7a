"""Writes to gradients between backward() and step(): correct, as in one process, or refused on every rank.

backward reduces layers of more than 4 MiB, step() reduces those of 1 KiB: both kinds must agree.
"""

import concurrent.futures
import contextlib
import os
import threading
import unittest.mock
import warnings
import weakref

from torch.nn.utils import clip_grad_norm_ as clip_imported_before  # a name that exists before horovod.torch

import rank_case
from rank_case import RankCase, hvd, torch

WIDTHS = [16, 1040]  # 1 KiB, and more than 4 MiB
HAS_CPU_SCALER = hasattr(torch.amp, "GradScaler") if hasattr(torch, "amp") else False


def make_model(width, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, 2),
    )


def data(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(5, 4, generator=generator)


def loss_of(model, rank, step):
    return model(data(rank, step)).square().mean()


def plain(parameters, **_):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


class TrainingCase(RankCase):
    def distributed(self, model, **arguments):
        return hvd.DistributedOptimizer(plain(model.parameters()), model.named_parameters(), **arguments)

    def assert_same_weights(self, model, reference, message, tolerance=1e-6):
        for (name, got), want in zip(model.named_parameters(), reference.parameters()):
            self.assertLess((got - want).abs().max().item(), tolerance, f"{message}: {name}")
            rows = hvd.allgather(got.detach().reshape(1, -1))
            self.assertTrue(all(torch.equal(row, rows[0]) for row in rows), f"{message}: {name} differs")

    def assert_equals_one_process(self, train, message, width, scaler=lambda: None, **arguments):
        """`train(model, optimizer, scaler, losses)` makes one step; `losses` has the loss of each pass."""
        model, reference = make_model(width), make_model(width)
        optimizer, alone = self.distributed(model, **arguments), plain(reference.parameters())
        mine, theirs = scaler(), scaler()
        passes = arguments.get("backward_passes_per_step", 1)
        count = self.size if arguments.get("op", hvd.Average) == hvd.Average else 1
        for step in range(3):
            numbers = [step * passes + index for index in range(passes)]
            optimizer.zero_grad()
            train(
                model, optimizer, mine, [lambda number=number: loss_of(model, self.rank, number) for number in numbers]
            )
            alone.zero_grad()
            train(
                reference,
                alone,
                theirs,
                [
                    lambda number=number: sum(loss_of(reference, rank, number) for rank in range(self.size)) / count
                    for number in numbers
                ],
            )
        self.assert_same_weights(model, reference, message)
        if mine is not None:
            self.assertEqual(mine.get_scale(), theirs.get_scale(), message)

    def refused(self, optimizer, pattern, call=None):
        with self.assertRaisesRegex(AssertionError, pattern):
            (call or optimizer.step)()
        optimizer.zero_grad()


class GradientWritesTest(TrainingCase):
    def test_clipping_is_that_of_one_process(self):
        def clip(function):
            def train(model, optimizer, _, losses):
                for loss in losses:
                    loss().backward()
                function(model)
                optimizer.step()

            return train

        functions = {
            "norm": lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02),
            "imported before": lambda model: clip_imported_before(list(model.parameters()), max_norm=0.02),
            "one": lambda model: torch.nn.utils.clip_grad_norm_(parameters=model[2].weight, max_norm=0.01),
            "value": lambda model: torch.nn.utils.clip_grad_value_(model.parameters(), 1e-4),
        }
        if hasattr(torch.nn.utils, "get_total_norm"):
            functions["total norm"] = lambda model: torch.nn.utils.clip_grads_with_norm_(
                model.parameters(), 0.02, torch.nn.utils.get_total_norm([param.grad for param in model.parameters()])
            )
        kinds = [
            {},
            {"groups": 2},
            {"compression": hvd.Compression.none, "backward_passes_per_step": 2},
            {"op": hvd.Sum},
        ]
        for width in WIDTHS:
            for name, function in functions.items():
                for arguments in kinds if name == "norm" and width == 16 else [{}]:
                    self.assert_equals_one_process(clip(function), f"{name} {width} {arguments}", width, **arguments)

    def test_clipping_after_synchronize_and_in_closures(self):
        def documented(model, optimizer, _, losses):
            losses[0]().backward()
            if hasattr(optimizer, "skip_synchronize"):
                optimizer.synchronize()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
                with warnings.catch_warnings(), optimizer.skip_synchronize():
                    warnings.simplefilter("error")
                    optimizer.step()
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
                optimizer.step()

        def closure(model, optimizer, _, losses):
            def evaluate():
                optimizer.zero_grad()
                loss = losses[0]()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
                return loss

            optimizer.step(evaluate)

        for width in WIDTHS:
            for op in (hvd.Average, hvd.Sum):
                self.assert_equals_one_process(documented, f"documented {width}", width, op=op)
                self.assert_equals_one_process(closure, f"closure {width}", width, op=op)

    def test_clipping_in_each_of_several_passes(self):
        def train(model, optimizer, _, losses):
            for loss in losses:
                loss().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
            optimizer.step()

        for width in WIDTHS:
            self.assert_equals_one_process(train, f"{width}", width, backward_passes_per_step=2)
        if self.size < 2:
            return
        model = make_model(16)
        optimizer = self.distributed(model, op=hvd.Sum, backward_passes_per_step=2)
        loss_of(model, self.rank, 0).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
        loss_of(model, self.rank, 1).backward()
        self.refused(
            optimizer,
            "would be multiplied.*optimizer.zero_grad",
            lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02),
        )

    def test_adasum_and_a_grad_scaler_agree_on_the_step(self):
        if not HAS_CPU_SCALER:
            self.skipTest("this torch unscales on GPUs only")
        model = make_model(16)
        optimizer = self.distributed(model, op=hvd.Adasum)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        before = [param.detach().clone() for param in model.parameters()]
        loss = loss_of(model, self.rank, 0) * (float("inf") if self.rank == 0 else 1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        self.assertEqual(scaler.get_scale(), 512.0)
        for param, was in zip(model.parameters(), before):
            self.assertTrue(torch.equal(param, was))

    def test_other_writes_are_refused_on_every_rank(self):
        if self.size < 2:
            self.skipTest("one rank reduces nothing")

        def halve(param):
            with torch.no_grad():
                param.grad.mul_(0.5)

        def replace(param):
            param.grad = param.grad * 0.5

        def drop(param):
            param.grad = None

        for width in WIDTHS:
            kinds = (
                {},
                {"groups": 2},
                {"compression": hvd.Compression.fp16},
                {"op": hvd.Sum},
                {"op": hvd.Max},
                {"backward_passes_per_step": 2},
            )
            for arguments in kinds[: 6 if width == 16 else 3]:
                model = make_model(width)
                optimizer = self.distributed(model, **arguments)
                for write in (None, halve, replace, drop):
                    for writer in (self.rank, self.size - 1):  # all ranks, and one rank
                        for index in range(arguments.get("backward_passes_per_step", 1)):
                            loss_of(model, self.rank, index).backward()
                        if write is not None and self.rank == writer:
                            write(model[2].weight)
                        if write is None:
                            optimizer.step()
                            optimizer.zero_grad()
                        else:
                            self.refused(
                                optimizer,
                                r"The gradient of 2\.weight was written on rank .*"
                                r"synchronize\(\).*skip_synchronize",
                            )

    def test_sparse_gradients(self):
        if self.size < 2:
            self.skipTest("one rank reduces nothing")
        for arguments in ({}, {"sparse_as_dense": True}):
            table = torch.nn.Embedding(10, 4, sparse=True)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(table.parameters(), lr=0.1), table.named_parameters(), **arguments
            )
            for writes in (False, True, False):
                table(torch.tensor([self.rank, 3])).sum().backward()
                if writes:
                    table.weight.grad = table.weight.grad * 2
                    self.refused(optimizer, "The gradient of weight was written")
                else:
                    optimizer.step()
                    optimizer.zero_grad()

    def test_a_copy_shows_writes_without_a_version(self):
        if self.size < 2:
            self.skipTest("one rank reduces nothing")
        os.environ["HOROVOD_TORCH_CHECK_GRADIENTS"] = "1"
        try:
            optimizers = [
                (model, self.distributed(model, **arguments))
                for width in WIDTHS
                for arguments in ({}, {"groups": 2})
                for model in [make_model(width)]
            ]
        finally:
            del os.environ["HOROVOD_TORCH_CHECK_GRADIENTS"]
        for model, optimizer in optimizers:
            for write in (None, lambda grad: grad.data.mul_(0.5), lambda grad: grad.numpy().fill(0), None):
                loss_of(model, self.rank, 0).backward()
                if write is None:
                    optimizer.step()
                    optimizer.zero_grad()
                else:
                    write(model[2].weight.grad)
                    self.refused(optimizer, r"The gradient of 2\.weight was written")

    def test_copies_show_writes_without_a_version_after_a_step(self):
        for write in (
            lambda param, grad: param.grad.data.copy_(grad),
            lambda param, grad: param.grad.numpy().put(0, 7),
        ):
            model, reference = make_model(16), make_model(16)
            with unittest.mock.patch.dict(os.environ, HOROVOD_TORCH_CHECK_GRADIENTS="1"):
                optimizer, alone = self.distributed(model), plain(reference.parameters())
            for step in range(3):
                for each, ranks in (model, [self.rank]), (reference, range(self.size)):
                    params = list(each.parameters())
                    loss = sum(loss_of(each, rank, step) for rank in ranks) / len(ranks)
                    for param, grad in zip(params, torch.autograd.grad(loss, params)):
                        if step == 0:
                            param.grad = grad
                        else:
                            write(param, grad)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
                self.assertEqual(len(caught), int(step > 0 and self.size > 1), caught)
                torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.02)
                optimizer.step()
                alone.step()
            self.assert_same_weights(model, reference, "written after a step")

    def test_legal_writes_are_not_refused(self):
        model, reference = make_model(1040), make_model(1040)
        other = make_model(16)
        optimizer = self.distributed(model, backward_passes_per_step=2)
        second = hvd.DistributedOptimizer(plain(other.parameters()))
        alone = plain(reference.parameters())
        for step in range(3):
            for param in model.parameters():
                param.grad = None
            loss_of(model, self.rank, 2 * step).backward()
            for param in model.parameters():  # written before the last pass
                param.grad.mul_(2)
            loss_of(other, self.rank, step).backward()
            loss_of(model, self.rank, 2 * step + 1).backward()
            loss_of(other.eval(), self.rank, step)
            second.step()
            second.zero_grad()
            optimizer.step()
            alone.zero_grad()
            for rank in range(self.size):
                (2 * loss_of(reference, rank, 2 * step) / self.size).backward()
                (loss_of(reference, rank, 2 * step + 1) / self.size).backward()
            alone.step()
        self.assert_same_weights(model, reference, "accumulated")

    def test_hooks_before_ours_and_checkpoints(self):
        from torch.utils.checkpoint import checkpoint

        model, reference = make_model(1040), make_model(1040)
        for each in (model, reference):
            for param in each.parameters():
                param.register_hook(lambda grad: grad * 0.5)
        optimizer, alone = self.distributed(model), plain(reference.parameters())
        for step in range(2):
            optimizer.zero_grad()
            inner = model[1](model[0](data(self.rank, step)))
            checkpoint(model[2:], inner, use_reentrant=True).square().mean().backward()
            optimizer.step()
            alone.zero_grad()
            (sum(loss_of(reference, rank, step) for rank in range(self.size)) / self.size).backward()
            alone.step()
        self.assert_same_weights(model, reference, "hooks")

    def test_ranks_whose_graphs_differ_meet_in_a_collective_before_the_step(self):
        for width in WIDTHS:
            model, reference = make_model(width), make_model(width)
            extra, twin = make_model(16, 1), make_model(16, 1)
            optimizer = hvd.DistributedOptimizer(plain([*model.parameters(), *extra.parameters()]))
            alone = plain([*reference.parameters(), *twin.parameters()])

            def loss(base, more, rank, step):
                both = (step + rank) % 2
                return loss_of(base, rank, step) + (loss_of(more, rank, step) if both else 0)

            for step in range(4):
                optimizer.zero_grad()
                mine = loss(model, extra, self.rank, step)
                mine.backward()
                hvd.allreduce(mine.detach())
                torch.nn.utils.clip_grad_norm_([*model.parameters(), *extra.parameters()], 0.02)
                optimizer.step()
                alone.zero_grad()
                (sum(loss(reference, twin, rank, step) for rank in range(self.size)) / self.size).backward()
                torch.nn.utils.clip_grad_norm_([*reference.parameters(), *twin.parameters()], 0.02)
                alone.step()
            self.assert_same_weights(model, reference, f"{width}")
            self.assert_same_weights(extra, twin, f"extra {width}")

    def test_two_passes_over_different_parameters(self):
        for width in WIDTHS:
            models = [make_model(width), make_model(width, 1)]
            references = [make_model(width), make_model(width, 1)]
            optimizer = hvd.DistributedOptimizer(plain([p for m in models for p in m.parameters()]))
            alone = plain([p for m in references for p in m.parameters()])
            for step in range(3):
                optimizer.zero_grad()
                for index in (0, 1) if self.rank % 2 else (1, 0):
                    loss_of(models[index], self.rank, step).backward()
                hvd.allreduce(torch.ones(1))
                optimizer.step()
                alone.zero_grad()
                for model in references:
                    (sum(loss_of(model, rank, step) for rank in range(self.size)) / self.size).backward()
                alone.step()
            for model, reference in zip(models, references):
                self.assert_same_weights(model, reference, f"{width}")

    def test_one_rank_reads_the_norm_after_the_step(self):
        weights = []
        for logs in (False, True):
            torch.manual_seed(3)
            model = torch.nn.Linear(4, 1)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), 0.1), model.named_parameters(), op=hvd.Sum
            )
            for step in range(4):
                optimizer.zero_grad()
                model(torch.full((1, 4), float(step + 1 + self.rank))).sum().backward()
                optimizer.step()
                if logs and self.rank == 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            weights.append(model.weight.detach().clone())
        self.assertTrue(torch.equal(*weights))

    def test_one_rank_reads_the_norm_after_the_pass_of_another_model(self):
        """Logs the gradients of a GAN's generator after the pass of its discriminator."""
        for width in WIDTHS:
            weights = []
            for logs in (False, True):
                models = [make_model(width, seed) for seed in (3, 4)]
                optimizers = [self.distributed(model, op=hvd.Sum) for model in models]
                other = torch.nn.Linear(4, 1)  # a model without a distributed optimizer
                for step in range(3):
                    for index in (0, 1):
                        optimizers[index].zero_grad()
                        loss_of(models[index], self.rank, step).backward()
                        if logs and self.rank == 0 and index == 1:
                            torch.nn.utils.clip_grad_norm_(models[0].parameters(), 1e9)
                        optimizers[index].step()
                    other(torch.ones(1, 4)).sum().backward()
                    if logs and self.rank == 0:
                        for model in models:
                            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
                weights.append([param.detach().clone() for model in models for param in model.parameters()])
            for name, (got, want) in enumerate(zip(*weights)):
                self.assertTrue(torch.equal(got, want), f"{width}: parameter {name}")

    def test_gradients_without_a_pass_of_torch_are_reduced_before_they_are_read(self):
        def assign(model, loss):
            for param, grad in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
                param.grad = grad

        def write(model, loss):  # the tensors stay, and their values change
            for param, grad in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
                param.grad = grad if param.grad is None else param.grad.copy_(grad)

        def run_engine(model, loss):  # no gradient for the first parameter, which has the small layers' hook
            one = torch.ones_like(loss)
            torch.autograd.Variable._execution_engine.run_backward(
                (loss,), (one,), False, False, (), allow_unreachable=True, accumulate_grad=True
            )

        def clip(model):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)

        def clip_by_total_norm(model):
            norm = torch.nn.utils.get_total_norm([param.grad for param in model.parameters() if param.grad is not None])
            torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.02, norm)

        readers = [clip, lambda model: torch.nn.utils.clip_grad_value_(model.parameters(), 1e-4)]
        if hasattr(torch.nn.utils, "get_total_norm"):
            readers.append(clip_by_total_norm)
        for width in WIDTHS:
            for make in (assign, write, run_engine):
                for read in readers[: 3 if width == 16 else 1]:
                    model, reference = make_model(width), make_model(width)
                    unused = torch.nn.Parameter(torch.zeros(3))
                    optimizer = hvd.DistributedOptimizer(plain([unused, *model.parameters()]))
                    alone = plain(reference.parameters())
                    for step in range(3):
                        model.zero_grad()  # unlike the optimizer's method, does not mark a step's beginning
                        make(model, loss_of(model, self.rank, step))
                        read(model)
                        optimizer.step()
                        reference.zero_grad()
                        make(reference, sum(loss_of(reference, rank, step) for rank in range(self.size)) / self.size)
                        read(reference)
                        alone.step()
                    self.assert_same_weights(model, reference, f"{make.__name__} {width}")

    def test_one_rank_reads_the_norm_after_a_step_that_writes_gradients(self):
        """Scales as LARS does. A second call reads the values of the first."""

        class Writes(torch.optim.SGD):
            def step(self, closure=None):
                for param in self.param_groups[0]["params"]:
                    param.grad = param.grad + 0.1 * param.detach()
                super().step()
                self.param_groups[0]["params"][0].grad.mul_(0.5)

        for width in WIDTHS:
            model = make_model(width)
            optimizer = hvd.DistributedOptimizer(Writes(model.parameters(), lr=0.05), op=hvd.Sum)
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, self.rank, step).backward()
                optimizer.step()
                if self.rank == 0:
                    for _ in range(2):
                        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
                    model.zero_grad(set_to_none=False)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            self.assert_same_weights(model, model, f"{width}")

    def test_the_record_of_a_step_keeps_no_gradient_alive(self):
        model = make_model(16)
        optimizer = self.distributed(model)
        loss_of(model, self.rank, 0).backward()
        optimizer.step()
        gradient = weakref.ref(model[0].weight.grad)
        model.zero_grad(set_to_none=True)
        self.assertIsNone(gradient())

    def test_a_rank_without_gradients_clips_after_the_model_dropped_them(self):
        for width in WIDTHS:
            for drop in (True, False):
                model, reference = make_model(width), make_model(width)
                optimizer, alone = self.distributed(model), plain(reference.parameters())
                for step in range(3):
                    for each in (model, reference):
                        each.zero_grad(set_to_none=drop)
                    if self.rank == 0 or step == 0:
                        loss_of(model, self.rank, step).backward()
                    else:  # a pass that does not reach the model
                        (torch.ones(1, requires_grad=True) * 2).backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
                    optimizer.step()
                    ranks = range(self.size) if step == 0 else [0]
                    (sum(loss_of(reference, rank, step) for rank in ranks) / self.size).backward()
                    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.02)
                    alone.step()
                self.assert_same_weights(model, reference, f"{width} {drop}")

    def test_a_rank_that_assigns_nothing_and_clips_is_named_on_all(self):
        if self.size < 2:
            self.skipTest("one rank has no others")
        for width in WIDTHS:
            for drop in (True, False):
                model = make_model(width)
                optimizer = self.distributed(model)
                for step in range(2):
                    model.zero_grad(set_to_none=drop)
                    if self.rank == 0 or step == 0:
                        params = list(model.parameters())
                        for param, grad in zip(params, torch.autograd.grad(loss_of(model, self.rank, step), params)):
                            param.grad = grad
                    with contextlib.ExitStack() as stack:
                        if step == 1:
                            stack.enter_context(self.assertRaisesRegex(AssertionError, "Rank 1 .* optimizer.zero_grad"))
                        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
                        optimizer.step()
                optimizer.zero_grad()  # no rank has gradients
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
                optimizer.step()
                model.zero_grad(set_to_none=drop)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
                optimizer.step()
                self.assert_same_weights(model, model, f"{width} {drop}")

    def test_two_threads_train_two_models(self):
        """Clips and writes in one thread while the other thread is in its backward pass."""

        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(context, value):
                return value * 1

            @staticmethod
            def backward(context, grad):
                is_in_pass.set()
                may_end.wait(200)
                return grad

        for width in WIDTHS:
            is_in_pass, may_end = threading.Event(), threading.Event()
            models, references = [[make_model(width, seed) for seed in (5, 6)] for _ in range(2)]
            optimizers = [self.distributed(model) for model in models]
            for optimizer in optimizers:
                optimizer.zero_grad()
            failures = []

            def first():
                try:
                    Slow.apply(loss_of(models[0], self.rank, 0)).backward()
                    torch.nn.utils.clip_grad_norm_(models[0].parameters(), 0.02)
                    optimizers[0].step()
                except BaseException as error:
                    failures.append(error)

            thread = threading.Thread(target=first)
            thread.start()
            self.assertTrue(is_in_pass.wait(200))
            try:
                for step in range(2):
                    optimizers[1].zero_grad()
                    loss_of(models[1], self.rank, step).backward()
                    torch.nn.utils.clip_grad_norm_(models[1].parameters(), 0.02)
                    optimizers[1].step()
                optimizers[1].zero_grad()
                if self.size > 1:
                    loss_of(models[1], self.rank, 0).backward()
                    models[1][2].weight.grad.mul_(2)
                    self.refused(optimizers[1], r"The gradient of 2\.weight was written")
            finally:
                may_end.set()
                thread.join(20)
            self.assertEqual(failures, [])
            for model, reference, steps in zip(models, references, (1, 2)):
                alone = plain(reference.parameters())
                for step in range(steps):
                    alone.zero_grad()
                    (sum(loss_of(reference, rank, step) for rank in range(self.size)) / self.size).backward()
                    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.02)
                    alone.step()
                self.assert_same_weights(model, reference, f"{width}")

    def test_passes_of_a_step_run_in_several_threads(self):
        for width in WIDTHS:
            model, reference = make_model(width), make_model(width)
            optimizer = self.distributed(model, backward_passes_per_step=2)
            alone = plain(reference.parameters())
            with concurrent.futures.ThreadPoolExecutor(1) as one, concurrent.futures.ThreadPoolExecutor(1) as two:
                for step in range(3):
                    model.zero_grad()
                    for index, pool in enumerate((one, two)):
                        pool.submit(lambda: loss_of(model, self.rank, 2 * step + index).backward()).result(20)
                    (one if step % 2 else two).submit(torch.nn.utils.clip_grad_norm_, model.parameters(), 0.02).result(
                        20
                    )
                    optimizer.step()
                    alone.zero_grad()
                    for index in range(2):
                        (
                            sum(loss_of(reference, rank, 2 * step + index) for rank in range(self.size)) / self.size
                        ).backward()
                    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.02)
                    alone.step()
            self.assert_same_weights(model, reference, f"{width}")

    def test_passes_of_a_step_run_in_several_threads_at_once(self):
        """The passes begin and end in any order."""

        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(context, value, begun, may_end):
                context.events = begun, may_end
                return value * 1

            @staticmethod
            def backward(context, grad):
                begun, may_end = context.events
                begun.set()
                may_end.wait(200)
                return grad, None, None

        orders = [((0, 1, 2), (0, 1, 2)), ((1, 0, 2), (0, 1, 2)), ((1, 2, 0), (0, 2, 1)), ((1, 2, 0), (2, 1, 0))]
        for width in WIDTHS:
            model, reference = make_model(width), make_model(width)
            alone = plain(reference.parameters())
            with contextlib.ExitStack() as stack:
                pools = [stack.enter_context(concurrent.futures.ThreadPoolExecutor(1)) for _ in range(3)]
                optimizer = pools[0].submit(self.distributed, model, backward_passes_per_step=3).result(20)
                for step, (begins, ends) in enumerate(orders):
                    pools[0].submit(optimizer.zero_grad).result(20)
                    passes = {}
                    for index in begins:
                        begun, may_end = threading.Event(), threading.Event()
                        loss = Slow.apply(loss_of(model, self.rank, 3 * step + index), begun, may_end)
                        passes[index] = pools[index].submit(loss.backward), may_end
                        self.assertTrue(begun.wait(200))
                    for index in ends:
                        passes[index][1].set()
                        passes[index][0].result(20)
                    pools[0].submit(optimizer.step).result(20)
                    alone.zero_grad()
                    for index in range(3):
                        (
                            sum(loss_of(reference, rank, 3 * step + index) for rank in range(self.size)) / self.size
                        ).backward()
                    alone.step()
                optimizer.zero_grad()
                if self.size > 1:  # the next step is checked again
                    for number in range(3):
                        loss_of(model, self.rank, number).backward()
                    model[2].weight.grad.mul_(2)
                    self.refused(optimizer, r"The gradient of 2\.weight was written")
            self.assert_same_weights(model, reference, f"{width}")

    def test_passes_of_another_model_read_no_gradients(self):
        """Forbids reads that would wait for the device on a GPU."""
        for width in WIDTHS:
            model, other = make_model(width), make_model(width, 6)
            optimizer = self.distributed(model)
            for step in range(2):
                optimizer.zero_grad()
                loss_of(model, self.rank, step).backward()
                optimizer.step()
                with unittest.mock.patch.object(torch.Tensor, "any") as read:
                    loss_of(other, self.rank, step).backward()
                read.assert_not_called()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)

    def test_the_warning_has_the_words_by_which_scripts_filter(self):
        model = make_model(16)
        optimizer = self.distributed(model)
        loss_of(model, self.rank, 0).backward()
        optimizer.synchronize()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step()
        self.assertIn(
            "optimizer.step() called without optimizer.skip_synchronize()",
            "".join(str(warning.message) for warning in caught),
        )


class UnfreezingTest(TrainingCase):
    def test_all_parameters_frozen_at_first(self):
        model, reference = make_model(16), make_model(16)
        for each in (model, reference):
            each.requires_grad_(False)
        optimizer, alone = self.distributed(model), plain(reference.parameters())
        optimizer.step()
        for each in (model, reference):
            each.requires_grad_(True)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, self.rank, step).backward()
            optimizer.step()
            alone.zero_grad()
            (sum(loss_of(reference, rank, step) for rank in range(self.size)) / self.size).backward()
            alone.step()
        self.assert_same_weights(model, reference, "frozen at first")

    def test_parameters_that_only_some_ranks_unfreeze_are_named_on_all(self):
        if self.size < 2:
            self.skipTest("one rank reduces nothing")
        for arguments in ({}, {"groups": 2}):
            model = make_model(16)
            model[0].requires_grad_(False)
            optimizer = self.distributed(model, **arguments)
            for step in range(2):
                loss_of(model, self.rank, step).backward()
                optimizer.step()
                optimizer.zero_grad()
            if self.rank == 1:
                model[0].requires_grad_(True)
            loss_of(model, self.rank, 2).backward()
            self.refused(optimizer, r"Rank 1 has set requires_grad of 0\.weight")

    def test_parameters_outside_the_process_set_stay_local(self):
        if self.size < 2:
            self.skipTest("one rank is in every set")
        others = hvd.add_process_set([self.size - 1])
        self.addCleanup(hvd.remove_process_set, others)
        model, reference = make_model(16), make_model(16)
        for each in (model, reference):
            each[0].requires_grad_(False)
        optimizer, alone = self.distributed(model, process_set=others), plain(reference.parameters())
        for step in range(4):
            for each, made in ((model, optimizer), (reference, alone)):
                if step == 2:
                    each[0].requires_grad_(True)
                made.zero_grad()
                loss_of(each, self.rank, step).backward()
                torch.nn.utils.clip_grad_norm_(each.parameters(), 0.02)
                with torch.no_grad():
                    each[2].weight.grad.mul_(0.5)
                made.step()
        for got, want in zip(model.parameters(), reference.parameters()):
            self.assertTrue(torch.equal(got, want))


if __name__ == "__main__":
    rank_case.main()
