"""SyncBatchNorm, compared with batch normalization of all ranks' samples in one process."""

import contextlib
from unittest import mock

import rank_case
from rank_case import RankCase, hvd, torch


def samples(rank, count, shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(31 + rank)
    values = torch.randn(count, *shape, generator=generator, dtype=torch.float64) * (rank + 1) + rank
    return values.to(dtype)


class SyncBatchNormTest(RankCase):
    def check(self, counts, shape, dtype=torch.float64, **keywords):
        """Compares two training steps and an evaluation with one process."""
        ours = hvd.SyncBatchNorm(shape[0], **keywords).to(dtype)
        kind = {1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm2d, 4: torch.nn.BatchNorm3d}[
            len(shape)
        ]
        alone = kind(shape[0], **keywords).double()
        for norm in (ours, alone):
            if norm.affine:
                with torch.no_grad():
                    norm.weight.copy_(torch.arange(1.0, shape[0] + 1))
                    norm.bias.copy_(torch.arange(shape[0]) - 2.0)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        for step in range(2):
            mine = samples(self.rank, counts[self.rank], shape, dtype).requires_grad_()
            everybody = torch.cat([samples(rank, counts[rank], shape) for rank in range(self.size)])
            everybody.requires_grad_()
            first = sum(counts[: self.rank])
            rows = slice(first, first + counts[self.rank])
            got, want = ours(mine), alone(everybody)
            self.assertEqual(got.dtype, dtype)
            tolerance = {torch.float64: torch.float64, torch.float32: torch.float32}.get(dtype, torch.bfloat16)
            near = self.assert_near if tolerance is torch.bfloat16 else self.assert_close
            near(got.detach(), want[rows].detach(), tolerance)
            weights = torch.arange(want.numel(), dtype=torch.float64).reshape(want.shape).cos()
            (got * weights[rows].to(dtype)).sum().backward()
            (want * weights).sum().backward()
            near(mine.grad, everybody.grad[rows], tolerance)
        if ours.affine:  # each rank computes its part of the gradient
            total = hvd.allreduce(ours.weight.grad.to(wide), op=hvd.Sum)
            near(total, alone.weight.grad, tolerance)
        if ours.track_running_stats:
            near(ours.running_mean, alone.running_mean, tolerance)
            near(ours.running_var, alone.running_var, tolerance)
            self.assertEqual(ours.num_batches_tracked.item(), 2)
        ours.eval(), alone.eval()
        if counts[self.rank] > 1 and ours.track_running_stats:
            near(ours(mine).detach(), alone(mine.detach().double()), tolerance)

    def assert_near(self, got, want, unused):
        got, want = got.double(), want.double()
        scale = max(1.0, want.abs().max().item()) if want.numel() else 1.0
        self.assertTrue(torch.allclose(got, want, atol=0.06 * scale, rtol=0.06), f"{got} {want}")

    def test_every_shape(self):
        for shape in [(3,), (3, 7), (2, 4, 5), (4, 2, 3, 2)]:
            self.check([5] * self.size, shape)

    def test_every_type(self):
        self.check([6] * self.size, (3, 4), torch.float32)
        self.check([6] * self.size, (3, 4), torch.bfloat16)

    def test_ranks_with_more_samples_and_with_none(self):
        self.check([2 + 3 * rank for rank in range(self.size)], (3, 2))
        if self.size > 1:
            self.check([4 if rank else 0 for rank in range(self.size)], (3, 2))

    def test_arguments(self):
        self.check([4] * self.size, (3, 5), eps=0.1, momentum=0.7)
        self.check([4] * self.size, (3, 5), affine=False)
        self.check([4] * self.size, (3, 5), track_running_stats=False)
        self.check([4] * self.size, (3, 5), momentum=None)

    def test_gradients_of_gradients(self):
        """Second derivatives, as in a gradient penalty: gradients depend on the input also through mean and
        variance."""

        def penalize(norm, values):
            loss = norm(values).tanh().square().sum()
            (grad,) = torch.autograd.grad(loss, values, create_graph=True)
            grad.square().sum().backward()
            return values.grad

        for affine in (True, False):
            counts = [2 + rank for rank in range(self.size)]
            ours = hvd.SyncBatchNorm(3, affine=affine).double()
            alone = torch.nn.BatchNorm1d(3, affine=affine).double()
            mine = penalize(ours, samples(self.rank, counts[self.rank], (3, 4)).requires_grad_())
            everybody = torch.cat([samples(rank, counts[rank], (3, 4)) for rank in range(self.size)])
            want = penalize(alone, everybody.requires_grad_())
            first = sum(counts[: self.rank])
            self.assert_close(mine, want[first : first + counts[self.rank]], torch.float64)
            if affine:
                total = hvd.allreduce(ours.weight.grad, op=hvd.Sum)
                self.assert_close(total, alone.weight.grad, torch.float64)

    def test_a_step_reads_no_number_of_a_tensor(self):
        norm = hvd.SyncBatchNorm(3)
        mine = samples(self.rank, 4, (3, 2), torch.float32).requires_grad_()
        with contextlib.ExitStack() as forbidden:
            for name in ("__bool__", "__float__", "__int__", "item"):
                wait = AssertionError(f"Tensor.{name} waits for the stream of a GPU")
                forbidden.enter_context(mock.patch.object(torch.Tensor, name, side_effect=wait))
            norm(mine).square().sum().backward()
        self.assertEqual(mine.grad.shape, mine.shape)

    def test_inputs_that_cannot_be_right(self):
        norm = hvd.SyncBatchNorm(3)
        with self.assertRaises(ValueError):
            norm(torch.zeros(3))
        if self.size > 1:
            with self.assertRaisesRegex(ValueError, "more than one value"):
                norm(torch.zeros(1 if self.rank == 0 else 0, 3))

    def test_a_model_with_it_trains_as_one_process_would(self):
        def make(norm):
            torch.manual_seed(3)
            return torch.nn.Sequential(torch.nn.Linear(4, 6), norm(6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).double()

        model, alone = make(hvd.SyncBatchNorm), make(torch.nn.BatchNorm1d)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        plain = torch.optim.SGD(alone.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            model(samples(self.rank, 5, (4,))).square().mean().backward()
            optimizer.step()
            plain.zero_grad()
            alone(torch.cat([samples(rank, 5, (4,)) for rank in range(self.size)])).square().mean().backward()
            plain.step()
        for got, want in zip(model.parameters(), alone.parameters()):
            self.assert_near(got.detach(), want.detach(), None)
            self.assertLess((got - want).abs().max().item(), 1e-10)


if __name__ == "__main__":
    rank_case.main()
