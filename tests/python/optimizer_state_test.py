"""The state of a DistributedOptimizer: saved, copied, and sent to all ranks."""

import copy
import pickle

import rank_case
from optimizer_case import OPTIMIZERS, OptimizerCase, loss_of, make_model
from rank_case import RankCase, hvd, torch

from horovod.torch import functions


class OptimizerStateTest(OptimizerCase):
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
                OPTIMIZERS["SGD"](model.parameters()),
                model.named_parameters(),
                op=op,
                groups=[list(model[2].parameters())],
            )
            self.train(model, optimizer, 1)
            other, copied = copy.deepcopy((model, optimizer))
            loaded, plain = pickle.loads(pickle.dumps((model, optimizer)))
            self.assertIs(type(plain), torch.optim.SGD)
            self.train(model, optimizer, 3)
            self.train(other, copied, 3)
            self.assertIs(type(copied).__mro__[1], type(optimizer).__mro__[1])
            for mine, theirs, alone in zip(model.parameters(), other.parameters(), loaded.parameters()):
                self.assert_equal_tensors(theirs, mine)
                self.assertFalse(torch.equal(alone, mine))
                self.assertIn(alone, plain.state)
            self.train(loaded, hvd.DistributedOptimizer(plain, op=op), 3)
            for mine, again in zip(model.parameters(), loaded.parameters()):
                self.assert_close(again, mine, torch.float64)


class BroadcastStateTest(RankCase):
    def test_parameters_of_every_form(self):
        for form in [
            lambda m: m.state_dict(),
            lambda m: m.named_parameters(),
            lambda m: list(m.parameters()),
            lambda m: list(m.named_parameters()),
        ]:
            model = make_model(seed=self.rank)
            hvd.broadcast_parameters(form(model), root_rank=self.size - 1)
            for got, want in zip(model.parameters(), make_model(self.size - 1).parameters()):
                self.assertTrue(torch.equal(got, want))
        hvd.broadcast_parameters({"none": None, "one": torch.ones(1)}, root_rank=0)

    def test_state_that_only_the_root_has(self):
        for name, make in {**OPTIMIZERS, "LBFGS": lambda params: torch.optim.LBFGS(params, lr=0.5)}.items():
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
            self.assert_same_state(name, optimizer.state_dict()["state"], expected.state_dict()["state"])
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

    def test_state_of_parameters_elsewhere_goes_where_they_are(self):
        """Uses torch's meta device in place of a GPU."""
        params = [torch.empty(2), torch.empty(3, device="meta")]
        given = {
            "sizes": [2],
            "options": [{"lr": torch.tensor(0.1)}],
            "state": [
                (index, {"step": torch.tensor(1.0), "mean": torch.empty_like(param)})
                for index, param in enumerate(params)
            ],
        }
        tensors, filled = [], []
        structure = functions._fill(functions._take_out(given, tensors), filled, params)
        self.assertEqual([each.device.type for each in filled], ["cpu", "cpu", "cpu", "cpu", "meta"])
        self.assertEqual([each.shape for each in filled], [each.shape for each in tensors])
        self.assertEqual(structure["state"][1][1]["mean"].device.type, "meta")

    def test_missing_gradients_of_a_fresh_optimizer_become_zeros_and_no_step_is_made(self):
        for name, make in {**OPTIMIZERS, "LBFGS": torch.optim.LBFGS}.items():
            model = make_model()
            model[0].bias.requires_grad_(False)
            kept = model[2].bias.grad = torch.ones_like(model[2].bias)
            optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
            state = copy.deepcopy(optimizer.state_dict())
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            self.assert_same_state(name, optimizer.state_dict(), state)
            for got, want in zip(model.parameters(), make_model().parameters()):
                self.assert_equal_tensors(got, want, name)
            self.assertIsNone(model[0].bias.grad)
            self.assertIs(model[2].bias.grad, kept)
            for param in [model[0].weight, model[2].weight]:
                if name != "Adagrad":  # Adagrad's state exists from the start
                    self.assert_equal_tensors(param.grad, torch.zeros_like(param), name)
        table = torch.nn.Embedding(3, 2, sparse=True)
        optimizer = torch.optim.SparseAdam(table.parameters())
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        table(torch.tensor([1])).sum().backward()
        optimizer.step()  # this optimizer refuses a dense gradient

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
        if self.rank == 0:  # like after loading a checkpoint
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
