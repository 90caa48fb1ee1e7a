"""DistributedDataParallel on the backend horovod: results compared with gloo, buckets, and hooks."""

import datetime
import threading

from rank_base import RankBase, main, need

torch = need("torch")
dist = torch.distributed

import horovod.torch as hvd
import horovod.torch.distributed  # noqa: F401, where torch registers nothing by itself

DDP = torch.nn.parallel.DistributedDataParallel


class DdpCase(RankBase):
    @classmethod
    def setUpClass(cls):
        if not dist.is_initialized():
            dist.init_process_group("horovod", timeout=datetime.timedelta(seconds=60))
        cls.rank, cls.size = dist.get_rank(), dist.get_world_size()
        if not hasattr(DdpCase, "gloo"):
            DdpCase.gloo = dist.new_group(backend="gloo")

    def close(self, got, want, message=""):
        self.assertTrue(torch.allclose(got, want.to(got.dtype), rtol=1e-5, atol=1e-5), f"{message}: {got} and {want}")


class DdpTest(DdpCase):
    def train(self, group, **more):
        torch.manual_seed(self.rank)  # the module copies rank 0's weights
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)
        )
        module = DDP(model, process_group=group, **more)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        data = torch.Generator().manual_seed(self.rank)
        for _ in range(10):
            optimizer.zero_grad()
            module(torch.randn(8, 6, generator=data)).square().mean().backward()
            optimizer.step()
        return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])

    def test_ddp_trains_as_with_gloo(self):
        for more in (
            {},
            {"bucket_cap_mb": 0.0001},
            {"find_unused_parameters": True},
            {"gradient_as_bucket_view": True},
            {"static_graph": True},
        ):
            ours, theirs = self.train(None, **more), self.train(self.gloo, **more)
            self.close(ours, theirs, more)
            first = ours.clone()
            dist.broadcast(first, 0)
            self.assertTrue(torch.equal(first, ours))

    def test_ranks_with_more_batches_than_others(self):
        """Join: torch's reducer sums the number of ranks that still have data, by a work without an object in the
        program."""

        def train(group, is_divided_by_all):
            torch.manual_seed(3)
            plain = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 1))
            module = torch.nn.parallel.DistributedDataParallel(plain, process_group=group, bucket_cap_mb=0.0001)
            optimizer = torch.optim.SGD(module.parameters(), 0.1)
            data = torch.Generator().manual_seed(self.rank)
            with module.join(divide_by_initial_world_size=is_divided_by_all):
                for _ in range(2 + self.rank):
                    optimizer.zero_grad()
                    module(torch.randn(4, 6, generator=data)).square().mean().backward()
                    optimizer.step()
            return torch.cat([parameter.detach().reshape(-1) for parameter in plain.parameters()])

        for is_divided_by_all in (True, False):
            self.close(train(None, is_divided_by_all), train(self.gloo, is_divided_by_all), is_divided_by_all)

    def test_passes_are_training_steps_and_calls_are_counted_by_group(self):
        def samples(name):
            lines = [line for line in hvd.metrics("rank").splitlines() if line.startswith(name + "{")]
            return {line.partition('group="')[2].partition('"')[0]: int(line.split()[-1]) for line in lines}

        def train():
            self.train(group)
            dist.all_reduce(torch.ones(2), group=group, async_op=True).wait()  # waits for the end of the last step

        group = dist.new_group(backend="horovod")
        train()
        before = samples("horovod_steps_total")[""]
        calls = samples("horovod_group_calls_total")[group._place.label]
        self.assertGreaterEqual(calls, 10)
        train()
        self.assertEqual(samples("horovod_steps_total"), {"": before + 10})
        self.assertGreaterEqual(samples("horovod_group_calls_total")[group._place.label], calls + 11)
        dist.destroy_process_group(group)

    def test_the_thread_of_the_backward_pass_completes_the_buckets(self):
        group = dist.new_group(backend="horovod")
        works, add = [], group._caller.works.add
        group._caller.works.add = lambda work: (works.append(work), add(work))
        self.train(group, bucket_cap_mb=0.0001)
        of_buckets = [work for work in works if work.result() == [] or work._future is not None]
        self.assertGreaterEqual(len(of_buckets), 10)
        self.assertEqual({work._owner for work in of_buckets}, {threading.get_ident()})
        dist.destroy_process_group(group)

    def test_buckets_of_a_backward_pass_inside_of_another(self):
        from torch.utils.checkpoint import checkpoint

        class Nested(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second, self.third = (torch.nn.Linear(4, 4) for _ in range(3))

            def forward(self, data):
                return self.third(checkpoint(self.second, self.first(data), use_reentrant=True))

        torch.manual_seed(1)
        model = Nested()
        module = DDP(model, bucket_cap_mb=0.00001)
        for _ in range(3):
            model.zero_grad()
            module(torch.full((1, 4), float(self.rank))).sum().backward()
        mean = sum(range(self.size)) / self.size
        self.close(model.third.bias.grad, torch.ones(4))
        self.close(model.first.weight.grad, mean * model.first.bias.grad.unsqueeze(1).expand(4, 4))

    def test_a_hook_that_waits_in_the_backward_pass(self):
        def hook(state, bucket):
            future = dist.all_reduce(bucket.buffer().div_(self.size), async_op=True).get_future()
            return torch.futures.Future() if future.wait() is None else future.then(lambda done: done.value()[0])

        torch.manual_seed(1)
        model = torch.nn.Linear(4, 2)
        module = DDP(model)
        module.register_comm_hook(None, hook)
        module(torch.full((1, 4), float(self.rank))).sum().backward()
        self.close(model.weight.grad, torch.full((2, 4), sum(range(self.size)) / self.size))

    def test_a_hook_of_python(self):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        torch.manual_seed(1)
        model = torch.nn.Linear(4, 2)
        module = DDP(model)
        module.register_comm_hook(None, default_hooks.fp16_compress_hook)
        module(torch.full((1, 4), float(self.rank))).sum().backward()
        mean = sum(range(self.size)) / self.size
        self.close(model.weight.grad, torch.full((2, 4), mean))


class LargeBucketTest(DdpCase):
    def train(self, **more):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.Tanh(), torch.nn.Linear(300, 1))
        module = DDP(model, **more)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        data = torch.Generator().manual_seed(self.rank)
        for _ in range(5):
            optimizer.zero_grad()
            module(torch.randn(8, 200, generator=data)).square().mean().backward()
            optimizer.step()
        return torch.cat([param.detach().reshape(-1) for param in model.parameters()])

    def test_values_are_those_of_gloo(self):
        theirs = self.train(process_group=self.gloo)
        self.close(self.train(), theirs)
        self.close(self.train(gradient_as_bucket_view=True), theirs)


if __name__ == "__main__":
    main()
