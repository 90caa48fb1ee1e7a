"""When DistributedOptimizer waits for other ranks' gradients, from backward to step."""

import contextlib
import copy
import signal
import warnings

import numpy
import rank_case
from optimizer_case import OPTIMIZERS, OptimizerCase, loss_of, make_model
from rank_case import hvd, torch

from horovod.torch import _step


class OptimizerStepTest(OptimizerCase):
    def test_several_backward_passes_add_up(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(
            OPTIMIZERS["SGD"](model.parameters()), model.named_parameters(), backward_passes_per_step=3
        )
        self.train(model, optimizer, 2, passes=3)
        self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 2, passes=3))
        optimizer.set_backward_passes_per_step(1)
        self.train(model, optimizer, 1)

    def test_one_backward_pass_too_many_is_noticed(self):
        if self.size < 2:
            self.skipTest("nothing is in flight in a world of one")
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), model.named_parameters())
        loss_of(model, self.rank, 0).backward()
        with self.assertRaisesRegex(AssertionError, "backward_passes_per_step"):
            loss_of(model, self.rank, 0).backward()
        with self.assertRaisesRegex(AssertionError, "zero_grad"):
            optimizer.zero_grad()
        optimizer.synchronize()
        optimizer.zero_grad()

    def interrupted(self, optimizer, *closure):
        """Calls rank 0's step until its wait for other ranks is interrupted."""

        def interrupt(*unused):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            reducer = optimizer._reducer
            while reducer.step.state is not _step.INTERRUPTED and not reducer.closure.is_agreeing():
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
            # From the second step on, the ranks have agreed on the gradients and fuse them if possible.
            for step in range(2):
                if self.rank:  # other ranks continue only after rank 0 was interrupted
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
        # With Sum, ranks do not agree on gradients before the closure; the signal interrupts the closure itself.
        for arguments in [{"groups": 3, "op": hvd.Sum}, {"op": hvd.Sum}, {}]:
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

            def interrupt(gradient):  # the last layer's gradients are already in flight
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

    def test_synchronizing_twice_warns(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))
        loss_of(model, self.rank, 0).backward()
        optimizer.synchronize()
        with self.assertWarnsRegex(UserWarning, "skip_synchronize"):
            optimizer.step()

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

    def test_step_returns_the_mean_loss_in_the_form_of_the_closure_s(self):
        mean = (self.size + 1) / 2
        other = {"loss": 1}
        for given, wanted in (
            (self.rank + 1.0, mean),
            (self.rank + 1, mean if self.size > 1 else 1),
            (numpy.array(self.rank + 1.0), numpy.array(mean)),
            (torch.tensor([[self.rank + 1.0]]), torch.tensor([[mean]])),
            (torch.tensor(self.rank + 1.0, dtype=torch.float16), torch.tensor(mean, dtype=torch.float16)),
            (self.rank + 1.0 if self.rank else torch.tensor(1.0), mean if self.rank else torch.tensor(mean)),
            (float("nan") if self.rank == 0 else 1.0, float("nan")),
            (None, None),
            (other, other),
            (torch.ones(2), torch.ones(2)),
        ):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))
            loss_of(model, self.rank, 0).backward()
            got = optimizer.step(lambda given=given: given)
            if isinstance(wanted, torch.Tensor):
                self.assert_equal_tensors(got, wanted)
            elif wanted == wanted:
                self.assertEqual((type(got), got), (type(wanted), wanted))
            else:
                self.assertNotEqual(got, got)
            self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 1))

    def test_the_mean_loss_keeps_its_graph(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))
        value = torch.tensor(self.rank + 1.0, requires_grad=True)
        loss = optimizer.step(lambda: value * 3)
        self.assertEqual(loss.item(), 1.5 * (self.size + 1))
        self.assertEqual(torch.autograd.grad(loss, value)[0].item(), 3)

    def test_a_closure_without_a_loss_on_one_rank_is_an_error_on_all(self):
        if self.size < 2:
            self.skipTest("one rank has no others")
        model = make_model()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))
        with self.assertRaisesRegex(AssertionError, "returned a NoneType on rank 1 and a loss on another"):
            optimizer.step(lambda: None if self.rank == 1 else 1.0)

    def test_backward_before_a_closure_on_one_rank_is_an_error_on_all(self):
        if self.size < 2:
            self.skipTest("one rank has no others")
        for arguments in {}, {"op": hvd.Max}, {"groups": 2}:
            model = make_model()
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), **arguments)

            def closure():
                optimizer.zero_grad()
                loss = loss_of(model, self.rank, 0)
                loss.backward()
                return loss

            optimizer.step(closure)
            model.zero_grad()
            if self.rank == 1:
                loss_of(model, self.rank, 0).backward()
            with self.assertRaisesRegex(AssertionError, r"Rank 1 has called backward\(\) before step\(closure\)"):
                optimizer.step(closure)

    def test_optimizers_that_may_differentiate_gradients_warn_in_their_first_step(self):
        if self.size < 2:
            self.skipTest("one rank has the whole loss")
        for closes in (False, True):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()))

            def evaluate():
                optimizer.zero_grad()
                loss = loss_of(model, self.rank, 0)
                loss.backward(create_graph=True)
                return loss

            for is_first in (True, False):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    optimizer.step(evaluate) if closes else (evaluate(), optimizer.step())
                found = [one for one in caught if "second derivatives" in str(one.message)]
                self.assertEqual(len(found), is_first)

    def test_two_optimizers_of_the_same_parameters_are_named(self):
        if self.size < 2:
            self.skipTest("nothing is reduced in a world of one")
        model = make_model()
        first, second = (hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters())) for _ in range(2))
        loss_of(model, self.rank, 0).backward()
        second.step()
        with self.assertRaisesRegex(AssertionError, "another hvd.DistributedOptimizer"):
            loss_of(model, self.rank, 0).backward()
        first.synchronize()
        second.synchronize()

    def test_two_optimizers_of_a_large_layer_are_named(self):
        if self.size < 2:
            self.skipTest("nothing is reduced in a world of one")
        for named in (True, False):
            layer = torch.nn.Linear(1100, 1000)
            names = [layer.named_parameters() if named else None for _ in range(2)]
            optimizers = [hvd.DistributedOptimizer(OPTIMIZERS["SGD"](layer.parameters()), each) for each in names]
            with self.assertRaisesRegex(AssertionError, "Gradient .*another hvd.DistributedOptimizer is there"):
                for _ in range(2):
                    layer(torch.ones(1, 1100)).sum().backward()
                    optimizers[1].step()
            # The ranks may have started different reductions, which would wait for each other.
            hvd.barrier()
            hvd.shutdown()
            hvd.init()

    def test_a_weight_that_checkpoints_share_is_named_with_the_reason(self):
        from torch.utils.checkpoint import checkpoint

        def train(layer, optimizer, ranks):
            for step in range(2):
                optimizer.zero_grad()
                for rank in ranks:
                    inputs = torch.full((2, 4), rank + 1.0 + step, dtype=torch.float64, requires_grad=True)
                    hidden = checkpoint(layer, inputs, use_reentrant=True)
                    (checkpoint(layer, hidden, use_reentrant=True).square().mean() / len(ranks)).backward()
                optimizer.step()

        torch.manual_seed(0)
        shared, alone = (torch.nn.Linear(4, 4).double() for _ in range(2))
        alone.load_state_dict(shared.state_dict())
        hvd.broadcast_parameters(shared.state_dict(), 0)
        hvd.broadcast_parameters(alone.state_dict(), 0)
        if self.size > 1:
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](shared.parameters()))
            with self.assertRaisesRegex(AssertionError, "two checkpoints with use_reentrant=True share"):
                train(shared, optimizer, [self.rank])
            optimizer._reducer.drain()
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](shared.parameters()), backward_passes_per_step=2)
        train(shared, optimizer, [self.rank])
        train(alone, OPTIMIZERS["SGD"](alone.parameters()), range(self.size))
        self.assert_same_weights(shared, alone)

    def test_defaults_of_torch_on_one_rank_do_not_reach_what_the_ranks_exchange(self):
        for arguments in {}, {"groups": 1}, {"op": hvd.Max}:
            model = make_model()
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), **arguments)
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, self.rank, step).backward()
                try:
                    torch.set_default_dtype(torch.float64 if self.rank == 0 else torch.float32)
                    with torch.device("meta") if hasattr(torch, "set_default_device") else contextlib.nullcontext():
                        optimizer.step()
                        optimizer.step(lambda: 1.0)
                finally:
                    torch.set_default_dtype(torch.float32)

    def test_a_shallow_copy_reduces_gradients(self):
        model = make_model()
        optimizer = copy.copy(hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters())))
        self.train(model, optimizer, 3)
        self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 3))

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


if __name__ == "__main__":
    rank_case.main()
