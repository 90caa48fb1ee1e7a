"""The backend horovod of torch.distributed: each collective, dtype and reduction, compared with gloo in one program."""

import datetime
import functools
import inspect
import os
import random
import threading
import time
import unittest
import weakref

from rank_base import RankBase, main, need

torch = need("torch")
dist = torch.distributed

import horovod.torch as hvd
from horovod import _native
from horovod.torch.distributed import HorovodProcessGroup, _calls, _ranks

SECONDS = 200
IS_OLD = not hasattr(dist.ProcessGroup, "_register_backend")  # torch 1.13
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OPS = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"]


def values(rank, shape, dtype, salt=0):
    """Returns the input of a rank: the same in every process."""
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        real = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (torch.complex(real, -2 * real) if dtype.is_complex else real).to(dtype)
    return torch.randint(0, 5, shape, generator=generator).to(dtype)


def fold(op, tensors):
    """Returns the reduction of all ranks' tensors, computed locally."""
    stack = torch.stack(
        [
            one.to(
                torch.float64
                if one.dtype.is_floating_point
                else torch.complex128
                if one.dtype.is_complex
                else torch.int64
            )
            for one in tensors
        ]
    )
    if op in ("SUM", "AVG"):
        total = stack.sum(0)
        if op != "AVG":
            return total
        return total / len(tensors) if total.is_floating_point() else total.div(len(tensors), rounding_mode="trunc")
    if op == "PRODUCT":
        return stack.prod(0)
    if op in ("MIN", "MAX"):
        return stack.min(0).values if op == "MIN" else stack.max(0).values
    both = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[op]
    result = stack[0]
    for other in stack[1:]:
        result = both(result, other)
    return result


class GroupCase(RankBase):
    @classmethod
    def setUpClass(cls):
        if not dist.is_initialized():
            dist.init_process_group("horovod", timeout=datetime.timedelta(seconds=SECONDS))
        cls.rank, cls.size = dist.get_rank(), dist.get_world_size()
        if not hasattr(GroupCase, "gloo"):
            GroupCase.gloo = dist.new_group(backend="gloo")
            GroupCase.again = dist.new_group(backend="horovod")
            GroupCase.part = dist.new_group(list(range(1, cls.size)), backend="horovod")

    def groups(self):
        """Yields the default group, and another group with the same ranks."""
        return [None, self.again]

    def close(self, got, want, message=""):
        want = want.to(got.dtype)
        self.assertEqual(got.shape, want.shape, message)
        if got.dtype.is_floating_point or got.dtype.is_complex:
            slack = {torch.float16: 2e-2, torch.bfloat16: 1e-1}.get(got.dtype, 1e-5)
            self.assertTrue(torch.allclose(got, want, rtol=slack, atol=slack), f"{message}: {got} and {want}")
        else:
            self.assertTrue(torch.equal(got, want), f"{message}: {got} and {want}")

    def all_values(self, shape, dtype, salt=0):
        return [values(rank, shape, dtype, salt) for rank in range(self.size)]


class CollectivesTest(GroupCase):
    def test_the_default_group_is_of_this_backend(self):
        self.assertEqual(dist.get_backend(), "horovod")
        self.assertIsInstance(dist.distributed_c10d._get_default_group(), HorovodProcessGroup)
        self.assertEqual((hvd.rank(), hvd.size()), (self.rank, self.size))

    def test_all_reduce(self):
        for group in self.groups():
            for dtype in INTEGERS + FLOATS:
                for op in OPS:
                    if op.startswith("B") and dtype in FLOATS:
                        continue
                    with self.subTest(op=op, dtype=dtype):
                        mine = values(self.rank, (3, 5), dtype)
                        dist.all_reduce(mine, getattr(dist.ReduceOp, op), group=group)
                        self.close(mine, fold(op, self.all_values((3, 5), dtype)), (op, dtype))
                        if op == "AVG" or dtype in (torch.int16, torch.bfloat16):
                            continue  # gloo does not reduce this type
                        theirs = values(self.rank, (3, 5), dtype)
                        dist.all_reduce(theirs, getattr(dist.ReduceOp, op), group=self.gloo)
                        self.close(mine, theirs, (op, dtype, "gloo"))

    def test_reductions_of_bool_and_complex_numbers(self):
        for op, want in (("BAND", "all"), ("BOR", "any"), ("MIN", "all"), ("MAX", "any")):
            mine = values(self.rank, (20,), torch.bool)
            dist.all_reduce(mine, getattr(dist.ReduceOp, op))
            self.close(mine, getattr(torch.stack(self.all_values((20,), torch.bool)), want)(0), op)
        for dtype in (torch.complex64, torch.complex128):
            mine = values(self.rank, (7,), dtype)
            dist.all_reduce(mine)
            self.close(mine, fold("SUM", self.all_values((7,), dtype)))

    def test_averages_of_integers_are_cut_towards_zero_and_do_not_wrap_around(self):
        for dtype in INTEGERS:
            top = torch.iinfo(dtype).max if dtype is not torch.int64 else 2**40
            low = 0 if dtype is torch.uint8 else -7
            inputs = [torch.tensor([top - rank, low, low + rank, rank], dtype=dtype) for rank in range(self.size)]
            want = fold("AVG", inputs)
            got = inputs[self.rank].clone()
            dist.all_reduce(got, dist.ReduceOp.AVG)
            self.close(got, want, dtype)
            got = inputs[self.rank].clone()
            dist.reduce(got, self.size - 1, dist.ReduceOp.AVG)
            self.close(got, want if self.rank == self.size - 1 else inputs[self.rank], dtype)
            got = torch.zeros(4, dtype=dtype)
            dist.reduce_scatter(got, [inputs[self.rank]] * self.size, dist.ReduceOp.AVG)
            self.close(got, want, dtype)

    def test_refused_reductions(self):
        with self.assertRaisesRegex(ValueError, "an average of bool; use the sum"):
            dist.all_reduce(torch.ones(3, dtype=torch.bool), dist.ReduceOp.AVG)
        for op in ("BAND", "BOR", "BXOR"):
            with self.assertRaisesRegex(RuntimeError, f"Cannot use ReduceOp.{op} with non-integral dtype"):
                dist.all_reduce(torch.ones(3), getattr(dist.ReduceOp, op))

    @unittest.skipIf(IS_OLD, "this torch does not show the factor")
    def test_sums_of_multiplied_values(self):
        for factor in (2.5, torch.tensor([2.5]), 0.0, torch.tensor(0.0)):
            op, number = dist._make_nccl_premul_sum(factor), float(factor)
            want = fold("SUM", self.all_values((4,), torch.float32))
            mine = values(self.rank, (4,), torch.float32)
            dist.all_reduce(mine, op)
            self.close(mine, number * want)
            mine = values(self.rank, (4,), torch.float32)
            dist.reduce(mine, 0, op)
            self.close(mine, number * want if self.rank == 0 else values(self.rank, (4,), torch.float32))
            mine = values(self.rank, (4,), torch.float32).to_sparse()
            dist.all_reduce(mine, op)
            self.close(mine.to_dense(), number * want)
            rows, own = [torch.ones(2) for _ in range(self.size)], torch.empty(2)
            dist.reduce_scatter(own, rows, op)
            self.equal(own, torch.full((2,), number * self.size))
            self.equal(torch.stack(rows), torch.ones(self.size, 2))
            if not IS_OLD:
                whole = torch.ones(2 * self.size)
                dist.reduce_scatter_tensor(own, whole, op)
                self.equal(whole, torch.ones(2 * self.size))

    def test_sizes_and_layouts(self):
        for shape in ((), (0,), (1,), (1000,), (1 << 18,), (3, 0, 2)):
            mine = values(self.rank, shape, torch.float32)
            dist.all_reduce(mine)
            self.close(mine, fold("SUM", self.all_values(shape, torch.float32)), shape)
        if IS_OLD:
            return  # torch refuses such tensors itself
        mine = values(self.rank, (4, 6), torch.float32).t()
        dist.all_reduce(mine)
        self.close(mine, fold("SUM", self.all_values((4, 6), torch.float32)).t())

    def test_all_reduce_of_several_tensors(self):
        tensors = [
            values(self.rank, (size,), dtype, size)
            for size, dtype in ((3, torch.float32), (5, torch.float32), (0, torch.float32))
        ]
        dist.all_reduce_coalesced(tensors)
        for tensor in tensors:
            size = tensor.numel()
            self.close(tensor, fold("SUM", self.all_values((size,), torch.float32, size)))

    def test_sums_of_sparse_tensors(self):
        def mine(rank):
            indices = torch.tensor([[rank, rank + 1, 0], [0, 1, 1]])
            return torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0 + rank, 4.0]), (self.size + 1, 2))

        got, theirs = mine(self.rank), mine(self.rank)
        dist.all_reduce(got)
        dist.all_reduce(theirs, group=self.gloo)
        self.close(got.to_dense(), sum(mine(rank).to_dense() for rank in range(self.size)))
        self.close(got.to_dense(), theirs.to_dense())

    def test_sparse_sums_whose_ranks_wait_for_others_first(self):
        sparse, ones = torch.eye(3).to_sparse(), torch.ones(2)
        works = [dist.all_reduce(sparse, async_op=True)]
        if self.rank == 0:
            works.pop().wait()
        works.append(dist.all_reduce(ones, async_op=True))
        for work in reversed(works):
            work.wait()
        self.close(sparse.to_dense(), self.size * torch.eye(3))

    def test_reduce(self):
        for root in range(self.size):
            for op in ("SUM", "MAX", "BXOR"):
                mine = values(self.rank, (6,), torch.int64)
                dist.reduce(mine, root, getattr(dist.ReduceOp, op))
                want = fold(op, self.all_values((6,), torch.int64))
                self.close(mine, want if self.rank == root else values(self.rank, (6,), torch.int64))

    def test_complex_halves(self):
        mine = torch.tensor([1 + 1j, 2]).to(torch.complex32)
        dist.reduce(mine, 0)
        factor = self.size if self.rank == 0 else 1
        self.assertEqual(mine.to(torch.complex64).tolist(), [factor * (1 + 1j), factor * 2])

    def test_numbers_that_are_copied_only(self):
        kinds = [torch.quantize_per_tensor(torch.tensor([100.0, 2.0]), 0.5, 3, torch.qint32)]
        kinds += [torch.ones(2).to(getattr(torch, name)) for name in ("float8_e4m3fn",) if hasattr(torch, name)]
        for mine in kinds:
            for op in ("SUM", "MAX", "BXOR"):
                for call in (dist.all_reduce, functools.partial(dist.reduce, dst=0)):
                    for more in ({}, {"async_op": True}):
                        with self.assertRaisesRegex(ValueError, f"{mine.dtype} are copied, and not reduced"):
                            call(mine, op=getattr(dist.ReduceOp, op), **more)

    def test_roots_and_ranks_that_a_group_has_not(self):
        one = torch.ones(1)
        for rank in (-1, self.size, self.size + 3):
            for call in (dist.broadcast, dist.reduce, dist.send, dist.recv):
                with self.assertRaisesRegex(
                    ValueError, f"is {rank}, and the ranks of group .* are 0 to {self.size - 1}"
                ):
                    call(one, rank)
        dist.barrier()  # the refused calls were not counted

    def movable(self):
        dtypes = INTEGERS + FLOATS + [torch.bool, torch.complex64]
        return dtypes + [getattr(torch, name) for name in ("float8_e4m3fn", "uint16", "uint64") if hasattr(torch, name)]

    def equal(self, got, want):
        as_bytes = [
            one.detach().contiguous().view(torch.uint8) if one.element_size() == 1 else one for one in (got, want)
        ]
        self.assertEqual(got.dtype, want.dtype)
        self.assertTrue(torch.equal(*as_bytes), f"{got} and {want}")

    def test_broadcast(self):
        for group in self.groups():
            for dtype in self.movable():
                for root in range(self.size):
                    wanted = values(root, (3, 2), torch.float32).to(dtype)
                    mine = wanted.clone() if self.rank == root else torch.zeros((3, 2), dtype=dtype)
                    dist.broadcast(mine, root, group=group)
                    self.equal(mine, wanted)

    def test_all_gather(self):
        for group in self.groups():
            for dtype in self.movable():
                wanted = [values(rank, (2, 3), torch.float32).to(dtype) for rank in range(self.size)]
                found = [torch.zeros((2, 3), dtype=dtype) for _ in range(self.size)]
                dist.all_gather(found, wanted[self.rank], group=group)
                for got, want in zip(found, wanted):
                    self.equal(got, want)

    def test_all_gather_into_a_tensor(self):
        into = getattr(dist, "all_gather_into_tensor", getattr(dist, "_all_gather_base", None))
        for shape in ((4,), (2, 3), ()):
            wanted = [values(rank, shape, torch.float32) for rank in range(self.size)]
            found = torch.zeros(self.size * max(1, wanted[0].numel()))
            into(found, wanted[self.rank])
            self.equal(found, torch.cat([one.reshape(-1) for one in wanted]))

    def test_coalesced_forms(self):
        group = dist.distributed_c10d._get_default_group()
        wanted = [[values(rank, (size,), torch.float32, size) for size in (2, 5)] for rank in range(self.size)]
        found = [[torch.zeros(2), torch.zeros(5)] for _ in range(self.size)]
        group.allgather_coalesced(found, wanted[self.rank]).wait()
        for got, want in zip(found, wanted):
            for one, other in zip(got, want):
                self.equal(one, other)
        outputs = [torch.zeros(2 * self.size), torch.zeros(5 * self.size)]
        group.allgather_into_tensor_coalesced(outputs, wanted[self.rank]).wait()
        for number, output in enumerate(outputs):
            self.equal(output, torch.cat([one[number] for one in wanted]))
        parts = [torch.zeros(2), torch.zeros(1)]
        inputs = [torch.arange(2.0 * self.size), torch.arange(1.0 * self.size) + self.rank]
        group.reduce_scatter_tensor_coalesced(parts, inputs).wait()
        self.equal(parts[0], self.size * torch.arange(2.0 * self.size)[2 * self.rank : 2 * self.rank + 2])
        self.equal(parts[1], torch.tensor([self.size * self.rank + sum(range(self.size))], dtype=torch.float32))

    def test_reduce_scatter(self):
        for op in ("SUM", "MIN", "BXOR", "AVG"):
            dtype = torch.float64 if op == "AVG" else torch.int64
            inputs = [self.all_values((3,), dtype, rank) for rank in range(self.size)]  # by sender, then by receiver
            got = torch.zeros(3, dtype=dtype)
            dist.reduce_scatter(got, inputs[self.rank], getattr(dist.ReduceOp, op))
            want = fold(op, [inputs[rank][self.rank] for rank in range(self.size)])
            self.close(got, want, op)
            got = torch.zeros(3, dtype=dtype)
            group = dist.distributed_c10d._get_default_group()
            opts = dist.ReduceScatterOptions()
            opts.reduceOp = getattr(dist.ReduceOp, op)
            group._reduce_scatter_base(got, torch.cat(inputs[self.rank]), opts).wait()
            self.close(got, want, op)

    def test_all_to_all(self):
        sent = [values(self.rank, (2,), torch.float32, 7 * rank) for rank in range(self.size)]
        wanted = [values(rank, (2,), torch.float32, 7 * self.rank) for rank in range(self.size)]
        found = [torch.zeros(2) for _ in range(self.size)]
        dist.all_to_all(found, sent)
        for got, want in zip(found, wanted):
            self.equal(got, want)
        output = torch.zeros(2 * self.size)
        dist.all_to_all_single(output, torch.cat(sent))
        self.equal(output, torch.cat(wanted))
        theirs = torch.zeros(2 * self.size)
        dist.all_to_all_single(theirs, torch.cat(sent), group=self.gloo)
        self.equal(output, theirs)
        # Rank r sends r + 1 rows to each rank.
        mine = torch.full(((self.rank + 1) * self.size, 2), float(self.rank))
        output = torch.zeros(sum(range(self.size + 1)), 2)
        dist.all_to_all_single(output, mine, [rank + 1 for rank in range(self.size)], [self.rank + 1] * self.size)
        self.equal(output, torch.cat([torch.full((rank + 1, 2), float(rank)) for rank in range(self.size)]))
        with self.assertRaisesRegex(RuntimeError, "Split sizes doesn't match"):
            dist.all_to_all_single(torch.zeros(3), torch.zeros(3), [1] * self.size, [7] * self.size)

    def test_gather_and_scatter(self):
        for root in range(self.size):
            for dtype in (torch.float32, torch.bool, torch.complex64):
                wanted = self.all_values((2, 2), dtype)
                found = [torch.zeros((2, 2), dtype=dtype) for _ in range(self.size)]
                dist.gather(wanted[self.rank], found if self.rank == root else None, dst=root)
                if self.rank == root:
                    for got, want in zip(found, wanted):
                        self.equal(got, want)
                got = torch.zeros((2, 2), dtype=dtype)
                dist.scatter(got, wanted if self.rank == root else None, src=root)
                self.equal(got, wanted[self.rank])

    def test_objects(self):
        found = [None] * self.size
        dist.all_gather_object(found, {"rank": self.rank, "text": "x" * self.rank})
        self.assertEqual(found, [{"rank": rank, "text": "x" * rank} for rank in range(self.size)])
        objects = [self.rank, "a", None]
        dist.broadcast_object_list(objects, src=self.size - 1)
        self.assertEqual(objects, [self.size - 1, "a", None])
        gathered = [None] * self.size if self.rank == 0 else None
        dist.gather_object(self.rank, gathered, dst=0)
        self.assertEqual(gathered, list(range(self.size)) if self.rank == 0 else None)
        got = [None]
        dist.scatter_object_list(got, [f"for {rank}" for rank in range(self.size)], src=0)
        self.assertEqual(got, [f"for {self.rank}"])

    def test_messages(self):
        others = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16):
            mine, got = values(self.rank, (3,), dtype), torch.zeros(3, dtype=dtype)
            work = dist.isend(mine, others[0])
            dist.recv(got, others[1])
            work.wait()
            self.equal(got, values(others[1], (3,), dtype))
        mine, got = values(self.rank, (1000, 300), torch.float32).t(), torch.zeros((1000, 300)).t()  # column-major
        work = dist.isend(mine.contiguous() if IS_OLD else mine, others[0])
        dist.irecv(got, others[1]).wait()
        work.wait()
        self.equal(got, values(others[1], (1000, 300), torch.float32).t())
        if self.rank == 0:
            got = [torch.zeros(1) for _ in range(self.size - 1)]
            found = {dist.recv(one, tag=5): one.item() for one in got}
            self.assertEqual(found, {rank: float(rank) for rank in range(1, self.size)})
        else:
            dist.send(torch.full((1,), float(self.rank)), 0, tag=5)
        mine, got = torch.full((2,), float(self.rank)), torch.zeros(2)
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, got, others[1]), dist.P2POp(dist.isend, mine, others[0])]
        ):
            work.wait()
        self.equal(got, torch.full((2,), float(others[1])))

    def test_works_and_futures(self):
        tensors = [torch.full((4,), float(self.rank + number)) for number in range(300)]  # more works than names
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works[:150]:
            self.assertTrue(work.wait())
            self.assertTrue(work.is_completed() and work.is_success())
        futures = [work.get_future().then(lambda done: done.value()[0] + 1) for work in works[150:]]
        for number, future in enumerate(futures, 150):
            self.equal(future.wait(), tensors[number] + 1)
        for number, tensor in enumerate(tensors):
            self.equal(tensor, torch.full((4,), float(sum(range(self.size)) + number * self.size)))

    def test_outputs_live_as_long_as_the_program_holds_them(self):
        to, source = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        waited, polled, dropped, received, held = [], [], [], [], []
        for number in range(300):
            rows, other = [torch.zeros(1) for _ in range(self.size)], torch.ones(2)
            work = dist.all_gather(rows, torch.full((1,), float(number)), async_op=True)
            if number % 3 == 0:
                work.wait()
                waited.append(weakref.ref(rows[0]))
            elif number % 3 == 1:
                work.get_future().wait()
                polled.append(weakref.ref(rows[0]))
            else:
                dropped.append(weakref.ref(rows[0]))
            if number in (99, 100):
                held.append((number, work))
            message = dist.isend(other, to)
            dist.irecv(torch.zeros(2), source).wait()
            received.append(weakref.ref(other))
            if number % 2:
                message.wait()
        dist.barrier()
        del work, rows, other, message
        dist.all_reduce(torch.ones(1), async_op=True).wait()  # this wait also checks the dropped works

        def alive(many):
            return sum(one() is not None for one in many)

        self.assertEqual(alive(waited), 1)  # the rows of one held work
        self.assertLess(alive(polled), 10)
        self.assertLess(alive(dropped), 10)
        self.assertLess(alive(received), 10)
        for number, work in held:
            want = [float(number)] * self.size
            self.assertEqual([row.item() for row in work.result()], want)
            self.assertEqual([row.item() for row in work.get_future().wait()], want)
            self.assertTrue(work.wait() and work.is_success())

    def test_barriers(self):
        dist.barrier()
        dist.barrier(self.again)
        self.assertTrue(dist.barrier(async_op=True).wait())

    @unittest.skipIf(IS_OLD, "torch 1.13 has these calls by other names")
    def test_outputs_in_the_input(self):
        whole = torch.arange(3.0 * self.size) + self.rank
        wanted = self.size * torch.arange(3.0 * self.size) + sum(range(self.size))
        own = whole[3 * self.rank : 3 * (self.rank + 1)]
        dist.reduce_scatter_tensor(own, whole)
        self.equal(own, wanted[3 * self.rank : 3 * (self.rank + 1)])
        dist.all_gather_into_tensor(whole, own)
        self.equal(whole, wanted)
        dist.all_gather_into_tensor(whole, whole[:3])
        self.equal(whole, wanted[:3].repeat(self.size))
        mine = torch.arange(float(self.size)) + 10 * self.rank
        dist.all_to_all_single(mine, mine)
        self.equal(mine, 10 * torch.arange(float(self.size)) + self.rank)

    def test_a_work_that_is_asked_until_it_is_complete(self):
        rows = [torch.zeros(3) for _ in range(self.size)]
        work = dist.all_gather(rows, torch.full((3,), float(self.rank)), async_op=True)
        while not work.is_completed():
            time.sleep(0.001)
        self.assertTrue(work.is_success())
        self.equal(torch.stack(rows), torch.arange(float(self.size)).repeat(3, 1).t())

    def test_a_callback_that_waits_for_another_future(self):
        first, second = torch.ones(2), torch.ones(2)

        def callback(done):
            dist.all_reduce(second, async_op=True).get_future().wait()
            return done.value()[0] + second

        future = dist.all_reduce(first, async_op=True).get_future().then(callback)
        self.equal(future.wait(), torch.full((2,), 2.0 * self.size))

    def test_threads_that_wait_for_one_work(self):
        for has_future in (False, True):
            tensor, results = torch.ones(2), []
            dist.barrier()
            if self.rank == 0:
                time.sleep(0.1)  # until the other ranks wait
            work = dist.all_reduce(tensor, async_op=True)
            if has_future:
                work.get_future()
            threads = [threading.Thread(target=lambda: results.append(work.wait())) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(results, [True] * 4)
            self.equal(tensor, torch.full((2,), float(self.size)))

    def test_the_limit_of_a_wait_beside_a_future(self):
        if self.rank == 0:
            work = dist.all_reduce(torch.ones(1), async_op=True)
            future = work.get_future()
            with self.assertRaisesRegex(RuntimeError, "Timed out waiting 100ms for all_reduce"):
                work.wait(datetime.timedelta(seconds=0.1))
        dist.barrier(self.again)  # other ranks arrive later
        if self.rank == 0:
            self.equal(future.wait()[0], torch.full((1,), float(self.size)))
        else:
            dist.all_reduce(torch.ones(1))

    def test_a_wait_after_the_limit_of_another_one(self):
        tensor = torch.ones(2)
        if self.rank == 0:
            work = dist.all_reduce(tensor, async_op=True)
            with self.assertRaisesRegex(RuntimeError, "Timed out waiting 50ms for all_reduce"):
                work.wait(datetime.timedelta(seconds=0.05))
        dist.barrier(self.again)  # other ranks arrive later
        if self.rank != 0:
            work = dist.all_reduce(tensor, async_op=True)
        self.assertTrue(work.wait())
        self.equal(tensor, torch.full((2,), float(self.size)))

    def test_many_coalesced_calls_beside_each_other(self):
        works = []
        for number in range(400):  # more calls than the group stores
            pair = [torch.tensor([7, number]), torch.tensor([3, 2 + 4 * (self.rank == 0)])]
            works.append((pair, dist.all_reduce_coalesced(pair, dist.ReduceOp.BAND, async_op=True), number))
        for pair, work, number in works:
            work.wait()
            self.assertEqual([one.tolist() for one in pair], [[7, number], [3, 2]])

    def test_a_call_that_one_rank_refuses_counts_on_none(self):
        if self.rank == 0:
            with self.assertRaisesRegex(ValueError, "average"):
                dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG)
        dense = torch.eye(3) * (self.rank + 1)
        sparse = dense.to_sparse()
        dist.all_reduce(sparse)
        self.equal(sparse.to_dense(), torch.eye(3) * (self.size * (self.size + 1) / 2))

    def test_calls_on_the_memory_of_earlier_ones(self):
        tensor = torch.ones(100000)
        dist.barrier()
        if self.rank == 0:
            time.sleep(0.1)  # the other ranks' first calls stay in flight
        works = [dist.all_reduce(tensor, async_op=True), dist.all_reduce(tensor[:-1], async_op=True)]
        works.append(dist.broadcast(tensor, 1, async_op=True))
        dist.all_reduce(tensor)
        for work in works:
            work.wait()
        self.assertEqual(tensor[[0, -2, -1]].tolist(), [self.size**3, self.size**3, self.size**2])

    def test_the_tag_of_the_watch_is_refused(self):
        for call in (dist.isend, dist.irecv):
            with self.assertRaisesRegex(ValueError, "the tag 2147483647 is in use by the backend"):
                call(torch.ones(1), (self.rank + 1) % self.size, tag=2**31 - 1)


class GroupsTest(GroupCase):
    def test_a_group_of_some_ranks(self):
        if self.rank == 0:
            self.assertIn(self.part, (None, dist.GroupMember.NON_GROUP_MEMBER))
            return
        ones = torch.ones(2)
        dist.all_reduce(ones, group=self.part)
        self.equal_numbers(ones, self.size - 1)
        got = torch.full((2,), float(self.rank))
        dist.broadcast(got, self.size - 1, group=self.part)
        self.equal_numbers(got, self.size - 1)
        rows = [torch.zeros(1) for _ in range(self.size - 1)]
        dist.all_gather(rows, torch.full((1,), float(self.rank)), group=self.part)
        self.assertEqual([row.item() for row in rows], [float(rank) for rank in range(1, self.size)])

    def equal_numbers(self, tensor, number):
        self.assertEqual(tensor.tolist(), [float(number)] * tensor.numel())

    def test_a_group_in_another_order_of_ranks(self):
        if "sort_ranks" not in inspect.signature(dist.new_group).parameters:
            self.skipTest("this torch sorts the ranks")
        order = [*range(1, self.size), 0]
        for backend in ("horovod", "gloo"):
            group = dist.new_group(order, backend=backend, sort_ranks=False)
            mine = order.index(self.rank)
            self.assertEqual((dist.get_rank(group), dist.get_process_group_ranks(group)), (mine, order))
            rows = torch.zeros(self.size)
            dist.all_gather_into_tensor(rows, torch.full((1,), float(self.rank)), group=group)
            self.assertEqual(rows.tolist(), [float(rank) for rank in order])
            part = torch.zeros(1)
            dist.reduce_scatter_tensor(part, torch.arange(float(self.size)), group=group)
            self.equal_numbers(part, mine * self.size)
            # Each rank sends as many elements as the receiver's rank in the group, plus one.
            received = torch.zeros(self.size * (mine + 1))
            sent = torch.cat([torch.full((to + 1,), 10.0 * mine + to) for to in range(self.size)])
            dist.all_to_all_single(
                received, sent, [mine + 1] * self.size, [to + 1 for to in range(self.size)], group=group
            )
            self.assertEqual(
                received.tolist(), [10.0 * sender + mine for sender in range(self.size) for _ in range(mine + 1)]
            )
            parts = [torch.full((1,), 5.0 + to) for to in range(self.size)] if mine == 0 else None
            got = torch.zeros(1)
            dist.scatter(got, parts, src=order[0], group=group)
            self.equal_numbers(got, 5 + mine)
            gathered = [torch.zeros(1) for _ in order] if mine == 1 else None
            dist.gather(got, gathered, dst=order[1], group=group)
            if mine == 1:
                self.assertEqual([one.item() for one in gathered], [5.0 + rank for rank in range(self.size)])
            dist.all_reduce(got, group=group)
            self.equal_numbers(got, sum(5 + rank for rank in range(self.size)))
            dist.destroy_process_group(group)

    def test_groups_that_come_and_go(self):
        for _ in range(5):
            groups = [dist.new_group(backend="horovod") for _ in range(2)]
            for group in groups:
                ones = torch.ones(1)
                dist.all_reduce(ones, group=group)
                self.equal_numbers(ones, self.size)
            for group in groups:
                dist.destroy_process_group(group)

    def test_ranks_work_in_their_own_order_across_groups(self):
        """Each rank uses the groups in a different order, asynchronously."""
        groups = [dist.new_group(backend="horovod") for _ in range(3)]
        for turn in range(20):
            order = [(number + self.rank + turn) % 3 for number in range(3)]
            tensors = [torch.full((50,), float(number + self.rank)) for number in range(3)]
            works = [dist.all_reduce(tensors[number], group=groups[number], async_op=True) for number in order]
            for work in works:
                work.wait()
            for number, tensor in enumerate(tensors):
                self.equal_numbers(tensor, sum(range(self.size)) + number * self.size)
        for group in groups:
            dist.destroy_process_group(group)

    def test_threads_that_use_a_group_each(self):
        groups = [dist.new_group(backend="horovod") for _ in range(3)]
        failures = []

        def work(number):
            try:
                for turn in range(30):
                    size = (5, 3000, 60000)[(turn + number) % 3]
                    mine = torch.full((size,), float(self.rank + turn + number))
                    dist.all_reduce(mine, group=groups[number])
                    self.equal_numbers(mine, sum(range(self.size)) + (turn + number) * self.size)
                    rows = [torch.zeros(7) for _ in range(self.size)]
                    dist.all_gather(rows, torch.full((7,), float(self.rank)), group=groups[number])
                    self.assertEqual([row[6].item() for row in rows], [float(rank) for rank in range(self.size)])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for group in groups:
            dist.destroy_process_group(group)

    def test_a_group_that_ends_right_after_its_last_call(self):
        for turn in range(20):
            group = dist.new_group(backend="horovod")
            mine = torch.full((20000,), float(self.rank))
            dist.all_reduce(mine, group=group)
            dist.destroy_process_group(group)
            self.equal_numbers(mine, sum(range(self.size)))

    def test_a_group_completes_its_calls_before_it_ends(self):
        for has_future in (False, True):
            group = dist.new_group(backend="horovod")
            mine = torch.full((1000,), float(self.rank))
            if self.rank == 0:
                time.sleep(0.1)
                dist.reduce(mine, 0, group=group)
                self.equal_numbers(mine, sum(range(self.size)))
            else:
                work = dist.reduce(mine, 0, group=group, async_op=True)
                future = work.get_future() if has_future else None
                del work
            dist.destroy_process_group(group)
            if self.rank != 0 and has_future:
                future.wait()  # the call completed the future

    def test_a_callback_that_waits_for_a_sparse_sum(self):
        sparse, dense = torch.eye(3).to_sparse(), torch.ones(2)
        first = dist.all_reduce(sparse, async_op=True)
        second = dist.all_reduce(dense, async_op=True)
        second.get_future().then(lambda done: first.wait()).wait()
        self.close(sparse.to_dense(), self.size * torch.eye(3))
        self.equal_numbers(dense, self.size)

    def test_groups_that_some_ranks_do_not_use(self):
        everyone = list(range(self.size))
        numbers = [_calls.create("used by one rank", everyone) for _ in range(300)]
        for number in numbers:
            if self.rank == 0:
                call = _calls.submit(number, _calls.Op.BARRIER, None, 0, None, None, 0)
            dist.barrier()
            _calls.destroy(number)
            if self.rank == 0:
                with self.assertRaisesRegex(RuntimeError, "destroyed"):
                    _native.wait_for(call, SECONDS)
        group, ones = dist.new_group(backend="horovod"), torch.ones(3)
        dist.all_reduce(ones, group=group)
        self.equal_numbers(ones, self.size)
        dist.destroy_process_group(group)

    def test_a_group_completes_its_sends_before_it_ends(self):
        group, many = dist.new_group(backend="horovod"), 1 << 20
        if self.rank == 0:
            dist.isend(torch.full((many,), 7.0), 1, group=group)
        elif self.rank == 1:
            time.sleep(0.2)
            got = torch.zeros(many)
            dist.recv(got, 0, group=group)
            self.equal_numbers(got, 7)
        dist.destroy_process_group(group)

    def test_a_sparse_sum_that_times_out_on_one_rank(self):
        group = dist.new_group(backend="horovod")

        def add():
            sparse = torch.eye(3).to_sparse()
            group.allreduce([sparse], dist.AllreduceOptions()).wait()
            self.close(sparse.to_dense(), self.size * torch.eye(3))

        if self.rank == 0:
            group._set_default_timeout(datetime.timedelta(seconds=0.3))
            with self.assertRaisesRegex(RuntimeError, "Timed out waiting 300ms for sparse_all_reduce as call 1"):
                add()
            group._set_default_timeout(datetime.timedelta(seconds=SECONDS))
        dist.barrier()
        if self.rank != 0:
            add()
        ones = torch.ones(2)
        dist.all_reduce(ones, group=group)
        self.equal_numbers(ones, self.size)
        add()
        dist.destroy_process_group(group)

    def test_a_group_that_is_aborted_waits_for_no_call(self):
        group = dist.new_group(backend="horovod")
        if self.rank == 0:
            work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
            group.abort()
            with self.assertRaisesRegex(RuntimeError, "was destroyed"):
                work.wait()
        dist.barrier()
        dist.destroy_process_group(group)


class RandomProgramsTest(GroupCase):
    """Programs over overlapping groups, each rank in its own order across groups, compared with gloo's results."""

    PROGRAMS = int(os.environ.get("HVD_TEST_PROGRAMS", "50"))
    COUNTS = [1, 7, 1000, 40000] if IS_OLD else [0, 1, 7, 1000, 40000]  # gloo of torch 1.13 divides by 0
    KINDS = ("all_reduce", "broadcast", "all_gather", "all_to_all", "reduce", "gather", "scatter", "barrier")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if hasattr(GroupCase, "pairs"):
            return
        everyone = list(range(cls.size))
        members = [everyone, everyone, everyone[: cls.size // 2 + 1], everyone[cls.size // 2 :]]
        # For each list of ranks: its group on horovod, its group on gloo, and the list.
        GroupCase.pairs = [
            (dist.new_group(ranks, backend="horovod"), dist.new_group(ranks, backend="gloo"), ranks)
            for ranks in members
        ]

    def call(self, step, group, ranks):
        """Starts the step, and returns its work and its tensors."""
        kind, salt, count, dtype = step
        mine = values(self.rank, (count,), dtype, salt)
        if kind == "all_reduce":
            op = (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[salt % 2]
            return dist.all_reduce(mine, op, group=group, async_op=True), [mine]
        if kind == "broadcast":
            return dist.broadcast(mine, ranks[salt % len(ranks)], group=group, async_op=True), [mine]
        if kind == "reduce":
            root = ranks[salt % len(ranks)]
            work = dist.reduce(mine, root, group=group, async_op=True)
            return work, [mine] if self.rank == root else []
        rows = [torch.zeros_like(mine) for _ in ranks]
        if kind == "all_gather":
            return dist.all_gather(rows, mine, group=group, async_op=True), rows
        if kind == "barrier":
            return dist.barrier(group=group, async_op=True), []
        if kind in ("gather", "scatter"):
            root = ranks[salt % len(ranks)]
            is_root = self.rank == root
            if kind == "gather":
                work = dist.gather(mine, rows if is_root else None, root, group=group, async_op=True)
                return work, rows if is_root else []
            given = [values(rank, (count,), dtype, salt) for rank in ranks]
            work = dist.scatter(mine, given if is_root else None, root, group=group, async_op=True)
            return work, [mine]
        mine = values(self.rank, (count * len(ranks),), dtype, salt)
        output = torch.zeros_like(mine)
        return dist.all_to_all_single(output, mine, group=group, async_op=True), [output]

    def test_random_programs(self):
        for number in range(self.PROGRAMS):
            common, own = random.Random(number), random.Random(1000 * number + self.rank)
            programs = [
                [
                    (
                        common.choice(self.KINDS),
                        common.randrange(1000),
                        common.choice(self.COUNTS),
                        common.choice([torch.float32, torch.int64]),
                    )
                    for _ in range(common.randrange(1, 5))
                ]
                for _ in self.pairs
            ]
            mine = {
                which: list(steps)
                for which, (steps, pair) in enumerate(zip(programs, self.pairs))
                if self.rank in pair[2]
            }
            started = []
            while any(mine.values()):
                which = own.choice([one for one, steps in mine.items() if steps])
                started.append((which, self.call(mine[which].pop(0), self.pairs[which][0], self.pairs[which][2])))
            works = [work for _, (work, _) in started]
            own.shuffle(works)
            for work in works:
                work.wait()
            for which, (steps, (_, gloo, ranks)) in enumerate(zip(programs, self.pairs)):
                if self.rank not in ranks:
                    continue
                ours = [tensors for one, (_, tensors) in started if one == which]
                for step, tensors in zip(steps, ours):
                    work, wanted = self.call(step, gloo, ranks)
                    work.wait()
                    self.assertEqual(len(tensors), len(wanted))
                    for got, want in zip(tensors, wanted):
                        self.close(got, want, (number, which, step))


class ErrorsTest(GroupCase):
    """A difference between ranks is an error on every rank, and the group stays usable."""

    def differs(self, mine, other, words):
        with self.assertRaisesRegex(RuntimeError, words):
            (other if self.rank == self.size - 1 else mine)()
        ones = torch.ones(1)
        dist.all_reduce(ones)
        self.assertEqual(ones.item(), self.size)

    def test_shapes_of_sparse_tensors(self):
        self.differs(
            lambda: dist.all_reduce(torch.eye(3).to_sparse()),
            lambda: dist.all_reduce(torch.eye(4).to_sparse()),
            "Mismatched",
        )

    def test_counts(self):
        self.differs(
            lambda: dist.all_reduce(torch.ones(3)),
            lambda: dist.all_reduce(torch.ones(4)),
            r"call \d+: rank 0 calls allreduce of 3 elements of float32 \(sum\), and "
            rf"rank {self.size - 1} calls allreduce of 4 elements of float32 \(sum\)",
        )
        self.differs(
            lambda: dist.all_reduce(torch.ones(100000)),
            lambda: dist.all_reduce(torch.ones(3)),
            "rank 0 calls allreduce of 100000 elements",
        )

    def test_dtypes(self):
        self.differs(
            lambda: dist.all_reduce(torch.ones(3)), lambda: dist.all_reduce(torch.ones(3).double()), "of float64"
        )
        if not hasattr(torch, "float8_e5m2"):
            return
        ones, others = torch.ones(3).to(torch.float8_e5m2), torch.ones(3).to(torch.float8_e4m3fn)
        self.differs(lambda: dist.broadcast(ones, 0), lambda: dist.broadcast(others, 0), "with tag")
        self.differs(lambda: dist.broadcast(ones, 0), lambda: dist.broadcast(ones.view(torch.uint8), 0), "with tag")

    def test_reductions(self):
        self.differs(
            lambda: dist.all_reduce(torch.ones(3)),
            lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX),
            r"\(max\)",
        )
        bits, ops = torch.ones(self.size, dtype=torch.int64), dist.ReduceOp
        for call in (
            lambda op: dist.all_reduce(bits, op),
            lambda op: dist.reduce(bits, 0, op),
            lambda op: dist.reduce_scatter(bits[:1].clone(), list(bits.split(1)), op),
        ):
            self.differs(lambda: call(ops.BAND), lambda: call(ops.BOR), "with tag 1.* with tag 2")
        self.differs(lambda: dist.reduce(bits, 0, ops.BAND), lambda: dist.reduce(bits, 1, ops.BAND), "to rank 1")
        self.differs(
            lambda: dist.all_reduce(bits, ops.BAND),
            lambda: dist.all_gather([bits.clone() for _ in range(self.size)], bits),
            "with tag 1, and",
        )

    def test_sizes_of_several_tensors(self):
        sizes = [2, 3] if self.rank < self.size - 1 else [3, 2]
        tensors = [torch.ones(size) for size in sizes]
        self.differs(*[lambda: dist.all_reduce_coalesced(tensors)] * 2, "with tag")

    def test_nothing_is_overwritten(self):
        mine, rows = torch.full((3,), 7.0), torch.full((self.size, 3), 7.0)
        self.differs(lambda: dist.all_reduce(mine), lambda: dist.reduce(mine, 0), "calls reduce of 3 elements")
        self.differs(
            lambda: dist.all_gather(list(rows.unbind(0)), mine), lambda: dist.broadcast(mine, 0), "calls broadcast"
        )
        if not IS_OLD:
            op = dist._make_nccl_premul_sum(torch.tensor([2.0]))
            self.differs(lambda: dist.all_reduce(mine, op), lambda: dist.reduce(mine, 0, op), "calls reduce of 3")
        self.assertEqual((mine.tolist(), rows.unique().tolist()), ([7.0] * 3, [7.0]))

    def test_kinds(self):
        tensor = torch.ones(3)
        rows = [torch.ones(3) for _ in range(self.size)]
        last = self.size - 1
        self.differs(lambda: dist.all_reduce(tensor), lambda: dist.barrier(), f"rank {last} calls barrier")
        self.differs(
            lambda: dist.all_gather(rows, tensor), lambda: dist.all_reduce(tensor), "allgather of 3 .*allreduce"
        )
        self.differs(
            lambda: dist.all_to_all(rows, [tensor] * self.size), lambda: dist.all_gather(rows, tensor), "alltoall of"
        )
        self.differs(
            lambda: dist.all_to_all(rows, [tensor] * self.size),
            lambda: dist.gather(tensor, rows, dst=last),
            f"calls gather of 3 elements of float32 to rank {last}",
        )
        if not IS_OLD:  # horovod sums no sparse tensors of dist.all_reduce
            before = len(_native.pending)
            self.differs(lambda: dist.barrier(), lambda: dist.all_reduce(tensor.to_sparse()), "barrier with tag")
            self.assertLessEqual(len(_native.pending), before)  # no part of the sum is left

    @unittest.skipIf(IS_OLD, "torch 1.13 has no descriptions")
    def test_names_of_groups(self):
        group = dist.new_group(backend="horovod", group_desc="tensor parallel")
        root = 0 if self.rank < self.size - 1 else 1
        dist.all_reduce(torch.ones(1), group=group)
        with self.assertRaisesRegex(RuntimeError, r"^group \w+ \(tensor parallel\), call 2: rank 0 calls broadcast"):
            dist.broadcast(torch.ones(1), root, group=group)
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        self.assertRegex(work._name(), r"^all_reduce as call 3 of group \w+ \(tensor parallel\)$")
        work.wait()
        self.differs(lambda: dist.barrier(), lambda: dist.all_reduce(torch.ones(1)), r"^group 0 \(default_pg\), call ")
        dist.destroy_process_group(group)

    def test_roots(self):
        tensor, rows = torch.ones(3), [torch.ones(3) for _ in range(self.size)]
        self.differs(lambda: dist.broadcast(tensor, 0), lambda: dist.broadcast(tensor, 1), "from rank 1")
        self.differs(lambda: dist.reduce(tensor, 0), lambda: dist.reduce(tensor, 1), "to rank 1")
        self.differs(
            lambda: dist.scatter(tensor, rows if self.rank == 0 else None, 0),
            lambda: dist.scatter(tensor, rows if self.rank == 1 else None, 1),
            "scatter of 3 elements of float32 from rank 1",
        )

    def test_splits(self):
        mine, got = torch.ones(self.size), torch.zeros(self.size)
        wrong = [2, *[1] * (self.size - 1)]
        self.differs(
            lambda: dist.all_to_all_single(got, mine),
            lambda: dist.all_to_all_single(torch.zeros(self.size + 1), mine, wrong, [1] * self.size),
            f"rank 0 sends 1 elements to rank {self.size - 1}, which expects 2",
        )

    def test_a_rank_that_does_not_come(self):
        group = dist.new_group(backend="horovod", timeout=datetime.timedelta(seconds=0.3))
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "Timed out waiting 300ms for barrier"):
                dist.barrier(group)
            with self.assertRaisesRegex(RuntimeError, "Timed out waiting 300ms for all_reduce"):
                dist.all_reduce(torch.ones(3), group=group)
        dist.barrier()

    def test_a_call_on_the_memory_of_one_that_stays_in_flight(self):
        group, ones = dist.new_group(backend="horovod"), torch.ones(3)
        if self.rank == 0:
            group._set_default_timeout(datetime.timedelta(seconds=0.1))
            work = dist.all_reduce(ones, group=group, async_op=True)
            with self.assertRaisesRegex(ValueError, "overlaps the output of allreduce '.*, call 1', which is in"):
                dist.all_reduce(ones, group=group)
        dist.barrier()
        if self.rank != 0:
            work = dist.all_reduce(ones, group=group, async_op=True)
        work.wait()
        self.assertEqual(ones.tolist(), [self.size] * 3)

    def test_a_group_that_one_rank_gives_up(self):
        place, ranks = None, list(range(self.size))

        def join(seconds):
            more = ("given up", "given up", datetime.timedelta(seconds=seconds))
            return _ranks.join(None, self.rank, self.size, ranks, *more)

        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "Timed out waiting"):
                join(0.2)
        dist.barrier()
        if self.rank != 0:
            place = join(SECONDS)
            call = _calls.submit(place.group, _calls.Op.BARRIER, None, 0, None, None, 0)
            with self.assertRaisesRegex(RuntimeError, "call 1 cannot run: rank 0 has destroyed the group"):
                _native.wait_for(call, SECONDS)
            _calls.destroy(place.group)
        group, ones = dist.new_group(backend="horovod"), torch.ones(1)  # all ranks give the group the same number
        dist.all_reduce(ones, group=group)
        self.assertEqual(ones.item(), self.size)
        dist.destroy_process_group(group)

    @unittest.skipIf(torch.cuda.is_available(), "this machine has such a device")
    def test_tensors_elsewhere(self):
        with self.assertRaisesRegex((RuntimeError, NotImplementedError), "meta"):
            dist.all_reduce(torch.ones(3, device="meta"))


if __name__ == "__main__":
    main()
