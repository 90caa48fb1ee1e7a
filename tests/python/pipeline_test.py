"""Pipeline parallelism with two stages and data parallelism: a process set for the replicas of each stage, and
messages between the stages of each pipeline. Needs 4 ranks."""

import unittest

import rank_case
from rank_case import RankCase, hvd, torch

STEPS, MICRO = 3, 2


def stage(number):
    torch.manual_seed(number)
    if number == 0:
        return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh())
    return torch.nn.Linear(6, 1)


def inputs(replica, step, micro):
    seed = 100 * step + 10 * micro + replica
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))


class PipelineTest(RankCase):
    def setUp(self):
        super().setUp()
        if self.size != 4:
            raise unittest.SkipTest("2 stages of 2 replicas are 4 ranks")
        # Ranks 0 and 1 are the replicas of the first stage; 0 and 2 are the first pipeline.
        self.stages = [hvd.add_process_set([0, 1]), hvd.add_process_set([2, 3])]
        self.number, self.replica = divmod(self.rank, 2)
        self.neighbour = (self.rank + 2) % 4  # the other stage of this pipeline

    def tearDown(self):
        for process_set in self.stages:
            self.assertTrue(hvd.remove_process_set(process_set))
        super().tearDown()

    def received(self, shape, tag):
        tensor = torch.empty(shape)
        self.assertEqual(hvd.recv(tensor, self.neighbour, tag), self.neighbour)
        return tensor

    def run_step(self, model, step):
        """Computes all micro-batches; sends activations while the next micro-batches are computed."""
        sends, outputs = [], []
        for micro in range(MICRO):
            if self.number == 0:
                outputs.append(model(inputs(self.replica, step, micro)))
                sends.append(hvd.send_async(outputs[-1].detach(), self.neighbour, micro))
            else:
                got = self.received((5, 6), micro).requires_grad_()
                (model(got).square().mean() / MICRO).backward()
                sends.append(hvd.send_async(got.grad, self.neighbour, micro))
        if self.number == 0:
            for micro, out in enumerate(outputs):
                out.backward(self.received((5, 6), micro))
        for send in sends:
            hvd.synchronize(send)

    def test_it_trains_as_one_process(self):
        mine = self.stages[self.number]
        model = stage(self.number)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            model.named_parameters(),
            backward_passes_per_step=MICRO,
            process_set=mine,
        )
        for step in range(STEPS):
            optimizer.zero_grad()
            self.run_step(model, step)
            optimizer.step()
        reference = torch.nn.Sequential(stage(0), stage(1))
        alone = torch.optim.SGD(reference.parameters(), lr=0.1)
        for step in range(STEPS):
            alone.zero_grad()
            for micro in range(MICRO):
                for replica in range(2):
                    (reference(inputs(replica, step, micro)).square().mean() / 4).backward()
            alone.step()
        for got, want in zip(model.parameters(), reference[self.number].parameters()):
            self.assertLess((got - want).abs().max().item(), 1e-6)
            for row in hvd.allgather(got.detach().reshape(1, -1), process_set=mine):
                self.assert_equal_tensors(row, got.detach().reshape(-1))


if __name__ == "__main__":
    rank_case.main()
