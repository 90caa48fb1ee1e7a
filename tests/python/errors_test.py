"""Errors reach every rank, and Horovod stays usable afterwards."""

import rank_case
from rank_case import RankCase, hvd, torch

from horovod import _native


class ErrorsTest(RankCase):
    def tearDown(self):
        self.assert_equal_tensors(
            hvd.allreduce(torch.ones(2), name="usable", op=hvd.Sum), torch.full((2,), float(self.size))
        )
        super().tearDown()

    def assert_disagreement(self, pattern, function, *arguments, **keywords):
        """Checks that every rank gets the same message, with the exception types that scripts catch."""
        with self.assertRaisesRegex(ValueError, pattern) as caught:
            function(*arguments, **keywords)
        self.assertIsInstance(caught.exception, hvd.HorovodInternalError)
        texts = hvd.allgather_object(str(caught.exception))
        self.assertEqual(set(texts), {texts[0]})

    def needs_two(self):
        if self.size < 2:
            self.skipTest("one rank agrees with itself")

    def test_the_sentence_names_the_tensor(self):
        self.needs_two()
        self.assert_disagreement("my.tensor", hvd.allreduce, torch.ones(1 + self.rank), name="my.tensor")

    def test_a_failure_in_place_leaves_later_work_alone(self):
        self.needs_two()
        good = [hvd.allreduce_async(torch.ones(2), name=f"good{i}", op=hvd.Sum) for i in range(5)]
        bad = hvd.allreduce_async_(torch.ones(2 + self.rank), name="bad")
        with self.assertRaises(ValueError):
            hvd.synchronize(bad)
        for handle in good:
            self.assert_equal_tensors(hvd.synchronize(handle), torch.full((2,), float(self.size)))

    def test_memory_in_flight_is_refused_by_name_on_all_ranks(self):
        self.needs_two()
        flat = torch.ones(100)
        parts = {"whole": flat, "view": flat[50:], "in place": flat[10:60]}
        for what, part in parts.items():
            # Rank 1 submits after the barrier: until then the first operation is in flight on rank 0.
            others = torch.ones(len(part))
            if self.rank == 1:
                hvd.barrier()
            first = hvd.allreduce_async_(flat, name="first", op=hvd.Sum)
            if self.rank == 0:
                with self.assertRaisesRegex(
                    ValueError, "allreduce.second.*its output overlaps the output of allreduce 'allreduce.first'"
                ) as caught:
                    hvd.allreduce_async_(part, name="second", op=hvd.Sum)
                self.assertNotIsInstance(caught.exception, hvd.HorovodInternalError)
                hvd.barrier()
            else:
                if self.rank > 1:
                    hvd.barrier()
                second = hvd.allreduce_async_(others, name="second", op=hvd.Sum)
                with self.assertRaisesRegex(ValueError, "rank 0 refused allreduce 'allreduce.second'"):
                    hvd.synchronize(second)
            self.assert_equal_tensors(hvd.synchronize(first), torch.full((100,), float(self.size)), what)
            flat.fill_(1)

    def test_a_group_with_overlapping_members_is_refused(self):
        flat = torch.ones(6)
        with self.assertRaisesRegex(ValueError, "the output of its tensor 1 overlaps"):
            hvd.grouped_allreduce_([flat[:4], flat[2:]], name="group", op=hvd.Sum)
        hvd.barrier()
        self.assert_equal_tensors(flat, torch.ones(6))

    def test_disjoint_and_interleaved_views_of_one_buffer_are_in_flight_at_once(self):
        flat = torch.full((1000,), float(self.rank))
        views = [flat[:300], flat[300:600], flat[600::2], flat[601::2]]
        for handle in [
            hvd.allreduce_async_(view, name=f"view.{index}", op=hvd.Sum) for index, view in enumerate(views)
        ]:
            hvd.synchronize(handle)
        self.assert_equal_tensors(flat, torch.full((1000,), float(sum(range(self.size)))))

    def test_parameters_that_share_memory_are_broadcast(self):
        tied = torch.full((40,), float(self.rank + 3))
        flat = torch.full((30,), float(self.rank + 3))
        hvd.broadcast_parameters(
            {"a": tied, "b": tied.view(8, 5), "flat": flat, "part": flat[10:20], "column": flat.view(5, 6)[:, 1]},
            root_rank=0,
        )
        for tensor in (tied, flat):
            self.assert_equal_tensors(tensor, torch.full_like(tensor, 3.0))

    def test_a_split_above_the_limit_names_tensor_and_limit_on_all_ranks(self):
        splits = [1] * self.size
        if self.rank == 0:
            splits[-1] = 2_200_000_000 - self.size
        for given in (splits, torch.tensor(splits)):
            with self.assertRaisesRegex(
                ValueError, f"alltoall 'alltoall.rows': 2[0-9]* rows for rank {self.size - 1} .* limit of 2147483647"
            ):
                hvd.alltoall(torch.ones(self.size), given, name="rows")
            hvd.barrier()

    def test_arguments_that_cannot_be_right(self):
        with self.assertRaisesRegex(ValueError, "complex32"):
            hvd.allreduce(torch.zeros(2, dtype=torch.complex32))
        with self.assertRaisesRegex(ValueError, "ndarray|list"):
            hvd.allreduce_async([1.0, 2.0], name="list")
        with self.assertRaisesRegex(ValueError, "sparse"):
            hvd.allreduce(torch.sparse_coo_tensor([[0]], [1.0], (2,)))
        with self.assertRaisesRegex(ValueError, "scale"):
            hvd.allreduce(torch.ones(2), prescale_factor=0.0)
        with self.assertRaisesRegex(ValueError, "dict"):
            hvd.broadcast_parameters(3, root_rank=0)
        with self.assertRaisesRegex(ValueError, "torch.optim, not a Linear"):
            hvd.broadcast_optimizer_state(torch.nn.Linear(1, 1), root_rank=0)
        with self.assertRaisesRegex(ValueError, "splits is 2, a int"):
            hvd.alltoall(torch.ones(2), splits=2)
        for dense in (torch.ones(2), [1.0]):
            with self.assertRaisesRegex(ValueError, "s: .*takes a sparse COO tensor, not "):
                hvd.sparse_allreduce_async(dense, "s", hvd.Sum)
        for ranks in ("01", [0.5], 3, [None]):
            with self.assertRaisesRegex(ValueError, "made of the numbers of its ranks, not of"):
                hvd.add_process_set(ranks)
        with self.assertRaisesRegex(ValueError, "process_set is 3, a int"):
            hvd.remove_process_set(3)

    def test_compressors_are_no_words(self):
        one, wrong = torch.ones(2), "compression is .*; give hvd.Compression.none"
        for compression in ("fp16", hvd.Compression, None):
            for function, given in [
                (hvd.allreduce, one),
                (hvd.grouped_allreduce, [one]),
                (hvd.reducescatter, one),
                (hvd.grouped_reducescatter, [one]),
            ]:
                with self.assertRaisesRegex(ValueError, wrong):
                    function(given, compression=compression)
        with self.assertRaisesRegex(ValueError, "expected a torch.Tensor, not a list"):
            hvd.allreduce([1.0], compression=hvd.Compression.fp16)

    def test_parameters_that_differ_leave_nothing_in_flight(self):
        self.needs_two()
        before = len(_native.pending)
        params = {"a": torch.ones(2 + self.rank), "b": torch.ones(3), "c": torch.ones(4)}
        self.assert_disagreement("broadcast.a", hvd.broadcast_parameters, params, root_rank=0)
        self.assertEqual(len(_native.pending), before)

    def test_an_optimizer_unlike_the_root_s_says_so_and_nobody_waits_for_it(self):
        self.needs_two()
        model = torch.nn.Linear(2, 1, bias=self.rank != 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if self.rank == 1:
            with self.assertRaisesRegex(ValueError, r"groups of \[1\].* rank 0 of \[2\]"):
                hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        else:
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def test_reductions_without_a_meaning(self):
        with self.assertRaisesRegex(ValueError, "adasum.*int32"):
            hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum)
        with self.assertRaisesRegex(ValueError, "adasum"):
            hvd.reducescatter(torch.ones(2), op=hvd.Adasum)
        with self.assertRaisesRegex(ValueError, "bool has no average"):
            hvd.allreduce(torch.ones(2, dtype=torch.bool), op=hvd.Average)

    def test_a_refusal_by_one_rank_is_a_runtime_error_too(self):
        def refused(function, *arguments, **keywords):
            with self.assertRaises(RuntimeError) as caught:
                function(*arguments, **keywords)
            self.assertIsInstance(caught.exception, ValueError)

        integers = torch.ones(2, dtype=torch.int32)
        refused(hvd.allreduce, integers, op=hvd.Adasum)
        refused(hvd.reducescatter, torch.ones(()))
        refused(hvd.allgather, torch.ones(()))
        refused(hvd.alltoall, torch.ones(2), [3] * self.size)
        refused(hvd.broadcast, torch.ones(2), self.size)
        refused(hvd.add_process_set, [self.size])

    def test_tensors_outside_host_memory(self):
        with self.assertRaisesRegex(NotImplementedError, "meta"):
            hvd.allreduce(torch.ones(2, device="meta"))


if __name__ == "__main__":
    rank_case.main()
