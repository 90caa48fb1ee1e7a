"""Uses of DistributedOptimizer: mixed precision, compiled models, features that are not available."""

import unittest

import rank_case
from rank_case import RankCase, hvd, torch


def make_model():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def inputs(rank, step):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * step + rank))


class RecipesTest(RankCase):
    def assert_trained_as_one_process(self, model, steps, tolerance=1e-5, after_backward=None):
        reference = make_model()
        optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
        for step in steps:
            optimizer.zero_grad()
            (sum(reference(inputs(rank, step)).square().mean() for rank in range(self.size)) / self.size).backward()
            if after_backward:
                after_backward(reference)
            optimizer.step()
        for got, want in zip(model.parameters(), reference.parameters()):
            self.assertLess((got - want).abs().max().item(), tolerance)
            for row in hvd.allgather(got.detach().reshape(1, -1)):
                self.assert_equal_tensors(row, got.detach().reshape(-1))

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), f"torch {torch.__version__} has no GradScaler for the CPU")
    def test_scaled_gradients_and_a_step_that_all_ranks_leave_out(self):
        def clip(model):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)

        model = make_model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step in range(5):
            optimizer.zero_grad()
            loss = model(inputs(self.rank, step)).square().mean()
            if step == 2 and self.rank == self.size - 1:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            clip(model)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
        self.assertEqual(scaler.get_scale(), 4.0)
        self.assert_trained_as_one_process(model, [0, 1, 3, 4], after_backward=clip)

    def test_forward_in_half_precision(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        for step in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(inputs(self.rank, step)).float().square().mean()
            loss.backward()
            optimizer.step()
        self.assert_trained_as_one_process(model, range(4), 0.05)

    @unittest.skipUnless(hasattr(torch, "compile"), f"torch {torch.__version__} compiles nothing")
    def test_compiled_models(self):
        model = make_model()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        # This backend captures the graph like any other backend, and needs no compiler.
        compiled = torch.compile(model, backend="aot_eager")
        for step in range(5):
            optimizer.zero_grad()
            compiled(inputs(self.rank, step)).square().mean().backward()
            optimizer.step()
        self.assert_trained_as_one_process(model, range(5))

    def test_the_built_parts_are_the_parts_that_work(self):
        for name in [
            "mpi_built",
            "mpi_enabled",
            "gloo_built",
            "gloo_enabled",
            "ddl_built",
            "ccl_built",
            "cuda_built",
            "rocm_built",
            "mpi_threads_supported",
        ]:
            self.assertIsInstance(getattr(hvd, name)(), bool, name)
        self.assertIs(type(hvd.nccl_built()), int)
        self.assertFalse(hvd.mpi_threads_supported())
        self.assertEqual((hvd.gloo_built(), hvd.gloo_enabled()), (True, True))
        self.assertFalse(hvd.mpi_enabled())  # False also in a build with MPI: this job does not use MPI


if __name__ == "__main__":
    rank_case.main()
