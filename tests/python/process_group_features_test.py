"""Features of newer torch on top of a group: meshes, FSDP2, functional collectives, compiled programs, checkpoints."""

import contextlib
import datetime
import os
import sys
import tempfile
from unittest import mock

from rank_base import RankBase, main, need

torch = need("torch")
dist = torch.distributed
if not hasattr(dist, "device_mesh"):
    print(f"SKIP: torch {torch.__version__} has no meshes")
    sys.exit(77)

from horovod.torch.distributed import _tensor_memory

WIDTH = 2000


class FeaturesTest(RankBase):
    @classmethod
    def setUpClass(cls):
        if not dist.is_initialized():
            dist.init_process_group("horovod", timeout=datetime.timedelta(seconds=60))
        cls.rank, cls.size = dist.get_rank(), dist.get_world_size()
        if not hasattr(FeaturesTest, "gloo"):
            FeaturesTest.gloo = dist.new_group(backend="gloo")
        cls.sum_of_ranks = float(sum(range(cls.size)))

    def mesh(self):
        return dist.device_mesh.init_device_mesh("cpu", (self.size,))

    def test_functional_collectives(self):
        import torch.distributed._functional_collectives as functional

        group = dist.group.WORLD
        mine = torch.full((3,), float(self.rank))
        self.assertEqual(functional.all_reduce(mine, "sum", group).tolist(), [self.sum_of_ranks] * 3)
        rows = functional.all_gather_tensor(mine, 0, group)
        self.assertEqual(rows.tolist(), [float(rank) for rank in range(self.size) for _ in range(3)])
        part = functional.reduce_scatter_tensor(torch.arange(2.0 * self.size), "sum", 0, group)
        self.assertEqual(part.tolist(), [self.size * 2.0 * self.rank, self.size * (2.0 * self.rank + 1)])
        several = functional.all_reduce_coalesced([mine, mine + 1], "sum", group)
        self.assertEqual([one.tolist() for one in several], [[self.sum_of_ranks + more] * 3 for more in (0, self.size)])
        moved = functional.all_to_all_single(torch.arange(float(self.size)), None, None, group)
        self.assertEqual(moved.tolist(), [float(self.rank)] * self.size)

    def test_a_compiled_program(self):
        import torch.distributed._functional_collectives as functional

        @torch.compile(backend="aot_eager", fullgraph=True)
        def program(tensor):
            return functional.all_reduce(tensor * 2, "sum", dist.group.WORLD) + 1

        self.assertEqual(program(torch.full((2,), float(self.rank))).tolist(), [2 * self.sum_of_ranks + 1] * 2)

    def test_a_compiled_ddp_module_and_calls_that_break_a_graph(self):
        def train(group):
            torch.manual_seed(0)
            plain = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
            model = torch.nn.parallel.DistributedDataParallel(plain, process_group=group)
            model = torch.compile(model, backend="aot_eager")
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(4, 8) * (self.rank + 1)).square().mean().backward()
                optimizer.step()
            return torch.cat([param.detach().reshape(-1) for param in plain.parameters()])

        torch.testing.assert_close(train(dist.group.WORLD), train(self.gloo))

        @torch.compile(backend="aot_eager")
        def program(tensor):
            total = tensor * 1
            dist.all_reduce(total, async_op=True).wait()
            dist.broadcast(tensor, 0)
            return total + tensor

        self.assertEqual(program(torch.full((2,), self.rank + 1.0)).tolist(), [self.sum_of_ranks + self.size + 1] * 2)

    def test_distributed_tensors(self):
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        whole = torch.arange(4.0 * self.size * 3).reshape(4 * self.size, 3)
        shared = distribute_tensor(whole.clone(), self.mesh(), [Shard(0)])
        self.assertTrue(torch.equal(shared.full_tensor(), whole))
        self.assertEqual(shared.sum().full_tensor().item(), whole.sum().item())
        self.assertTrue(torch.equal(shared.redistribute(placements=[Replicate()]).to_local(), whole))

    def train(self, mesh, allocates=False):
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        if allocates:
            for module in (model[0], model[2], model):
                module.set_allocate_memory_from_process_group_for_comm(True)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        data = torch.Generator().manual_seed(self.rank)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(6, WIDTH, generator=data)).square().mean().backward()
            optimizer.step()
        return model, torch.cat([param.full_tensor().reshape(-1) for param in model.parameters()])

    def test_fsdp2_trains_as_with_gloo(self):
        _, ours = self.train(self.mesh())
        _, theirs = self.train(dist.device_mesh.DeviceMesh.from_group(self.gloo, "cpu"))
        self.assertTrue(torch.allclose(ours, theirs, atol=1e-6))

    def test_fsdp2_in_memory_that_the_ranks_share(self):
        from torch.distributed.fsdp import FSDPModule

        if not hasattr(FSDPModule, "set_allocate_memory_from_process_group_for_comm"):
            self.skipTest(f"FSDP2 of torch {torch.__version__} asks for no memory")
        blocks = _tensor_memory._State.blocks
        taken = []
        with mock.patch.object(blocks, "take", lambda size, take=blocks.take: taken.append(size) or take(size)):
            _, ours = self.train(self.mesh(), allocates=True)
        _, private = self.train(self.mesh())
        self.assertGreater(max(taken), 32 << 10)  # the ranks read these tensors in place
        self.assertTrue(torch.equal(ours, private))

    def test_allocated_tensors(self):
        group = dist.group.WORLD
        cpu = torch.device("cpu")
        self.assertTrue(group.supports_tensor_alloc(cpu))
        self.assertFalse(group.supports_tensor_alloc(torch.device("cuda")))
        with self.assertRaisesRegex(RuntimeError, "allocates no tensors on cuda"):
            group.allocate_tensor(4, dtype=torch.float32, device=torch.device("cuda"))
        self.assertEqual(group.allocate_tensor(0, dtype=torch.bfloat16, device=cpu).numel(), 0)
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
            whole = group.allocate_tensor(30000 * self.size, dtype=dtype, device=cpu)
            own, part = whole.chunk(self.size)[self.rank], torch.empty(30000, dtype=dtype)
            own.copy_(torch.arange(30000) % 97 + self.rank)
            dist.all_gather_into_tensor(whole, own)
            for rank, row in enumerate(whole.chunk(self.size)):
                self.assertTrue(torch.equal(row, (torch.arange(30000) % 97 + rank).to(dtype)))
            dist.reduce_scatter_tensor(part, whole)
            self.assertTrue(torch.equal(part, own * self.size))
        values = [torch.randn(self.size * 30001, generator=torch.Generator().manual_seed(n)) for n in range(self.size)]
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            whole = group.allocate_tensor(self.size * 30001, dtype=dtype, device=cpu)
            whole.copy_(values[self.rank])
            parts = [torch.empty(30001, dtype=dtype) for _ in range(2)]
            for source, part in zip((whole, values[self.rank].to(dtype)), parts):
                dist.reduce_scatter_tensor(part, source, dist.ReduceOp.AVG)
            self.assertTrue(torch.equal(*parts))
            mean = sum(one.to(dtype).double() for one in values) / self.size
            close = mean.chunk(self.size)[self.rank]
            torch.testing.assert_close(parts[0].double(), close, rtol=1e-2, atol=1e-2)

    def test_memory_of_allocated_tensors_is_used_again_until_a_call_fails(self):
        def tensor():
            return _tensor_memory.empty(50000, torch.float32)

        first, second = tensor(), tensor()
        addresses = {first.data_ptr(), second.data_ptr()}
        self.assertEqual(len(addresses), 2)
        kept = second[5:]
        del first, second
        again, other = tensor(), tensor()
        self.assertIn(again.data_ptr(), addresses)
        self.assertNotIn(other.data_ptr(), addresses)
        group = dist.new_group(backend="horovod", timeout=datetime.timedelta(seconds=0.2))
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "Timed out"):
                dist.barrier(group, async_op=True).wait()
        else:
            _tensor_memory.forget()
        blocks = _tensor_memory._State.blocks
        del again, other, kept
        self.assertEqual((blocks._free_bytes, blocks._used_bytes), (0, 0))
        dist.barrier(self.gloo)

    def test_a_checkpoint(self):
        import torch.distributed.checkpoint as checkpoint

        folder = [tempfile.mkdtemp()] if self.rank == 0 else [None]
        dist.broadcast_object_list(folder, 0)
        model, weights = self.train(self.mesh())
        checkpoint.save({"model": model.state_dict()}, checkpoint_id=folder[0])
        with torch.no_grad():
            for param in model.parameters():
                param.zero_()
        state = {"model": model.state_dict()}
        checkpoint.load(state, checkpoint_id=folder[0])
        model.load_state_dict(state["model"])
        loaded = torch.cat([param.full_tensor().reshape(-1) for param in model.parameters()])
        self.assertTrue(torch.equal(loaded, weights))
        dist.barrier()
        if self.rank == 0:
            for name in os.listdir(folder[0]):
                os.unlink(os.path.join(folder[0], name))
            os.rmdir(folder[0])

    def test_a_tensor_parallel_program_in_inference_mode(self):
        """Divides a layer like servers of language models: by columns, then by rows; gathers the logits."""
        hidden, wide, words = 8, 4 * self.size, 6 * self.size
        generator = torch.Generator().manual_seed(5)
        up, gate, down, head = (
            torch.randn(*shape, generator=generator)
            for shape in ((wide, hidden), (wide, hidden), (hidden, wide), (words, hidden))
        )
        inputs = torch.randn(3, hidden, generator=generator)

        def mine(weight, dim):
            return weight.chunk(self.size, dim)[self.rank].contiguous()

        def run(group):
            with torch.inference_mode():
                inner = torch.nn.functional.silu(inputs @ mine(gate, 0).t()) * (inputs @ mine(up, 0).t())
                outer = inner @ mine(down, 1).t()
                dist.all_reduce(outer, group=group)
                part = (inputs + outer) @ mine(head, 0).t()
                rows = torch.empty(self.size * part.shape[0], part.shape[1])
                dist.all_gather_into_tensor(rows, part, group=group)
                listed = [torch.empty_like(part) for _ in range(self.size)]
                dist.all_gather(listed, part, group=group)
                logits = torch.cat(listed, 1)
                self.assertTrue(torch.equal(logits, torch.cat(rows.chunk(self.size), 1)))
                best = logits.argmax(1)
                dist.broadcast(best, 0, group=group)
                return logits, best

        logits, best = run(None)
        theirs, their_best = run(self.gloo)
        self.assertTrue(torch.allclose(logits, theirs, atol=1e-5))
        self.assertEqual(best.tolist(), their_best.tolist())
        inner = torch.nn.functional.silu(inputs @ gate.t()) * (inputs @ up.t())
        self.assertTrue(torch.allclose(logits, (inputs + inner @ down.t()) @ head.t(), atol=1e-4))

    def test_a_coalescing_manager(self):
        tensors = [torch.full((2,), float(self.rank + number)) for number in range(3)]
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for number, tensor in enumerate(tensors):
            self.assertEqual(tensor.tolist(), [self.sum_of_ranks + number * self.size] * 2)

    def test_tensors_of_another_backend(self):
        """A composite group; gloo takes the place of NCCL, and host memory that of a GPU."""
        group = dist.new_group(backend="cpu:horovod,cuda:gloo")
        self.assertEqual(type(group).__name__, "HorovodProcessGroup")
        other = group._get_backend(torch.device("cuda"))
        self.assertIsInstance(other, dist.ProcessGroupGloo)
        self.assertEqual([device.type for device in group._device_types], ["cpu", "cuda"])
        mine = torch.full((2,), float(self.rank))
        other.allreduce([mine], dist.AllreduceOptions()).wait()
        self.assertEqual(mine.tolist(), [self.sum_of_ranks] * 2)
        mine = torch.full((2,), float(self.rank))
        dist.all_reduce(mine, group=group)
        self.assertEqual(mine.tolist(), [self.sum_of_ranks] * 2)
        with self.assertRaisesRegex(RuntimeError, "has no backend for tensors on meta"):
            dist.all_reduce(torch.ones(2, device="meta"), group=group)

    def test_coalesced_calls_of_another_backend(self):
        """Checks calls that torch's own class passes to its C++ backends, of which only NCCL coalesces calls."""
        group = dist.new_group(backend="cpu:horovod,cuda:gloo")
        for call in (group._start_coalescing, group._end_coalescing):
            with self.assertRaisesRegex(RuntimeError, "gloo does not implement"):
                call(torch.device("cuda"))
        called, work = [], object()

        def stand_in(name):
            result = work if name == "_end_coalescing" else None
            return mock.patch.object(dist.ProcessGroup, name, lambda *_: (called.append(name), result)[1])

        group._devices[torch.device("meta")] = mock.Mock(supports_coalescing=True)
        tensor, other = torch.ones(2, device="meta"), (self.rank + 1) % self.size
        operations = [dist.P2POp(operation, tensor, other, group) for operation in (dist.isend, dist.irecv)]
        with contextlib.ExitStack() as stack:
            for name in ("send", "recv", "_start_coalescing", "_end_coalescing"):
                stack.enter_context(stand_in(name))
            self.assertEqual(dist.batch_isend_irecv(operations), [work])
            self.assertEqual(called, ["_start_coalescing", "send", "recv", "_end_coalescing"])
        dist.barrier()  # Gloo on the other rank may still be connecting
        dist.destroy_process_group(group)

    def test_a_barrier_and_the_end_of_another_backend(self):
        for how in ("shutdown", "abort"):
            group = dist.new_group(backend="cpu:horovod,cuda:gloo")
            options = dist.BarrierOptions()
            options.device = torch.device("cuda")
            works = [group.barrier(options)]
            options.device = torch.device("cpu")
            works.append(group.barrier(options))
            for work in works:
                work.wait()
            self.assertEqual([type(work).__module__.startswith("horovod") for work in works], [False, True])
            backend = group._devices[torch.device("cuda")] = mock.Mock()
            getattr(group, how)()
            getattr(backend, how).assert_called_once_with()
            dist.destroy_process_group(group)
            self.assertEqual(len(backend.method_calls), 1)

    def test_a_gather_into_one_tensor(self):
        if not hasattr(dist, "gather_single"):
            self.skipTest(f"torch {torch.__version__} has no gather_single")
        root = self.size - 1
        mine = torch.arange(6.0).reshape(2, 3).t() + 10 * self.rank  # not contiguous
        for shape in ([self.size, 3, 2], [self.size * 6]):
            rows = torch.zeros(shape) if self.rank == root else None
            dist.gather_single(mine, rows, dst=root)
            if self.rank == root:
                all_rows = [torch.arange(6.0).reshape(2, 3).t() + 10 * rank for rank in range(self.size)]
                self.assertTrue(torch.equal(rows.reshape(self.size, 3, 2), torch.stack(all_rows)))

    def test_answers_to_questions_of_torch_about_a_group(self):
        group = dist.new_group(backend="horovod")
        for name in ("reconfigure", "window", "abort_hooks", "completion_hooks", "splitting", "shrinking"):
            self.assertIs(getattr(group._get_backend(torch.device("cpu")), f"supports_{name}"), False)
        self.assertIs(group._supports_time_estimate, False)
        if hasattr(torch._C._distributed_c10d, "ErrorType"):  # torch 2.6
            self.assertEqual(group.get_error().name, "SUCCESS")
        works = [dist.all_reduce(torch.ones(2), group=group, async_op=True) for _ in range(2)]
        self.assertEqual([work._get_sequence_number() for work in works], [1, 2])
        self.assertEqual({work.timeout for work in works}, {dist.distributed_c10d.default_pg_timeout})
        for work in works:
            work.wait()

    def test_the_creator_of_a_backend_for_a_device(self):
        """torch's own NCCL creator, if this torch has one, makes the backend of a group's GPUs."""
        plugins = dist.Backend._plugins
        if not hasattr(dist.Backend, "_ensure_backend_registered"):
            self.skipTest(f"torch {torch.__version__} has no creator of NCCL")
        dist.Backend._ensure_backend_registered("nccl")
        given = []

        def create(options, backend_options):
            given.append((options.group_id, options.group_rank, options.process_group, backend_options))
            return dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size)

        own = plugins["NCCL"]
        with mock.patch.dict(plugins, {"NCCL": type(own)(create, True)}):
            group = dist.new_group(backend="cpu:horovod,cuda:nccl", pg_options="options")
        self.assertEqual(given, [(group.group_name, self.rank, group, "options")])
        self.assertEqual([device.type for device in group._device_types], ["cpu", "cuda"])

    def test_groups_of_a_mesh(self):
        if self.size % 2:
            self.skipTest("an odd number of ranks")
        mesh = dist.device_mesh.init_device_mesh("cpu", (2, self.size // 2), mesh_dim_names=("rows", "columns"))
        mine = torch.ones(1)
        dist.all_reduce(mine, group=mesh.get_group("rows"))
        dist.all_reduce(mine, group=mesh.get_group("columns"))
        self.assertEqual(mine.item(), float(self.size))


if __name__ == "__main__":
    main()
