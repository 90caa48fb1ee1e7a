"""Gradients through collectives, and from backward to the optimizer's step: fused, separate, sparse,
replaced."""

import warnings

import gradient_table
import rank_case
from rank_case import RankCase, hvd, torch

nn = torch.nn
LARGE = (1 << 20) + 1  # elements: too many for a fused batch


class GradientsTest(RankCase):
    def mean(self, values):
        return sum(values(rank) for rank in range(self.size)) / self.size

    def parameters(self, *shapes, dtype=torch.float64, **keywords):
        params = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0), **keywords)
        return params, optimizer

    def backward(self, params, factor=1.0, without=None):
        """Gives parameter i, unless i is `without`, the gradient (rank + 1) * (i + 1) * factor."""
        sum(
            (param * ((self.rank + 1) * (i + 1) * factor)).sum()
            for i, param in enumerate(params)
            if param is not without
        ).backward()

    def assert_grads(self, params, factor=1.0, message=None):
        for i, param in enumerate(params):
            want = self.mean(lambda rank: (rank + 1) * (i + 1) * factor)
            self.assert_close(param.grad, torch.full_like(param, want), param.dtype, message)

    def test_large_and_small_ones_with_and_without_memory_that_stays(self):
        for to_none in [False, True]:
            params, optimizer = self.parameters((3,), (LARGE,), (2, 2), (), (70001,), (0,))
            for step in range(8):
                optimizer.zero_grad(set_to_none=to_none)
                self.backward(params, step + 1)
                optimizer.synchronize()
                self.assert_grads(params, step + 1, f"step {step}, {to_none}")
                with optimizer.skip_synchronize():
                    optimizer.step()
            self.assert_close(
                params[0].detach(),
                torch.full((3,), -36 * self.mean(lambda rank: rank + 1.0), dtype=torch.float64),
                torch.float64,
            )

    def test_every_type_has_its_own_company(self):
        params = [
            nn.Parameter(torch.zeros(5, dtype=dtype))
            for dtype in [
                torch.float32,
                torch.float64,
                torch.bfloat16,
                torch.float32,
                torch.float16,
                torch.float64,
                torch.bfloat16,
            ]
        ]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0))
        for step in range(6):
            optimizer.zero_grad(set_to_none=False)
            self.backward(params)
            optimizer.synchronize()
            self.assert_grads(params)

    def test_a_gradient_that_somebody_has_taken_stays_what_it_was(self):
        params, optimizer = self.parameters((3,), (4,), (5,))
        for step in range(6):  # the gradients move to the buffer in these steps
            optimizer.zero_grad(set_to_none=False)
            self.backward(params)
            optimizer.synchronize()
        taken = [param.grad for param in params]
        for param in params[:2]:
            param.grad = None
        for step in range(6):
            optimizer.zero_grad(set_to_none=False)
            self.backward(params, 5.0)
            optimizer.synchronize()
            self.assert_grads(params, 5.0)
        for i, grad in enumerate(taken[:2]):
            want = self.mean(lambda rank: (rank + 1.0) * (i + 1))
            self.assert_close(grad, torch.full_like(grad, want), torch.float64)
        self.assertIs(taken[2], params[2].grad)

    def test_a_gradient_outlives_the_optimizer(self):
        params, optimizer = self.parameters((300,), (400,))
        for step in range(6):
            optimizer.zero_grad(set_to_none=False)
            self.backward(params)
            optimizer.synchronize()
        grads = [param.grad for param in params]
        del params, optimizer
        for i, grad in enumerate(grads):
            want = self.mean(lambda rank: (rank + 1.0) * (i + 1))
            self.assert_close(grad, torch.full_like(grad, want), torch.float64)
            grad.add_(1)

    def test_gradients_that_are_views_of_the_user_s_memory_stay_there(self):
        params, optimizer = self.parameters((3,), (4,))
        flat = torch.zeros(7, dtype=torch.float64)
        params[0].grad, params[1].grad = flat[:3], flat[3:]
        for step in range(6):
            flat.zero_()
            self.backward(params)
            optimizer.synchronize()
            self.assert_grads(params)
            want = self.mean(lambda rank: rank + 1.0)
            self.assert_close(flat, torch.tensor([want] * 3 + [2 * want] * 4, dtype=torch.float64), torch.float64)

    def test_gradients_in_another_order_of_memory(self):
        params, optimizer = self.parameters((2, 3, 4, 5), (6,))
        for step in range(3):
            optimizer.zero_grad(set_to_none=True)
            if self.rank == 0:
                params[0].grad = torch.zeros(2, 3, 4, 5, dtype=torch.float64).to(memory_format=torch.channels_last)
            weights = torch.arange(120, dtype=torch.float64).reshape(2, 3, 4, 5)
            ((params[0] * weights).sum() * (self.rank + 1) + params[1].sum()).backward()
            self.assertEqual(params[0].grad.is_contiguous(), self.rank != 0)
            optimizer.synchronize()
            self.assert_close(params[0].grad, weights * self.mean(lambda rank: rank + 1.0), torch.float64)

    def test_those_reduced_where_they_lie_may_be_missing_sparse_or_in_another_order_of_memory(self):
        wide, table, small = (
            nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in [(130, 80), (200, 90), (3,)]
        )
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([wide, table, small], lr=1.0))
        for step in range(8):
            optimizer.zero_grad(set_to_none=step % 3 != 2)
            loss = small.sum() * (self.rank + 1)
            if step not in (3, 4) or self.rank == 0:
                loss = loss + wide.sum() * (self.rank + 1)
            if step != 5:
                loss = loss + table.sum() * (self.rank + 1)
            if step == 6 and self.rank == self.size - 1:
                wide.grad = torch.zeros(80, 130, dtype=torch.float64).t()
            if step == 5:  # all ranks get a sparse gradient, like that of an embedding
                table.grad = torch.sparse_coo_tensor(
                    torch.tensor([[7]]), torch.full((1, 90), self.rank + 1.0, dtype=torch.float64), (200, 90)
                )
            loss.backward()
            optimizer.synchronize()
            mean = self.mean(lambda rank: rank + 1.0)
            want = 1.0 / self.size if step in (3, 4) else mean
            self.assert_close(wide.grad, torch.full_like(wide, want), torch.float64, f"step {step}")
            rows = torch.zeros(200, 90, dtype=torch.float64)
            rows[7 if step == 5 else slice(None)] = mean
            self.assert_close(table.grad.to_dense(), rows, torch.float64, f"step {step}")
            self.assert_close(small.grad, torch.full_like(small, mean), torch.float64)
            if step == 5:
                table.grad = None

    def test_a_gradient_kept_from_another_step_stays_what_it_was(self):
        params, optimizer = self.parameters((130, 80), (5,))
        kept = []
        for step in range(6):
            optimizer.zero_grad(set_to_none=True)
            self.assertEqual([param.grad for param in params], [None, None])
            self.backward(params, step + 1)
            views = [param.grad.view(-1) for param in params]
            optimizer.synchronize()
            self.assert_grads(params, step + 1)
            kept.append(views)
        for step, views in enumerate(kept):
            for i, view in enumerate(views):
                want = self.mean(lambda rank: (rank + 1.0) * (i + 1) * (step + 1))
                self.assert_close(view, torch.full_like(view, want), torch.float64, f"step {step}")

    def test_zero_grad_does_what_the_optimizer_s_does(self):
        params, optimizer = self.parameters((3,), (4,))
        for profiled in [False, True]:
            for arguments in [{}, {"set_to_none": True}, {"set_to_none": False}]:
                plain = [nn.Parameter(torch.zeros(3))]
                plain[0].grad = torch.ones(3)
                with torch.autograd.profiler.profile(enabled=profiled) as profile:
                    torch.optim.SGD(plain, lr=1.0).zero_grad(**arguments)
                    self.backward(params)
                    optimizer.synchronize()
                    optimizer.zero_grad(**arguments)
                if plain[0].grad is None:
                    self.assertEqual([param.grad for param in params], [None, None])
                else:
                    for param in params:
                        self.assertEqual(param.grad.abs().sum().item(), 0)
                names = [event.name for event in profile.function_events] if profiled else []
                self.assertEqual(sum("zero_grad" in name for name in names), 2 * profiled)

    def test_sparse_ones_among_dense_ones(self):
        for as_dense in [False, True]:
            table = nn.Embedding(10, 3, sparse=True)
            dense = nn.Parameter(torch.zeros(4))
            before = table.weight.detach().clone()
            hvd.broadcast_(before, 0)
            table.weight.data.copy_(before)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD([dense, table.weight], lr=1.0), sparse_as_dense=as_dense
            )
            for step in range(5):
                optimizer.zero_grad()
                (table(torch.tensor([self.rank, 9])).sum() + dense.sum()).backward()
                optimizer.step()
            want = before.clone()
            want[9] -= 5
            want[: self.size] -= 5 / self.size
            self.assert_close(table.weight.detach(), want, torch.float32, str(as_dense))
            self.assert_close(dense.detach(), torch.full((4,), -5.0), torch.float32)

    def test_graphs_of_gradients(self):
        params, optimizer = self.parameters((3,), (4,))
        for step in range(5):
            optimizer.zero_grad()
            loss = sum(((param - self.rank - 1) ** 2).sum() for param in params)
            loss.backward(create_graph=True)
            optimizer.synchronize()
            want = self.mean(lambda rank: -2.0 * (rank + 1))
            for param in params:
                self.assert_close(param.grad.detach(), torch.full_like(param, want), torch.float64)
            for param in params:
                param.grad = None

    def test_a_gradient_that_comes_and_goes(self):
        if self.size < 2:
            self.skipTest("a world of one leaves gradients as they are")
        params, optimizer = self.parameters((3,), (4,), (5,))
        for step in range(8):
            optimizer.zero_grad(set_to_none=step % 3 == 0)
            used = params if (step + self.rank) % 2 else params[:2]
            self.backward(used)
            optimizer.synchronize()
            self.assert_grads(params[:2])
            want = sum((rank + 1) * 3 for rank in range(self.size) if (step + rank) % 2)
            self.assert_close(params[2].grad, torch.full_like(params[2], want / self.size), torch.float64)

    def test_backward_in_parts_is_one_pass_for_each_parameter(self):
        params, optimizer = self.parameters((3,), (4,), (LARGE,))
        for step in range(5):
            optimizer.zero_grad(set_to_none=False)
            for i, param in enumerate(params):
                (param * ((self.rank + 1) * (i + 1))).sum().backward()
            optimizer.synchronize()
            self.assert_grads(params)

    def test_several_passes(self):
        params = [nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (3, 4, LARGE)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0), backward_passes_per_step=2)
        for step in range(5):
            optimizer.zero_grad(set_to_none=False)
            self.backward(params)
            self.backward(params, 2.0)
            optimizer.synchronize()
            self.assert_grads(params, 3.0)

    def test_other_reductions(self):
        for op, want in [(hvd.Sum, sum(range(1, self.size + 1))), (hvd.Max, self.size), (hvd.Min, 1)]:
            params = [nn.Parameter(torch.zeros(n)) for n in (3, 4)]
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0), op=op)
            sum((param * (self.rank + 1)).sum() for param in params).backward()
            optimizer.synchronize()
            for param in params:
                self.assert_close(param.grad, torch.full_like(param, want), torch.float32)

    def test_parameters_that_change_their_kind(self):
        for change in [lambda data: data[:2].clone(), lambda data: data.float(), lambda data: torch.cat([data, data])]:
            params, optimizer = self.parameters((3,), (4,), (5,))
            for step in range(8):
                if step == 5:  # like pruning, or model.half()
                    params[1].data, params[1].grad = change(params[1].data), None
                optimizer.zero_grad(set_to_none=False)
                if step == 6 and self.rank == 0:
                    params[1].grad = None
                    self.backward(params, without=params[1])
                else:
                    self.backward(params)
                optimizer.synchronize()
                without = 2 / self.size if step == 6 and self.size > 1 else 0
                for i, param in enumerate(params):
                    if param.grad is not None:  # with one process the gradient stays None
                        want = self.mean(lambda rank: (rank + 1.0) * (i + 1)) - without * (i == 1)
                        self.assert_close(param.grad, torch.full_like(param, want), param.dtype)

    def change(self, param, change):
        """Changes a parameter as model.half() does."""
        param.data = change(param.data)
        if param.grad is not None:
            param.grad.data = change(param.grad.data)

    def test_a_model_that_changes_its_type(self):
        """Gradients of less than 16 KiB share a buffer, larger ones have their own memory."""
        shapes = (130, 80), (5,), (90, 70), (3, 4)
        kinds = {}, {"groups": 2}, {"compression": hvd.Compression.fp16}, {"op": hvd.Max}
        for change in (torch.Tensor.bfloat16, torch.Tensor.half, torch.Tensor.double):
            for to_none in (True, False):
                for keywords in kinds[: 4 if to_none else 1]:
                    params, optimizer = self.parameters(
                        *shapes, (1000, 1000 if change is torch.Tensor.bfloat16 else 1), dtype=torch.float32, **keywords
                    )
                    for step in range(6):
                        if step in (0, 4):  # before and after the ranks have agreed on a bucket
                            for param in params:
                                self.change(param, change if step else torch.Tensor.double)
                        optimizer.zero_grad(set_to_none=to_none)
                        self.backward(params)
                        optimizer.synchronize()
                        if "op" not in keywords:
                            self.assert_grads(params, message=f"{change.__name__} {keywords} step {step}")
                            continue
                        for i, param in enumerate(params):
                            want = torch.full_like(param, self.size * (i + 1.0))
                            self.assert_close(param.grad, want, param.dtype, f"{change.__name__} Max step {step}")

    def test_a_parameter_that_changes_its_size_between_others(self):
        for change in (lambda data: torch.cat([data, data]), lambda data: data[:2].clone()):
            for which in (1, 3):
                params, optimizer = self.parameters((4, 8), (130, 80), (3,), (4, 8), (7,), dtype=torch.float32)
                for step in range(6):
                    if step in (0, 4):
                        self.change(params[which], change)
                    optimizer.zero_grad()
                    self.backward(params, step + 1.0)
                    optimizer.synchronize()
                    self.assert_grads(params, step + 1.0, f"parameter {which} step {step}")

    def test_an_old_torch_names_a_parameter_whose_graph_has_another_size(self):
        params, optimizer = self.parameters((4, 8), (3,), groups=1)
        params[0].data = torch.zeros(6, 8, dtype=torch.float64)
        if self.size == 1 or hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
            self.backward(params)
        else:
            with self.assertRaisesRegex(RuntimeError, r"shape of noname.*\[4, 8\] to \[6, 8\].*version 2\.1"):
                self.backward(params)

    def test_a_change_on_one_rank_is_an_error_on_all_ranks(self):
        if self.size < 2:
            self.skipTest("there is nobody to disagree with")
        kinds = {}, {"groups": 1}, {"compression": hvd.Compression.fp16}, {"op": hvd.Min}
        changes = torch.Tensor.bfloat16, lambda data: torch.cat([data, data])
        for which, change in ((which, change) for which in (1, 2) for change in changes):
            for keywords in kinds:
                if change is not changes[0] and not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
                    continue
                params, optimizer = self.parameters((3,), (5,), (130, 80), dtype=torch.float32, **keywords)
                for step in range(4):
                    if step == 3 and self.rank == self.size - 1:
                        params[which].data = change(params[which].data)
                    optimizer.zero_grad(set_to_none=True)
                    self.backward(params)
                    if step < 3:
                        optimizer.synchronize()
                        continue
                    named = rf"noname\.\d+\.0\.{0 if 'groups' in keywords else which}\b"
                    with self.assertRaisesRegex(Exception, named):
                        optimizer.synchronize()

    def test_ranks_with_fewer_steps_join(self):
        for to_none in [False, True]:
            params, optimizer = self.parameters((3,), (LARGE,), (4,))
            for step in range(5 * self.rank):
                optimizer.zero_grad(set_to_none=to_none)
                self.backward(params)
                optimizer.synchronize()
                there = [rank for rank in range(self.size) if 5 * rank > step]
                for i, param in enumerate(params):
                    want = sum((rank + 1) * (i + 1) for rank in there) / self.size
                    self.assert_close(param.grad, torch.full_like(param, want), torch.float64)
            hvd.join()

    def test_ranks_that_disagree_hear_it_and_go_on(self):
        if self.size < 2:
            self.skipTest("there is nobody to disagree with")
        params = [nn.Parameter(torch.zeros(3 + self.rank)), nn.Parameter(torch.zeros(100))]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(params, lr=1.0), [("disagree.a", params[0]), ("disagree.b", params[1])]
        )
        self.backward(params)
        with self.assertRaisesRegex(ValueError, r"disagree\.a.*\[3\].*\[4\]"):
            optimizer.synchronize()
        self.assertEqual(hvd.allreduce(torch.ones(1), name="after", op=hvd.Sum).item(), self.size)


class CollectivesTest(RankCase, gradient_table.GradientTableCase):
    """Gradients through the public collectives."""

    framework, hvd, tolerance = "torch", hvd, 1e-12

    def collectives(self):
        """Yields (kind, name) of every public tensor function that has a gradient."""
        for name in gradient_table.differentiable("torch"):
            yield gradient_table.kind_of(name), name

    def given(self, kind, rank, columns):
        return torch.from_numpy(gradient_table.given(kind, self.size, rank, columns))

    def weights(self, kind, rank, columns):
        return torch.from_numpy(gradient_table.weights(kind, self.size, rank, columns))

    def want(self, kind, columns):
        return torch.from_numpy(gradient_table.want(kind, self.size, self.rank, columns, {}))

    def gradients(self, function, inputs, factors):
        leaves = [torch.from_numpy(each).requires_grad_() for each in inputs]
        results = function([leaf * 1 for leaf in leaves])
        sum((each * torch.from_numpy(factor)).sum() for each, factor in zip(results, factors)).backward()
        yield [leaf.grad.numpy() for leaf in leaves]

    def test_in_place_and_asynchronous_forms_have_no_gradient(self):
        names = [name for name in gradient_table.collectives("torch") if gradient_table.reason_without("torch", name)]
        self.assertGreater(len(names), 10)
        for name in names:
            kind, grouped = gradient_table.kind_of(name), name.startswith("grouped_")
            inputs = [
                self.given(kind, self.rank, columns).requires_grad_() * 1
                for columns in (gradient_table.COLUMNS if grouped else gradient_table.COLUMNS[:1])
            ]
            self.assertIsNotNone(inputs[0].grad_fn)
            if name.endswith("_"):
                inputs = [each.detach() for each in inputs]
            arguments = gradient_table.cases(getattr(hvd, name), kind, self.size)[0]
            result = getattr(hvd, name)(inputs if grouped else inputs[0], **arguments)
            if "async" in name:
                result = hvd.synchronize(result)
                result = result[:1] if kind == "alltoall" else result
            results = result if isinstance(result, (tuple, list)) else [result]
            self.assertEqual([each.requires_grad for each in results], [False] * len(results), name)

    def test_gradients_of_gradients(self):
        want = {"allgather": 2 / self.size, "broadcast": 2 / self.size * (self.rank == self.size - 1)}
        for kind, name in self.collectives():
            leaf = torch.full((2 * self.size, 2), 3.0, dtype=torch.float64, requires_grad=True)
            grouped = name.startswith("grouped_")
            arguments = gradient_table.cases(getattr(hvd, name), kind, self.size)[0]
            result = getattr(hvd, name)([leaf, 2 * leaf] if grouped else leaf, **arguments)
            result = result[0] if grouped else result
            (grad,) = torch.autograd.grad(result.square().sum(), leaf, create_graph=True)
            self.assertTrue(grad.requires_grad, name)
            grad.sum().backward()
            self.assert_close(leaf.grad, torch.full_like(leaf, want.get(kind, 2)), torch.float64, name)

    def test_tangents_of_the_forward_mode_are_refused(self):
        """Checks torch's own error: without a node of the graph, the tangent would be lost silently."""
        forward = torch.autograd.forward_ad
        with forward.dual_level():
            given = torch.ones(2 * self.size, 2, dtype=torch.float64)
            dual = forward.make_dual(given, given)
            for kind, name in self.collectives():
                arguments = gradient_table.cases(getattr(hvd, name), kind, self.size)[0]
                with self.assertRaisesRegex(NotImplementedError, "jvp", msg=name):
                    getattr(hvd, name)([given, dual] if name.startswith("grouped_") else dual, **arguments)
            self.assertIsNone(forward.unpack_dual(hvd.allreduce(given)).tangent)

    def test_functorch_has_no_rule_for_collectives(self):
        if not hasattr(torch, "func"):
            self.skipTest("this torch has no torch.func")
        with self.assertRaisesRegex(RuntimeError, "setup_context"):
            torch.func.grad(lambda value: hvd.allreduce(value).sum())(torch.ones(3))

    def test_a_group_may_have_members_without_gradient_of_other_types_and_unused(self):
        for kind, name in self.collectives():
            if not name.startswith("grouped_"):
                continue
            for case in ("constant", "integers", "flags", "another type", "unused"):
                if case == "flags" and kind != "allgather":
                    continue  # bool has no average
                first = self.given(kind, self.rank, 2).requires_grad_()
                second = self.given(kind, self.rank, 3)
                if case == "integers":
                    second = second.long()
                if case == "flags":
                    second = second > 2
                if case == "another type":
                    second = second.float()
                second.requires_grad_(case in ("another type", "unused"))
                results = getattr(hvd, name)([first, second])
                loss = (results[0] * self.weights(kind, self.rank, 2)).sum()
                if case == "another type":
                    loss = loss + (results[1] * self.weights(kind, self.rank, 3)).sum()
                loss.backward()
                self.assert_close(first.grad, self.want(kind, 2), torch.float64, (name, case))
                if case == "another type":
                    self.assertEqual(second.grad.dtype, torch.float32)
                    self.assert_close(second.grad, self.want(kind, 3), torch.float32, (name, case))
                if case == "unused":
                    self.assert_close(second.grad, torch.zeros_like(second), torch.float64, name)

    def test_nodes_applied_as_in_the_original(self):
        ops = hvd.mpi_ops
        for average, op, factor in [(None, hvd.Sum, self.size), (False, None, self.size), (True, None, 1)]:
            leaf = torch.ones(3, requires_grad=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                one = ops.HorovodAllreduce.apply(leaf, average, None, op, 1.0, 2.0, hvd.global_process_set)
                group = ops.HorovodGroupedAllreduce.apply(
                    average, None, op, 1.0, 2.0, hvd.global_process_set, leaf, leaf
                )
            for each in (one, *group):
                self.assert_close(each.detach(), torch.full((3,), 2.0 * factor), torch.float32)
            (one + sum(group)).sum().backward()
            self.assert_close(leaf.grad, torch.full((3,), 6.0 * factor), torch.float32)

    def test_groups_of_a_process_set_compressed(self):
        if self.size < 2:
            self.skipTest("there is no smaller set")
        # A set without rank 0: its ranks have different numbers than in the job.
        ranks = hvd.add_process_set(list(range(1, self.size)))
        if self.rank:
            leaves = [torch.ones(self.rank, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)]
            outputs = hvd.grouped_allgather(leaves, process_set=ranks)
            sum((each * torch.arange(len(each)).reshape(-1, 1)).sum() for each in outputs).backward()
            for leaf, start in zip(leaves, (self.rank * (self.rank - 1) // 2, 2 * self.rank - 2)):
                rows = torch.arange(start, start + len(leaf)).reshape(-1, 1)
                self.assert_close(leaf.grad, rows.expand(leaf.shape), torch.float32)
            leaves = [torch.ones(self.size - 1, columns, requires_grad=True) for columns in (2, 3)]
            outputs = hvd.grouped_reducescatter(leaves, process_set=ranks, op=hvd.Sum, compression=hvd.Compression.fp16)
            (outputs[0] * self.rank + outputs[1].sum()).sum().backward()
            want = (self.size - 1.0) * torch.arange(1, self.size).reshape(-1, 1)
            self.assert_close(leaves[0].grad, want.expand(-1, 2), torch.float32)
            self.assertEqual(leaves[1].grad.shape, leaves[1].shape)
        hvd.remove_process_set(ranks)


if __name__ == "__main__":
    rank_case.main()
