"""Process sets and join, in jobs of every size."""

import rank_case
from rank_case import RankCase, hvd, torch

from horovod.common.process_sets import _temp_process_set_object


class ProcessSetTest(RankCase):
    def add(self, ranks):
        """Adds a set; all ranks remove it after the test."""
        added = hvd.add_process_set(ranks)
        self.addCleanup(hvd.remove_process_set, added)
        return added

    def test_members_reduce_and_others_go_on(self):
        if self.size < 3:
            self.skipTest("asks for three ranks")
        for members in [self.add([0]), self.add(range(1, self.size))]:
            self.assertEqual(members.included(), self.rank in members.ranks)
            self.assertEqual(members.size(), len(members.ranks))
            if not members.included():
                with self.assertRaisesRegex(ValueError, "not a member"):
                    hvd.allreduce(torch.ones(2), name="stranger", process_set=members)
                with self.assertRaises(ValueError):
                    members.rank()
                continue
            self.assertEqual(members.rank(), members.ranks.index(self.rank))
            rows = hvd.allgather(torch.tensor([self.rank]), process_set=members)
            self.assertEqual(rows.tolist(), members.ranks)
            tensor = torch.full((3,), float(self.rank))
            hvd.allreduce_(tensor, name="mine", op=hvd.Sum, process_set=members)
            self.assertEqual(tensor.tolist(), [float(sum(members.ranks))] * 3)
            got = hvd.broadcast(tensor + self.rank, members.ranks[-1], process_set=members)
            self.assertEqual(got[0].item(), tensor[0].item() + members.ranks[-1])
            hvd.barrier(process_set=members)

    def test_overlapping_sets_work_at_the_same_time(self):
        if self.size < 3:
            self.skipTest("asks for three ranks")
        low, high = self.add([0, 1]), self.add([1, 2])
        handles = [
            hvd.allreduce_async(torch.ones(4), name="same", op=hvd.Sum, process_set=members)
            for members in (low, high)
            if members.included()
        ]
        for handle in handles:
            self.assertEqual(hvd.synchronize(handle).tolist(), [2.0] * 4)

    def test_an_impossible_set_is_a_value_error_everywhere(self):
        with self.assertRaises(ValueError):
            hvd.add_process_set([self.size])
        if self.size > 1:
            added = self.add([0])
            self.assertIs(_temp_process_set_object(added.process_set_id), added)
            with self.assertRaisesRegex(ValueError, "registered"):
                added.ranks = [1]
            with self.assertRaises(ValueError):
                hvd.add_process_set([0])
            with self.assertRaisesRegex(ValueError, "registered already"):
                hvd.add_process_set(added)
            with self.assertRaises(ValueError):  # the ranks add different sets
                hvd.add_process_set([self.rank])
        with self.assertRaises(ValueError):
            hvd.add_process_set(hvd.global_process_set)
        self.assertIs(_temp_process_set_object(0), hvd.global_process_set)
        with self.assertRaisesRegex(ValueError, "id 99"):
            _temp_process_set_object(99)
        self.assertEqual(hvd.allreduce(torch.ones(1), op=hvd.Sum).item(), self.size)

    def test_a_removed_set_is_unknown(self):
        if self.size == 1:
            self.skipTest("the only set of one rank is the global one")
        gone = hvd.add_process_set([0])
        self.assertIs(type(gone.process_set_id), int)
        self.assertIs(hvd.remove_process_set(gone), True)
        self.assertIsNone(gone.process_set_id)
        self.assertIs(hvd.remove_process_set(gone), False)
        for use in (gone.size, gone.rank, gone.included, lambda: hvd.allreduce(torch.ones(1), process_set=gone)):
            with self.assertRaisesRegex(ValueError, "not registered"):
                use()

    def test_sets_given_to_init_are_there_at_once_and_end_with_shutdown(self):
        if self.size == 1:
            self.skipTest("the only set of one rank is the global one")
        hvd.barrier()  # shutdown only after all ranks are done
        hvd.shutdown()
        with self.assertRaisesRegex(ValueError, "twice"):
            hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
        sets = [hvd.ProcessSet([0]), hvd.ProcessSet([self.size - 1])]
        hvd.init(process_sets=sets)
        self.assertEqual([members.process_set_id for members in sets], [1, 2])
        for members in sets:
            if members.included():
                self.assertEqual(hvd.allreduce(torch.ones(1), process_set=members).item(), 1.0)
        hvd.barrier()
        hvd.shutdown()
        self.assertEqual([members.process_set_id for members in sets], [None, None])
        hvd.init(process_sets="dynamic")

    def test_an_optimizer_of_a_set_leaves_other_ranks_alone(self):
        if self.size == 1:
            self.skipTest("asks for a rank outside the set")
        members = self.add(range(self.size - 1))
        param = torch.nn.Parameter(torch.zeros(2))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([param], lr=1.0), named_parameters=[("weight", param)], op=hvd.Sum, process_set=members
        )
        param.sum().backward()
        optimizer.step()
        expected = -(self.size - 1.0) if members.included() else -1.0
        self.assertEqual(param.tolist(), [expected] * 2)


class JoinTest(RankCase):
    def test_ranks_with_more_work_go_on_with_zeros_of_those_that_joined(self):
        # Rank r has r + 1 batches; the last rank joins last.
        for batch in range(self.rank + 1):
            for name in ("first", "second"):
                got = hvd.allreduce(torch.ones(3), name=name, op=hvd.Sum)
                self.assertEqual(got.tolist(), [float(self.size - batch)] * 3)
        self.assertEqual(hvd.join(), self.size - 1)
        self.assertEqual(hvd.allreduce(torch.ones(1), op=hvd.Sum).item(), self.size)

    def test_unnamed_calls_of_a_set_go_on_after_a_join(self):
        if self.size == 1:
            self.skipTest("the only set of one rank is the global one")
        members = hvd.add_process_set([0, self.size - 1]) if self.size > 2 else hvd.global_process_set
        self.addCleanup(hvd.remove_process_set, members)
        early = []
        if self.rank == 0:  # the other member makes its first call after the join
            early = [hvd.allreduce_async(torch.ones(1), op=hvd.Sum, process_set=members)]
        hvd.join()
        if members.included() and self.size > 2:
            late = [hvd.allreduce_async(torch.ones(1), op=hvd.Sum, process_set=members) for _ in range(2 - len(early))]
            self.assertEqual([hvd.synchronize(each).item() for each in early + late], [2.0, 2.0])

    def test_an_average_divides_by_all_ranks(self):
        if self.rank == 0:
            got = hvd.allreduce(torch.full((2,), float(self.size)), name="only rank 0")
            self.assertEqual(got.tolist(), [1.0] * 2)
        hvd.join()


if __name__ == "__main__":
    rank_case.main()
