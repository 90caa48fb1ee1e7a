"""DistributedOptimizer: its effect on the weights, and the arguments that it refuses."""

import copy
import warnings

import rank_case
from optimizer_case import OPTIMIZERS, OptimizerCase, loss_of, make_model
from rank_case import hvd, torch


class OptimizerTest(OptimizerCase):
    def test_names_may_be_missing(self):
        for name, make in OPTIMIZERS.items():
            model = make_model()
            optimizer = hvd.DistributedOptimizer(make(model.parameters()))
            self.assertIsInstance(optimizer, getattr(torch.optim, name))
            self.assertEqual(type(optimizer).__name__, name)
            self.train(model, optimizer, 3)
            self.assert_same_weights(model, self.reference(make, 3))

    def test_the_former_name_of_groups_warns(self):
        with self.assertWarns(DeprecationWarning):
            hvd.DistributedOptimizer(OPTIMIZERS["SGD"](make_model().parameters()), num_groups=2)

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
            torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1), model.named_parameters()
        )
        model[2].bias.requires_grad_(False)
        bias = model[2].bias.clone()
        self.train(model, optimizer, 2)
        self.assert_equal_tensors(frozen, before)
        self.assert_equal_tensors(model[2].bias, bias)

    def test_parameters_that_are_frozen_later_stay_from_then_on(self):
        """Checks parameters without a gradient: with a gradient of zeros, momentum would move them."""
        for name, groups in [("Adam", 0), ("Adam", 2), ("SGD", 1), ("AdamW", "lists")]:
            models = []
            for is_distributed in (True, False):
                model = make_model()
                params = list(model.parameters())
                optimizer = OPTIMIZERS[name](params)
                if is_distributed:
                    lists = [params[:2], params[2:]] if groups == "lists" else groups
                    optimizer = hvd.DistributedOptimizer(optimizer, groups=lists)
                for step in range(4):
                    if step == 2:
                        params[0].requires_grad_(False)
                        params[3].requires_grad_(False)
                    optimizer.zero_grad(set_to_none=True)
                    for rank in [self.rank] if is_distributed else range(self.size):
                        (loss_of(model, rank, step) / (1 if is_distributed else self.size)).backward()
                    optimizer.step()
                models.append(model)
            self.assert_same_weights(*models)

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
            warnings.simplefilter("error")  # a scheduler would warn about an optimizer without a step
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
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), sparse_as_dense=as_dense)
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

    def test_sparse_gradients_of_some_ranks(self):
        """One rank has a sparse gradient. Other ranks have no gradient or a dense one, and do not know that."""

        def loss_of_rank(table, layer, step, rank):
            if (step + rank) % 2 == 0:
                return layer.bias.sum()
            loss = layer(table(torch.tensor([step, rank, step]))).square().sum()
            return loss + table.weight.square().sum() if step == 3 - rank else loss

        def train(is_distributed, op=hvd.Average, to_none=True, is_alone=False, **more):
            torch.manual_seed(1)
            table, layer = torch.nn.Embedding(10, 4, sparse=True).double(), torch.nn.Linear(4, 2).double()
            optimizer = torch.optim.SGD([*table.parameters(), *layer.parameters()], 0.01)
            if is_distributed:
                groups = [list(layer.parameters())] if is_alone else None
                optimizer = hvd.DistributedOptimizer(optimizer, op=op, groups=groups, **more)
            for step in range(5):
                optimizer.zero_grad(set_to_none=to_none)
                for rank in [self.rank] if is_distributed else range(self.size):
                    share = self.size if op == hvd.Average and not is_distributed else 1
                    (loss_of_rank(table, layer, step, rank) / share).backward()
                optimizer.step()
            return torch.nn.ModuleList([table, layer])

        # Small gradients share a batch, except for those outside the group.
        for more in (
            {},
            {"is_alone": True},
            {"to_none": False},
            {"sparse_as_dense": True},
            {"sparse_as_dense": True, "to_none": False, "is_alone": True},
        ):
            for op in (hvd.Average, hvd.Sum):
                self.assert_same_weights(train(True, op, **more), train(False, op))
        self.assert_same_weights(train(True, compression=hvd.Compression.fp16), train(False), 0.01)

    def test_sparse_gradients_reduced_as_dense_ones_are_sparse_again_before_the_step(self):
        for sizes in [(10,), (10, 7)]:  # the gradients of two tables share a batch
            tables = []
            for size in sizes:
                torch.manual_seed(size)
                tables.append(torch.nn.Embedding(size, 3, sparse=True).double())
            copies = copy.deepcopy(tables)
            params, others = ([table.weight for table in each] for each in (tables, copies))
            optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(params, lr=0.1), sparse_as_dense=True)
            alone = torch.optim.SparseAdam(others, lr=0.1)
            for step in range(5):
                optimizer.zero_grad()
                sum(table(torch.tensor([self.rank, 6 - step])).sum() for table in tables).backward()
                optimizer.synchronize()
                self.assertEqual([param.grad.is_sparse for param in params], [True] * len(params))
                with optimizer.skip_synchronize():
                    optimizer.step()
                alone.zero_grad()
                for table in copies:
                    rows = [row for rank in range(self.size) for row in (rank, 6 - step)]
                    (table(torch.tensor(rows)).sum() / self.size).backward()
                alone.step()
            for got, want in zip(params, others):
                self.assert_close(got.detach(), want.detach(), torch.float64, str(sizes))

    def test_the_attributes_that_scripts_read(self):
        from horovod.torch import optimizer as module

        model = make_model()
        model[0].bias.requires_grad_(False)
        first = hvd.global_process_set if self.size == 1 else hvd.add_process_set([0])
        self.addCleanup(hvd.remove_process_set, first)
        for op, kind, given in [
            (
                hvd.Average,
                module._DistributedOptimizer,
                {"gradient_predivide_factor": 2.0, "sparse_as_dense": True, "process_set": first},
            ),
            (hvd.Adasum, module._DistributedAdasumOptimizer if self.size > 1 else module._DistributedOptimizer, {}),
        ]:
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=0.1),
                model.named_parameters(),
                op=op,
                backward_passes_per_step=3,
                compression=hvd.Compression.fp16,
                **given,
            )
            self.assertIsInstance(optimizer, kind)
            want = {
                "op": op,
                "backward_passes_per_step": 3,
                "gradient_predivide_factor": 1.0,
                "sparse_as_dense": False,
                "process_set": hvd.global_process_set,
                "_compression": hvd.Compression.fp16,
                **given,
                "_parameter_names": {param: name for name, param in model.named_parameters()},
                "_requires_update": set(model.parameters()) - {model[0].bias},
            }
            for name, value in want.items():
                self.assertEqual(getattr(optimizer, name), value, name)
                with self.assertRaises(AttributeError):
                    setattr(optimizer, name, value)
            optimizer.set_backward_passes_per_step(2)
            self.assertEqual(optimizer.backward_passes_per_step, 2)
            self.assertEqual(copy.deepcopy(optimizer).backward_passes_per_step, 2)
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})
            self.assertEqual(len(optimizer._parameter_names), 5)
            self.assertEqual(optimizer.find_duplicates(["a", "b", "a", "a"]), {"a"})

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
            ({"op": "average"}, "op is 'average'"),
            ({"compression": "fp16"}, "compression is 'fp16'"),
            ({"named_parameters": 3}, "tuples"),
            ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "Average"),
            ({"gradient_predivide_factor": "2"}, "gradient_predivide_factor is '2', a str"),
            ({"gradient_predivide_factor": -1.0}, "positive"),
            ({"groups": -1}, "groups"),
            ({"groups": 1.5}, "groups"),
            ({"groups": "ab"}, "groups"),
            ({"groups": [named[0][1]]}, "lists"),
            ({"groups": [[named[0][1]], [named[0][1]]]}, "twice"),
        ]:
            with self.assertRaisesRegex(ValueError, pattern):
                hvd.DistributedOptimizer(plain, **keywords)

    def test_an_optimizer_that_was_thrown_away_reduces_no_more(self):
        model = make_model()
        hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), model.named_parameters())
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), model.named_parameters())
        self.train(model, optimizer, 2)
        self.assert_same_weights(model, self.reference(OPTIMIZERS["SGD"], 2))


if __name__ == "__main__":
    rank_case.main()
