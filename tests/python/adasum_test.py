"""DistributedOptimizer with Adasum combines the steps of all ranks."""

import rank_case
from rank_case import RankCase, hvd, torch

OPTIMIZERS = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01),
}


def make_model():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()


def loss_of(model, rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randn(6, 4, generator=generator, dtype=torch.float64)).square().mean()


class AdasumOptimizerTest(RankCase):
    def setUp(self):
        super().setUp()
        if self.size < 2:
            self.skipTest("in a world of one the optimizer is the user's own")

    def test_parameters_move_by_the_adasum_of_everybody_s_steps(self):
        for name, make in OPTIMIZERS.items():
            model, local = make_model(), make_model()
            optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), op=hvd.Adasum)
            self.assertEqual(type(optimizer).__name__, name)
            self.assertIsInstance(optimizer, getattr(torch.optim, name))
            plain = make(local.parameters())
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, self.rank, step).backward()
                optimizer.step()
                plain.zero_grad()
                loss_of(local, self.rank, step).backward()
                before = [param.detach().clone() for param in local.parameters()]
                plain.step()
                with torch.no_grad():
                    for param, start in zip(local.parameters(), before):
                        param.copy_(start + hvd.allreduce(param - start, op=hvd.Adasum))
                for got, want in zip(model.parameters(), local.parameters()):
                    self.assert_equal_tensors(got.detach(), want.detach(), name)
                    for row in hvd.allgather(got.detach().reshape(1, -1)):
                        self.assert_equal_tensors(row, got.detach().reshape(-1), name)

    def test_equal_steps_are_taken_once_and_orthogonal_ones_all(self):
        equal, own = (torch.nn.Parameter(torch.zeros(self.size)) for _ in range(2))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([equal, own], lr=1.0), op=hvd.Adasum)
        (equal.sum() + own[self.rank]).backward()
        optimizer.step()
        self.assert_close(equal.detach(), -torch.ones(self.size), torch.float32)
        self.assert_close(own.detach(), -torch.ones(self.size), torch.float32)

    def test_passes_closures_compression_and_parameters_without_gradient(self):
        unused = torch.nn.Parameter(torch.ones(3))
        for compression, factor in [(hvd.Compression.none, 1), (hvd.Compression.fp16, 1)]:
            param = torch.nn.Parameter(torch.zeros(4))
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD([param, unused], lr=0.5),
                op=hvd.Adasum,
                compression=compression,
                backward_passes_per_step=2,
            )
            param.sum().backward()
            param.sum().backward()
            optimizer.synchronize()
            optimizer.step()
            self.assert_close(param.detach(), torch.full((4,), -1.0), torch.float32)
            optimizer.zero_grad()

            def closure():
                loss = param.sum()
                loss.backward()
                return loss

            self.assertEqual(optimizer.step(closure).item(), -4.0)
            self.assert_close(param.detach(), torch.full((4,), -1.5), torch.float32)
            self.assertTrue((unused == 1).all())

    def test_there_is_no_synchronization_to_skip(self):
        param = torch.nn.Parameter(torch.zeros(4))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=0.5), op=hvd.Adasum)
        with self.assertRaisesRegex(AssertionError, "Adasum"):
            with optimizer.skip_synchronize():
                pass
        with self.assertRaisesRegex(ValueError, "Average"):
            hvd.DistributedOptimizer(torch.optim.SGD([param], lr=0.5), op=hvd.Adasum, gradient_predivide_factor=2.0)

    def test_a_schedule_and_parameters_added_later(self):
        first, second = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first], lr=1.0), op=hvd.Adasum)
        optimizer.add_param_group({"params": [second], "lr": 1.0})
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            (first.sum() + second.sum()).backward()
            optimizer.step()
            scheduler.step()
        for param in (first, second):
            self.assert_close(param.detach(), torch.full((2,), -1.5), torch.float32)


if __name__ == "__main__":
    rank_case.main()
