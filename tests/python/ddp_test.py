"""DistributedDataParallel and DistributedOptimizer in one script, as in users' programs."""

import gc
import os
import unittest
import unittest.mock
import warnings

import rank_case
from rank_case import RankCase, hvd, torch

from horovod.torch import _ddp

DDP = torch.nn.parallel.DistributedDataParallel


def make_model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def inputs(rank, step):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * step + rank))


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed")
class DdpTest(RankCase):
    def setUp(self):
        super().setUp()
        hvd.init()

    def tearDown(self):
        hvd.shutdown()  # also ends the process group that init made
        self.assertFalse(torch.distributed.is_initialized())
        super().tearDown()

    def train(self, model, optimizer, steps=4):
        for step in range(steps):
            optimizer.zero_grad()
            model(inputs(self.rank, step)).square().mean().backward()
            optimizer.step()

    def assert_trained_as_one_process(self, parameters, steps=4):
        reference = make_model()
        self.train_alone(reference, steps)
        for got, want in zip(parameters, reference.parameters()):
            self.assertLess((got - want).abs().max().item(), 1e-5)
            for row in hvd.allgather(got.detach().reshape(1, -1)):
                self.assert_equal_tensors(row, got.detach().reshape(-1))  # bit for bit

    def train_alone(self, model, steps):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            (sum(model(inputs(rank, step)).square().mean() for rank in range(self.size)) / self.size).backward()
            optimizer.step()

    def test_the_optimizer_first_and_then_the_module_that_takes_all_parameters(self):
        model = make_model(self.rank)
        if self.rank == 0:
            model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer)
        model = DDP(model)
        self.assertEqual(torch.distributed.get_world_size(), self.size)
        self.assertEqual(torch.distributed.get_rank(), self.rank)
        self.assertEqual(torch.distributed.get_backend(), "horovod")
        self.assertEqual(optimizer._reducer.buckets, [])
        self.train(model, optimizer)
        self.assert_trained_as_one_process(model.parameters())

    def test_the_module_first(self):
        model = DDP(make_model())
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), groups=2
        )
        self.train(model, optimizer)
        self.assert_trained_as_one_process(model.parameters())

    def test_parameters_outside_of_the_module_stay_ours(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        self.train(model, optimizer, 2)
        whole = torch.nn.Sequential(DDP(model[0]), *model[1:])
        if self.size > 1:
            ours = {id(param) for bucket in optimizer._reducer.buckets for param in bucket.params}
            self.assertEqual(ours, {id(param) for param in model[2].parameters()})
        for step in range(2, 4):
            optimizer.zero_grad()
            whole(inputs(self.rank, step)).square().mean().backward()
            optimizer.step()
        self.assert_trained_as_one_process(model.parameters())

    def test_it_is_said_once_and_by_one_rank(self):
        _ddp._State.has_warned = False
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                model = DDP(make_model())
                hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        said = [str(each.message) for each in said if "leaves" in str(each.message)]
        self.assertEqual(len(said), self.rank == 0 and self.size > 1)
        if said:
            self.assertRegex(said[0], "leaves 4 parameters to the DistributedDataParallel module")

    def test_parameters_are_ours_again_when_the_module_is_gone(self):
        model = make_model()
        module = DDP(model)
        self.assertTrue(_ddp.owns(model[0].weight))
        del module
        gc.collect()
        self.assertFalse(_ddp.owns(model[0].weight))

    def test_a_group_of_the_script_s_own_is_left_alone(self):
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        DDP(make_model())
        self.assertEqual(torch.distributed.get_world_size(), 1)
        hvd.shutdown()
        self.assertTrue(torch.distributed.is_initialized())
        torch.distributed.destroy_process_group()

    def test_the_group_is_of_gloo_where_the_user_wants_that(self):
        with unittest.mock.patch.dict(os.environ, HOROVOD_TORCH_BACKEND="gloo"):
            module = DDP(make_model())
            self.assertEqual(torch.distributed.get_backend(), "gloo")
            self.train(module, torch.optim.SGD(module.parameters(), lr=0.1))
            self.assert_trained_as_one_process(module.parameters())

    def test_the_group_has_nccl_where_there_are_gpus(self):
        has_parts = hasattr(torch.distributed.ProcessGroup, "_register_backend")
        with unittest.mock.patch("torch.distributed.is_nccl_available", return_value=True):
            for has_gpu in (False, True):
                with unittest.mock.patch("torch.cuda.is_available", return_value=has_gpu):
                    both = "cpu:horovod,cuda:nccl" if has_parts else "nccl"
                    self.assertEqual(_ddp._backend(True), both)
                    self.assertEqual(_ddp._backend(False), both if has_gpu and has_parts else "horovod")

    def test_no_group_is_made_where_that_is_switched_off(self):
        os.environ["HOROVOD_TORCH_PROCESS_GROUP"] = "0"
        try:
            with self.assertRaisesRegex((RuntimeError, ValueError), "process group"):
                DDP(make_model())
        finally:
            del os.environ["HOROVOD_TORCH_PROCESS_GROUP"]


if __name__ == "__main__":
    rank_case.main()
