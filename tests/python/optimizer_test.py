"""DistributedOptimizer and what goes with it, against one process that sees all the data."""

import copy
import pickle
import signal
import warnings

import rank_case
from rank_case import RankCase, hvd, torch

OPTIMIZERS = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01, amsgrad=True),
    "RMSprop": lambda params: torch.optim.RMSprop(params, lr=0.01, centered=True),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.01),
}


def make_model(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    return model.double()


def data(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (torch.randn(5, 4, generator=generator, dtype=torch.float64),
            torch.randn(5, 2, generator=generator, dtype=torch.float64))


def loss_of(model, rank, step):
    inputs, targets = data(rank, step)
    return torch.nn.functional.mse_loss(model(inputs), targets)


class OptimizerTest(RankCase):
    def reference(self, make, steps, passes=1, op=hvd.Average):
        """The weights of a single process that averages everybody's gradients itself."""
        model = make_model()
        optimizer = make(model.parameters())
        for step in range(steps):
            optimizer.zero_grad()
            for pass_ in range(passes):
                loss = sum(loss_of(model, rank, step * passes + pass_)
                           for rank in range(self.size))
                (loss / (self.size if op == hvd.Average else 1)).backward()
            optimizer.step()
        return model

    def assert_same_weights(self, model, reference, tolerance=1e-12):
        for (name, got), want in zip(model.named_parameters(), reference.parameters()):
            self.assertLess((got - want).abs().max().item(), tolerance, name)
            everybody = hvd.allgather(got.detach().reshape(1, -1))
            for row in everybody:
                self.assertTrue(torch.equal(row, everybody[0]), f"{name} differs between ranks")

    def train(self, model, optimizer, steps, passes=1):
        for step in range(steps):
            optimizer.zero_grad()
            for pass_ in range(passes):
                loss_of(model, self.rank, step * passes + pass_).backward()
            optimizer.step()

    def test_training_is_that_of_one_process_for_each_optimizer(self):
        for name, make in OPTIMIZERS.items():
            model = make_model(seed=self.rank)
            optimizer = hvd.DistributedOptimizer(make(model.parameters()),
                                                 named_parameters=model.named_parameters())
            self.assertIsInstance(optimizer, getattr(torch.optim, name))
            self.assertEqual(type(optimizer).__name__, name)
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            self.train(model, optimizer, 4)
            self.assert_same_weights(model, self.reference(make, 4))

    def test_names_may_be_missing(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))
        self.train(model, optimizer, 3)
        self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 3))

    def test_several_backward_passes_add_up(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()),
                                             model.named_parameters(), backward_passes_per_step=3)
        self.train(model, optimizer, 2, passes=3)
        self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 2, passes=3))
        optimizer.set_backward_passes_per_step(1)
        self.train(model, optimizer, 1)

    def test_one_backward_pass_too_many_is_noticed(self):
        if self.size < 2:
            self.skipTest("nothing is in flight in a world of one")
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()),
                                             model.named_parameters())
        loss_of(model, self.rank, 0).backward()
        with self.assertRaisesRegex(AssertionError, "backward_passes_per_step"):
            loss_of(model, self.rank, 0).backward()
        with self.assertRaisesRegex(AssertionError, "zero_grad"):
            optimizer.zero_grad()
        optimizer.synchronize()
        optimizer.zero_grad()

    def interrupted(self, optimizer, *closure):
        """Rank 0's step waits for the others, and is interrupted while it does."""
        def interrupt(*unused):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            while not optimizer._reducer.is_interrupted:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.2)
                    optimizer.step(*closure)
                except KeyboardInterrupt:
                    pass
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_a_step_that_was_interrupted_goes_on(self):
        if self.size < 2:
            self.skipTest("nothing is in flight in a world of one")
        make = OPTIMIZERS["SGD"]
        for arguments in [{"groups": 3}, {"compression": hvd.Compression.fp16}, {}]:
            model = make_model()
            optimizer = hvd.DistributedOptimizer(make(model.parameters()), **arguments)
            # Agreed, and in one piece where it can be, from the second step on.
            for step in range(2):
                if self.rank:  # the others come only after rank 0 was interrupted
                    hvd.broadcast(torch.ones(1), 0, name="interrupted")
                loss_of(model, self.rank, step).backward()
                if self.rank == 0:
                    self.interrupted(optimizer)
                    with self.assertRaisesRegex(AssertionError, "interrupted.*goes on"):
                        (0 * loss_of(model, self.rank, step)).backward()
                if self.rank == 0:
                    hvd.broadcast(torch.ones(1), 0, name="interrupted")
                optimizer.step()
                optimizer.zero_grad()
            for param in model.parameters():
                self.assert_equal_tensors(hvd.broadcast(param.detach(), 0), param.detach())

    def test_a_step_with_a_closure_that_was_interrupted_goes_on(self):
        if self.size < 2:
            self.skipTest("nothing is in flight in a world of one")
        for arguments in [{"groups": 3}, {}]:
            model, evaluations = make_model(), []
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), **arguments)

            def closure():
                evaluations.append(step)
                optimizer.zero_grad()
                loss = loss_of(model, self.rank, step)
                loss.backward()
                return loss

            for step in range(3):
                if self.rank:
                    hvd.broadcast(torch.ones(1), 0, name="interrupted")
                elif step < 2:
                    self.interrupted(optimizer, closure)
                if self.rank == 0:
                    hvd.broadcast(torch.ones(1), 0, name="interrupted")
                self.assertEqual(optimizer.step(closure).dim(), 0)
            self.assertEqual(evaluations, [0, 1, 2])
            for param in model.parameters():
                self.assert_equal_tensors(hvd.broadcast(param.detach(), 0), param.detach())

    def test_a_closure_that_was_interrupted_in_backward_goes_on(self):
        for arguments in [{"groups": 3}, {"groups": 1}, {}]:
            model, interruptions = make_model(), []
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), **arguments)

            def interrupt(gradient):  # the last layer's are on their way by now
                if self.rank == 0 and len(interruptions) < 2 and step == 1:
                    interruptions.append(gradient)
                    raise KeyboardInterrupt
                return gradient

            model[0].weight.register_hook(interrupt)

            def closure():
                optimizer.zero_grad()
                loss = loss_of(model, self.rank, step)
                loss.backward()
                return loss

            for step in range(4):
                while True:
                    try:
                        optimizer.step(closure)
                        break
                    except KeyboardInterrupt:
                        pass
            self.assertEqual(len(interruptions), 2 if self.rank == 0 else 0)
            self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 4))

    def test_sum_and_predivision(self):
        make = OPTIMIZERS["SGD"]
        model = make_model()
        self.train(model, hvd.DistributedOptimizer(make(model.parameters()), op=hvd.Sum), 3)
        self.assert_same_weights(model, self.reference(make, 3, op=hvd.Sum), 1e-10)
        model = make_model()
        self.train(model, hvd.DistributedOptimizer(make(model.parameters()),
                                                   gradient_predivide_factor=2.0), 3)
        self.assert_same_weights(model, self.reference(make, 3))

    def test_groups(self):
        make = OPTIMIZERS["SGD"]
        for groups in [1, 2, 4, "lists"]:
            model = make_model()
            params = list(model.parameters())
            optimizer = hvd.DistributedOptimizer(
                make(params), model.named_parameters(),
                groups=[params[:2], params[3:]] if groups == "lists" else groups)
            self.train(model, optimizer, 3)
            self.assert_same_weights(model, self.reference(make, 3))
        with self.assertWarns(DeprecationWarning):
            hvd.DistributedOptimizer(make(params), num_groups=2)

    def test_compression_is_close(self):
        for compression, tolerance in [(hvd.Compression.fp16, 5e-3), (hvd.Compression.bf16, 5e-2)]:
            model = make_model()
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()),
                                                 compression=compression)
            self.train(model, optimizer, 3)
            self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 3), tolerance)

    def test_clipping_between_synchronize_and_step(self):
        make = OPTIMIZERS["SGD"]
        model, reference = make_model(), make_model()
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
        loss_of(model, self.rank, 0).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with optimizer.skip_synchronize():
                optimizer.step()
        alone = make(reference.parameters())
        (sum(loss_of(reference, rank, 0) for rank in range(self.size)) / self.size).backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.01)
        alone.step()
        self.assert_same_weights(model, reference)

    def test_synchronizing_twice_warns(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))
        loss_of(model, self.rank, 0).backward()
        optimizer.synchronize()
        with self.assertWarnsRegex(UserWarning, "skip_synchronize"):
            optimizer.step()

    def test_a_closure_is_synchronized_each_time(self):
        def closure_of(optimizer, loss):
            def closure():
                optimizer.zero_grad()
                value = loss()
                value.backward()
                return value
            return closure

        def make(params):
            return torch.optim.LBFGS(params, lr=0.5, max_iter=3)

        model, reference = make_model(), make_model()
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
        alone = make(reference.parameters())
        # Decisions inside hang on the loss, so all ranks must see the same one.
        for step in range(2):
            optimizer.step(closure_of(
                optimizer, lambda: sum(loss_of(model, r, step) for r in range(self.size))))
            alone.step(closure_of(
                alone, lambda: sum(loss_of(reference, r, step) for r in range(self.size))))
        self.assert_same_weights(model, reference, 1e-9)

    def test_ranks_whose_losses_differ_evaluate_equally_often(self):
        for op in (hvd.Average, hvd.Sum):
            model, reference = make_model(), make_model()

            def make(params):
                return torch.optim.LBFGS(params, line_search_fn="strong_wolfe", tolerance_change=0.05)

            def run(model, optimizer, ranks, scale):
                losses = []

                def closure():
                    optimizer.zero_grad()
                    loss = scale * sum(loss_of(model, rank, 0) for rank in ranks)
                    loss.backward()
                    losses.append(loss.item())
                    return loss

                return optimizer.step(closure), losses

            optimizer = hvd.DistributedOptimizer(make(model.parameters()), op=op)
            first, losses = run(model, optimizer, [self.rank], 1)
            scale = 1 / self.size if op == hvd.Average else 1
            alone, wanted = run(reference, make(reference.parameters()), range(self.size), scale)
            self.assertEqual(len(losses), len(wanted))
            self.assertGreater(len(losses), 2)
            self.assertAlmostEqual(first.item(), alone.item(), 9)
            self.assert_same_weights(model, reference, 1e-9)

    def test_parameters_without_gradient_on_some_ranks_take_part_with_zeros(self):
        model = make_model()
        extra = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer = torch.optim.SGD(list(model.parameters()) + [extra], lr=1.0)
        optimizer = hvd.DistributedOptimizer(optimizer)
        loss = loss_of(model, self.rank, 0)
        if self.rank == 0:
            loss = loss + extra.sum()
        loss.backward()
        optimizer.step()
        want = torch.full((3,), 1.0 - 1.0 / self.size, dtype=torch.float64)
        self.assert_close(extra.detach(), want, torch.float64)

    def test_frozen_parameters_stay_what_they_are(self):
        model = make_model()
        frozen = model[0].weight.requires_grad_(False)
        before = frozen.clone()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1),
            model.named_parameters())
        model[2].bias.requires_grad_(False)
        bias = model[2].bias.clone()
        self.train(model, optimizer, 2)
        self.assert_equal_tensors(frozen, before)
        self.assert_equal_tensors(model[2].bias, bias)

    def test_zero_grad_takes_torch_s_arguments(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))
        for to_none in [True, False]:
            loss_of(model, self.rank, 0).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)
            grad = model[0].weight.grad
            self.assertTrue(grad is None if to_none else not grad.any())

    def test_learning_rate_schedules_reach_the_optimizer(self):
        model = make_model()
        plain = OPTIMIZERS["SGD"](model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
        self.train(model, optimizer, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as if the optimizer had not stepped
            scheduler.step()
        self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.05)
        own = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        self.train(model, optimizer, 1)
        own.step()
        self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.025)

    def test_sparse_gradients(self):
        for as_dense in [False, True]:
            torch.manual_seed(0)
            table = torch.nn.Embedding(10, 3, sparse=True)
            before = table.weight.detach().clone()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0),
                                                 sparse_as_dense=as_dense)
            table(torch.tensor([self.rank, 9])).sum().backward()
            torch.set_warn_always(True)
            self.addCleanup(torch.set_warn_always, False)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                optimizer.step()
            want = before.clone()
            want[9] -= 1
            want[: self.size] -= 1 / self.size
            self.assert_close(table.weight.detach(), want, torch.float32, str(as_dense))

    def test_parameters_added_later_are_reduced_too(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model[0].parameters(), lr=0.1))
        optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.1})
        self.train(model, optimizer, 2)
        self.assert_same_weights(
            model, self.reference(lambda params: torch.optim.SGD(params, lr=0.1), 2))

    def test_state_dicts_go_out_and_in(self):
        make = OPTIMIZERS["Adam"]
        model = make_model()
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
        self.train(model, optimizer, 2)
        saved = optimizer.state_dict()
        loss_of(model, self.rank, 0).backward()
        optimizer.load_state_dict(saved)
        optimizer.zero_grad()
        self.train(model, optimizer, 1)

    def test_pickled_they_are_plain_ones_and_deep_copies_are_distributed(self):
        for op in (hvd.Average, hvd.Adasum):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(
                OPTIMIZERS["SGD"](model.parameters()), model.named_parameters(), op=op,
                groups=[list(model[2].parameters())])
            self.train(model, optimizer, 1)
            other, copied = copy.deepcopy((model, optimizer))
            loaded, plain = pickle.loads(pickle.dumps((model, optimizer)))
            self.assertIs(type(plain), torch.optim.SGD)
            self.train(model, optimizer, 3)
            self.train(other, copied, 3)
            self.assertIs(type(copied).__mro__[1], type(optimizer).__mro__[1])
            for mine, theirs, alone in zip(model.parameters(), other.parameters(),
                                           loaded.parameters()):
                self.assert_equal_tensors(theirs, mine)
                self.assertFalse(torch.equal(alone, mine))
                self.assertIn(alone, plain.state)
            self.train(loaded, hvd.DistributedOptimizer(plain, op=op), 3)
            for mine, again in zip(model.parameters(), loaded.parameters()):
                self.assert_close(again, mine, torch.float64)

    def test_two_optimizers_of_the_same_parameters_are_named(self):
        if self.size < 2:
            self.skipTest("nothing is reduced in a world of one")
        model = make_model()
        first, second = (hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))
                         for _ in range(2))
        loss_of(model, self.rank, 0).backward()
        second.step()
        with self.assertRaisesRegex(AssertionError, "another hvd.DistributedOptimizer"):
            loss_of(model, self.rank, 0).backward()
        first.synchronize()
        second.synchronize()

    def test_gradients_that_another_loss_has_made_are_given_up(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))
        loss_of(model, self.rank, 7).backward()
        if self.size > 1:
            with self.assertRaisesRegex(AssertionError, r"synchronize\(\) first"):
                optimizer.zero_grad()
        optimizer.synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.train(model, optimizer, 2)
        self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 2))

    def test_arguments_that_contradict_each_other(self):
        model = make_model()
        plain = OPTIMIZERS["SGD"](model.parameters())
        named = list(model.named_parameters())
        for keywords, pattern in [
            ({"named_parameters": [param for _, param in named]}, "tuples"),
            ({"named_parameters": [("same", param) for _, param in named]}, "unique"),
            ({"named_parameters": named[:-1]}, "lacks 1 of the 4"),
            ({"backward_passes_per_step": 0}, "backward_passes_per_step"),
            ({"backward_passes_per_step": 1.5}, "whole number"),
            ({"op": "average"}, "op is 'average'"), ({"compression": "fp16"}, "compression is 'fp16'"),
            ({"named_parameters": 3}, "tuples"),
            ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "Average"),
            ({"gradient_predivide_factor": "2"}, "gradient_predivide_factor is '2', a str"),
            ({"gradient_predivide_factor": -1.0}, "positive"),
            ({"groups": -1}, "groups"),
            ({"groups": 1.5}, "groups"), ({"groups": "ab"}, "groups"),
            ({"groups": [named[0][1]]}, "lists"),
            ({"groups": [[named[0][1]], [named[0][1]]]}, "twice"),
        ]:
            with self.assertRaisesRegex(ValueError, pattern):
                hvd.DistributedOptimizer(plain, **keywords)

    def test_an_optimizer_that_was_thrown_away_reduces_no_more(self):
        model = make_model()
        hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), model.named_parameters())
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()),
                                             model.named_parameters())
        self.train(model, optimizer, 2)
        self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 2))


class BroadcastStateTest(RankCase):
    def test_parameters_of_every_form(self):
        for form in [lambda m: m.state_dict(), lambda m: m.named_parameters(),
                     lambda m: list(m.parameters()), lambda m: list(m.named_parameters())]:
            model = make_model(seed=self.rank)
            hvd.broadcast_parameters(form(model), root_rank=self.size - 1)
            for got, want in zip(model.parameters(), make_model(self.size - 1).parameters()):
                self.assertTrue(torch.equal(got, want))
        hvd.broadcast_parameters({"none": None, "one": torch.ones(1)}, root_rank=0)

    def test_state_that_only_the_root_has(self):
        for name, make in {**OPTIMIZERS,
                           "LBFGS": lambda params: torch.optim.LBFGS(params, lr=0.5)}.items():
            root = self.size - 1
            model = make_model()
            optimizer = make(model.parameters())
            expected_model = make_model()
            expected = make(expected_model.parameters())
            for step in range(3):
                for mine, its in [(optimizer, model), (expected, expected_model)]:
                    def closure():
                        mine.zero_grad()
                        loss = loss_of(its, 0, step)
                        loss.backward()
                        return loss
                    if its is expected_model or self.rank == root:
                        mine.step(closure)
            if self.rank == root:
                optimizer.param_groups[0]["lr"] = 0.123
            before = [param.detach().clone() for param in model.parameters()]
            hvd.broadcast_optimizer_state(optimizer, root_rank=root)
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.123)
            for param, value in zip(model.parameters(), before):
                self.assertTrue(torch.equal(param, value), "no step is taken")
            self.assert_same_state(name, optimizer.state_dict()["state"],
                                   expected.state_dict()["state"])
            loss_of(model, self.rank, 0).backward()
            optimizer.step(lambda: loss_of(model, self.rank, 0))

    def assert_same_state(self, name, got, want):
        self.assertEqual(type(got), type(want), name)
        if isinstance(got, torch.Tensor):
            self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), name)
            self.assertTrue(torch.equal(got, want), name)
        elif isinstance(got, dict):
            self.assertEqual(set(got), set(want), name)
            for key in got:
                self.assert_same_state(f"{name}.{key}", got[key], want[key])
        elif isinstance(got, (list, tuple)):
            self.assertEqual(len(got), len(want), name)
            for mine, its in zip(got, want):
                self.assert_same_state(name, mine, its)
        else:
            self.assertEqual(got, want, name)

    def test_state_that_only_the_root_lacks_goes_away(self):
        model = make_model()
        optimizer = OPTIMIZERS["Adam"](model.parameters())
        if self.rank != 0:
            loss_of(model, 0, 0).backward()
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        self.assertEqual(len(optimizer.state), 0)

    def test_a_resumed_job_goes_on_as_one_that_was_not_stopped(self):
        make = OPTIMIZERS["SGD"]
        model = make_model()
        optimizer = make(model.parameters())
        if self.rank == 0:  # as if it had loaded a checkpoint
            for step in range(2):
                optimizer.zero_grad()
                (sum(loss_of(model, r, step) for r in range(self.size)) / self.size).backward()
                optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        reference = make_model()
        alone = make(reference.parameters())
        for step in range(4):
            if step >= 2:
                optimizer.zero_grad()
                loss_of(model, self.rank, step).backward()
                optimizer.step()
            alone.zero_grad()
            (sum(loss_of(reference, r, step) for r in range(self.size)) / self.size).backward()
            alone.step()
        for got, want in zip(model.parameters(), reference.parameters()):
            self.assertLess((got - want).abs().max().item(), 1e-12)


if __name__ == "__main__":
    rank_case.main()
