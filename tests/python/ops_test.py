"""Every collective and dtype, compared with torch on the inputs of all ranks."""

import rank_case
from rank_case import FLOATS, RankCase, hvd, reduced, torch, values


class AllreduceTest(RankCase):
    def test_every_way_to_call_an_allreduce_in_place(self):
        total, mean = float(sum(range(self.size))), sum(range(self.size)) / self.size

        def tensor():
            return torch.full((3,), float(self.rank))

        class Name(str):
            pass

        for call in [hvd.allreduce_, lambda *args, **kwargs: hvd.synchronize(hvd.allreduce_async_(*args, **kwargs))]:
            for args, kwargs, want in [
                ((), {}, mean),
                ((None, "in"), {}, mean),
                ((None, "in", hvd.Sum), {}, total),
                ((), {"name": "in", "op": hvd.Sum}, total),
                ((), {"op": hvd.Sum, "name": "grad\N{LATIN SMALL LETTER E WITH ACUTE}"}, total),
                ((), {"name": Name("in"), "op": None}, mean),
                ((), {"name": "n" * 300, "op": hvd.Sum}, total),
                ((None, "in", hvd.Sum, 2.0), {"postscale_factor": 3.0}, 6 * total),
                ((None, "in", hvd.Sum, 2, 3), {}, 6 * total),
                ((), {"name": "in", "process_set": hvd.global_process_set}, mean),
            ]:
                given = tensor()
                self.assertIs(call(given, *args, **kwargs), given)
                self.assert_equal_tensors(given, torch.full((3,), want), (args, kwargs))
            given = tensor()
            call(tensor=given, op=hvd.Sum, name="in")
            self.assert_equal_tensors(given, torch.full((3,), total))
            with self.assertWarns(DeprecationWarning):
                call(tensor(), False, "in")
            for args, kwargs, error in [
                ((), {}, TypeError),
                ((tensor(),), {"names": "in"}, TypeError),
                ((tensor(), None), {"average": None}, TypeError),
                ((tensor(), None, "in", hvd.Sum, 1.0, 1.0, hvd.global_process_set, 1), {}, TypeError),
                ((tensor(), True, "in", hvd.Sum), {}, ValueError),
                ((tensor(), None, "in", 17), {}, ValueError),
                ((tensor(), None, "in", hvd.Sum, 0.0), {}, ValueError),
                ((tensor(), None, "a\0b"), {}, ValueError),
                (("text", None, "in"), {}, ValueError),
            ]:
                with self.assertRaises(error, msg=str((args, kwargs))):
                    call(*args, **kwargs)
        self.assertIn("prescale_factor", hvd.allreduce_.__text_signature__)
        self.assertIn("in place", hvd.allreduce_.__doc__)

    def test_the_default_is_the_average(self):
        got = hvd.allreduce(torch.full((3,), float(self.rank)))
        self.assert_close(got, torch.full((3,), (self.size - 1) / 2), torch.float32)

    def test_the_average_of_integers_is_cut_towards_zero(self):
        for sign in [1, -1]:
            total = sum(sign * 3 * (rank + 1) for rank in range(self.size))
            got = hvd.allreduce(torch.tensor([sign * 3 * (self.rank + 1)]))
            self.assertEqual(got.tolist(), [int(total / self.size)])

    def test_factors_before_and_after(self):
        for dtype in FLOATS:
            got = hvd.allreduce(values(self.rank, dtype, (9,)), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
            self.assert_close(got, 2 * reduced(hvd.Sum, self.size, dtype, (9,)), dtype, dtype)

    def test_named_in_place_tensors_of_every_kind(self):
        # Tensors for the fast path (named and dense), and tensors that it must refuse.
        kinds = {
            "plain": torch.ones(3),
            "scalar": torch.tensor(1.0),
            "nine dimensions": torch.ones([1] * 9),
            "parameter": torch.nn.Parameter(torch.ones(2)).detach(),
            "strided": torch.ones(3, 4).t(),
            "nämé": torch.ones(2),
            "long " * 100: torch.ones(2),
            "half": torch.ones(2, dtype=torch.float16),
        }
        for name, tensor in kinds.items():
            for _ in range(2):
                self.assertIs(hvd.allreduce_(tensor, name=name, op=hvd.Sum), tensor)
                self.assertTrue((tensor == self.size).all(), name)
                tensor.fill_(1)
        tensor = torch.ones(2)
        for factors in [{"prescale_factor": 0.0}, {"postscale_factor": 0.0}]:
            with self.assertRaises(ValueError):
                hvd.allreduce_(tensor, name="nothing", **factors)
        with self.assertRaises(ValueError):
            hvd.allreduce_([1.0], name="a list")

    def test_handles(self):
        tensor = values(self.rank, torch.float32, (5,))
        out = hvd.allreduce_async(tensor, name="out", op=hvd.Sum)
        inside = hvd.allreduce_async_(tensor.clone(), name="in", op=hvd.Sum)
        self.assertIsInstance(out, int)
        want = reduced(hvd.Sum, self.size, torch.float32, (5,))
        while not hvd.poll(out):
            pass
        self.assert_equal_tensors(hvd.synchronize(out), want)
        self.assert_equal_tensors(hvd.synchronize(inside), want)
        self.assertIsNone(hvd.synchronize(out))
        with self.assertRaises(ValueError):
            hvd.poll(out)

    def test_many_in_flight_finish_in_any_order_of_waiting(self):
        handles = [
            hvd.allreduce_async(torch.full((7,), float(index)), name=f"many{index}", op=hvd.Sum) for index in range(300)
        ]
        for index in reversed(range(300)):
            got = hvd.synchronize(handles[index])
            self.assert_equal_tensors(got, torch.full((7,), float(index * self.size)))

    def test_ranks_may_submit_in_different_orders(self):
        order = list(range(40))
        if self.rank % 2:
            order.reverse()
        handles = {
            index: hvd.allreduce_async(torch.full((3,), float(index)), name=f"order{index}", op=hvd.Sum)
            for index in order
        }
        for index, handle in handles.items():
            self.assert_equal_tensors(hvd.synchronize(handle), torch.full((3,), float(index * self.size)))

    def test_inputs_live_until_the_work_is_complete(self):
        handles = [
            hvd.allreduce_async_(torch.full((1000,), 1.0), name=f"temporary{index}", op=hvd.Sum) for index in range(20)
        ]
        trash = [torch.zeros(1000) for _ in range(100)]
        for handle in handles:
            self.assert_equal_tensors(hvd.synchronize(handle), torch.full((1000,), float(self.size)))
        del trash

    def test_strided_tensors(self):
        square = values(self.rank, torch.float32, (6, 4))
        want = reduced(hvd.Sum, self.size, torch.float32, (6, 4))
        self.assert_equal_tensors(hvd.allreduce(square.t(), op=hvd.Sum), want.t())
        strided = square.clone()
        hvd.allreduce_(strided[:, 1::2], op=hvd.Sum)
        self.assert_equal_tensors(strided[:, 1::2], want[:, 1::2])
        self.assert_equal_tensors(strided[:, 0::2], square[:, 0::2])
        image = values(self.rank, torch.float32, (2, 3, 4, 5))
        image = image.contiguous(memory_format=torch.channels_last)
        want = reduced(hvd.Sum, self.size, torch.float32, (2, 3, 4, 5))
        self.assert_equal_tensors(hvd.allreduce_(image, op=hvd.Sum), want)

    def test_groups(self):
        shapes = [(3,), (2, 2), (0,), (1000,)]
        tensors = [values(self.rank, torch.float32, shape) for shape in shapes]
        want = [reduced(hvd.Average, self.size, torch.float32, shape) for shape in shapes]
        got = hvd.grouped_allreduce(tensors, name="group")
        self.assertIsInstance(got, list)
        self.assertIsInstance(hvd.grouped_reducescatter([torch.ones(2)]), list)
        inside = [tensor.clone() for tensor in tensors]
        for mine, given in zip(hvd.grouped_allreduce_(inside), inside):
            self.assertIs(mine, given)
        later = hvd.synchronize(hvd.grouped_allreduce_async(tensors))
        later_inside = hvd.synchronize(hvd.grouped_allreduce_async_([t.clone() for t in tensors]))
        for results in [later, later_inside, hvd.grouped_allgather([torch.ones(2)])]:
            self.assertIsInstance(results, tuple)
        for results in [got, inside, later, later_inside]:
            for result, wanted in zip(results, want):
                self.assert_close(result, wanted, torch.float32)
        with self.assertRaises(ValueError):
            hvd.grouped_allreduce([])

    def test_compression(self):
        for compression, tolerance in [(hvd.Compression.fp16, 1e-3), (hvd.Compression.bf16, 1e-2)]:
            for dtype in [torch.float32, torch.float64]:
                got = hvd.allreduce(torch.full((4,), 1.1 * (self.rank + 1), dtype=dtype), compression=compression)
                want = torch.full((4,), 1.1 * (self.size + 1) / 2, dtype=dtype)
                self.assertEqual(got.dtype, dtype)
                self.assertTrue(torch.allclose(got, want, rtol=tolerance), f"{got} {want}")
            integers = hvd.allreduce(torch.tensor([2]), compression=compression, op=hvd.Sum)
            self.assert_equal_tensors(integers, torch.tensor([2 * self.size]))

    def test_a_maximum_has_no_gradient(self):
        with self.assertRaises(NotImplementedError):
            hvd.allreduce(torch.ones(1, requires_grad=True), op=hvd.Max).sum().backward()

    def test_average_is_the_deprecated_way_to_say_the_op(self):
        with self.assertWarns(DeprecationWarning):
            got = hvd.allreduce(torch.ones(2), average=False)
        self.assert_equal_tensors(got, torch.full((2,), float(self.size)))
        with self.assertRaises(ValueError):
            hvd.allreduce(torch.ones(2), average=True, op=hvd.Sum)

    def test_sparse(self):
        tensor = torch.sparse_coo_tensor([[self.rank, 5]], [1.0, 2.0], (8,))
        for op, factor in [(hvd.Sum, 1), (hvd.Average, 1 / self.size)]:
            got = hvd.sparse_allreduce_async(tensor, f"sparse{op}", op)().to_dense()
            want = torch.zeros(8)
            for rank in range(self.size):
                want[rank] += factor
                want[5] += 2 * factor
            self.assert_close(got, want, torch.float32)


class AllgatherTest(RankCase):
    def test_ranks_may_give_different_numbers_of_rows_and_none(self):
        for rows_of in [lambda rank: rank + 1, lambda rank: rank, lambda rank: 0, lambda rank: 50000 * (rank == 0)]:
            got = hvd.allgather(torch.full((rows_of(self.rank), 2), self.rank))
            want = torch.cat([torch.full((rows_of(r), 2), r) for r in range(self.size)])
            self.assert_equal_tensors(got, want)

    def test_handles_groups_and_strides(self):
        tensor = values(self.rank, torch.float32, (4, 3))
        want = torch.cat([values(rank, torch.float32, (4, 3)).t() for rank in range(self.size)])
        self.assert_equal_tensors(hvd.synchronize(hvd.allgather_async(tensor.t())), want)
        group = [tensor.t(), torch.tensor([self.rank])]
        for first, second in [hvd.grouped_allgather(group), hvd.synchronize(hvd.grouped_allgather_async(group))]:
            self.assert_equal_tensors(first, want)
            self.assert_equal_tensors(second, torch.arange(self.size))

    def test_results_outlive_the_runtime_s_memory(self):
        results = [hvd.allgather(torch.full((100,), index)) for index in range(20)]
        for index, result in enumerate(results):
            self.assert_equal_tensors(result, torch.full((100 * self.size,), index))

    def test_a_scalar_of_one_rank_fails_on_all(self):
        has_scalar = self.rank == self.size - 1
        with self.assertRaisesRegex(hvd.HorovodInternalError, "rank-zero tensor"):
            hvd.allgather(torch.tensor(1.0) if has_scalar else torch.ones(1), name="scalar")
        with self.assertRaisesRegex(hvd.HorovodInternalError, "rank-zero tensor"):
            hvd.alltoall(torch.tensor(1.0) if has_scalar else torch.ones(self.size), name="scalar")


class AlltoallTest(RankCase):
    def test_the_gradient_goes_back_to_the_sender(self):
        splits = [(self.rank + 2 * receiver) % 3 for receiver in range(self.size)]
        tensor = torch.ones(sum(splits), 2, dtype=torch.float64, requires_grad=True)
        got, _ = hvd.alltoall(tensor, splits)
        (got.sum() * (self.rank + 1)).backward()
        want = [torch.full((rows, 2), receiver + 1.0, dtype=torch.float64) for receiver, rows in enumerate(splits)]
        self.assert_equal_tensors(tensor.grad, torch.cat(want))


class ReducescatterTest(RankCase):
    def own(self, tensor):
        """Returns this rank's rows; if they do not divide evenly, the first ranks get one more."""
        return torch.tensor_split(tensor, self.size)[self.rank]

    def test_groups_handles_and_factors(self):
        tensor = values(self.rank, torch.float32, (5, 2))
        want = self.own(reduced(hvd.Sum, self.size, torch.float32, (5, 2)))
        group = [tensor, tensor.double()]
        for first, second in [
            hvd.grouped_reducescatter(group, op=hvd.Sum),
            hvd.synchronize(hvd.grouped_reducescatter_async(group, op=hvd.Sum)),
        ]:
            self.assert_close(first, want, torch.float32)
            self.assert_close(second, want, torch.float64)
        handle = hvd.reducescatter_async(tensor, op=hvd.Sum, prescale_factor=2.0)
        self.assert_close(hvd.synchronize(handle), 2 * want, torch.float32)


class BroadcastTest(RankCase):
    def test_strided_in_place(self):
        tensor = values(self.rank, torch.float32, (6, 4))
        hvd.broadcast_(tensor.t()[1:3], 0)
        self.assert_equal_tensors(tensor[:, 1:3], values(0, torch.float32, (6, 4))[:, 1:3])
        self.assert_equal_tensors(tensor[:, 3], values(self.rank, torch.float32, (6, 4))[:, 3])


class ObjectTest(RankCase):
    def test_objects_of_every_size_from_every_root(self):
        for root in range(self.size):
            for thing in [None, 0, {"a": [1, (2.5, "x")]}, b"x" * 100000, torch.arange(3)]:
                got = hvd.broadcast_object(thing if self.rank == root else "other", root)
                self.assertEqual(repr(got), repr(thing))

    def test_an_object_that_the_root_cannot_pickle_fails_everywhere(self):
        with self.assertRaises(Exception) as caught:
            hvd.broadcast_object((n for n in [1]) if self.rank == 0 else None, name="generator")
        self.assertIsInstance(caught.exception, TypeError if self.rank == 0 else hvd.HorovodInternalError)
        self.assertEqual(hvd.broadcast_object(self.rank, name="generator"), 0)

    def test_an_object_that_one_rank_cannot_pickle_fails_everywhere(self):
        last = self.size - 1
        with self.assertRaises(Exception) as caught:
            hvd.allgather_object((n for n in [1]) if self.rank == last else self.rank)
        if self.rank == last:
            self.assertIsInstance(caught.exception, TypeError)
        else:
            self.assertIsInstance(caught.exception, hvd.HorovodInternalError)
            self.assertRegex(str(caught.exception), f"rank {last} could not pickle")
        self.assertEqual(hvd.allgather_object(self.rank), list(range(self.size)))

    def test_splits_may_be_whatever_has_whole_numbers(self):
        class Numbers:  # numpy arrays have no truth value
            def __init__(self, numbers):
                self.numbers = numbers

            def __bool__(self):
                raise ValueError("the truth of more than one number")

            def __len__(self):
                return len(self.numbers)

            def __getitem__(self, index):
                return self.numbers[index]

        ones = [1] * self.size
        rows = torch.arange(self.size) + 10 * self.rank
        for splits in [ones, tuple(ones), torch.tensor(ones), Numbers(ones)]:
            got, received = hvd.alltoall(rows, splits=splits)
            self.assertEqual(got.tolist(), [10 * rank + self.rank for rank in range(self.size)])
            self.assertEqual(received.tolist(), ones)
        with self.assertRaisesRegex(ValueError, "whole numbers"):
            hvd.alltoall(rows, splits=torch.ones(self.size))


try:
    import table_case
    import table_facades
except ImportError:  # the tests above need torch alone
    pass
else:

    class TorchTableTest(table_case.TableCase):
        make_facade = table_facades.Torch


if __name__ == "__main__":
    rank_case.main()
