"""send and recv of horovod.torch between the ranks of a job."""

import rank_case
from rank_case import DTYPES, SHAPES, RankCase, hvd, torch, values


class MessagesTest(RankCase):
    def setUp(self):
        super().setUp()
        self.after, self.before = (self.rank + 1) % self.size, (self.rank - 1) % self.size

    def test_every_type_and_shape_goes_round(self):
        for dtype in [*DTYPES, torch.bool, torch.complex64, torch.complex128]:
            for shape in SHAPES:
                sent = values(self.rank, torch.float32, shape).to(dtype)
                got = torch.empty(shape, dtype=dtype)
                send = hvd.send_async(sent, self.after)
                self.assertEqual(hvd.recv(got, self.before), self.before)
                self.assertIsNone(hvd.synchronize(send))
                self.assert_equal_tensors(got, values(self.before, torch.float32, shape).to(dtype))

    def test_views_are_sent_and_filled(self):
        whole = torch.arange(12.0).reshape(3, 4) + self.rank
        send = hvd.send_async(whole.t()[1:3], self.after)
        got = torch.zeros(3, 4)
        hvd.recv(got.t()[1:3], self.before)
        hvd.synchronize(send)
        wanted = torch.zeros(3, 4)
        wanted[:, 1:3] = (torch.arange(12.0).reshape(3, 4) + self.before)[:, 1:3]
        self.assert_equal_tensors(got, wanted)

    def test_any_rank_and_tags_out_of_order(self):
        if self.rank > 0:
            for tag in (7, 8, 9):
                hvd.send(torch.tensor([10.0 * self.rank + tag]), 0, tag)
            return
        for tag in (9, 7, 8):
            sources = set()
            for _ in range(self.size - 1):
                got = torch.empty(1)
                source = hvd.recv(got, tag=tag)
                self.assertEqual(got.item(), 10 * source + tag)
                sources.add(source)
            self.assertEqual(sources, set(range(1, self.size)))

    def test_large_tensors_in_both_directions_at_once(self):
        count = 64 << 18  # 64 MiB
        got = torch.empty(count)
        receive = hvd.recv_async(got, self.before)
        send = hvd.send_async(torch.full((count,), float(self.rank)), self.after)
        self.assertEqual(hvd.synchronize(receive), self.before)
        hvd.synchronize(send)
        self.assertTrue(bool((got == self.before).all()))

    def test_process_sets_keep_their_messages_apart(self):
        if self.size < 3:
            self.skipTest("a set of all ranks exists already")
        own = hvd.add_process_set([0, self.size - 1])
        if own.included():
            other = self.size - 1 - self.rank
            hvd.send(torch.tensor([1.0]), other, process_set=own)
            hvd.send(torch.tensor([2.0]), other)
            got = torch.empty(1)
            hvd.recv(got, other)
            self.assertEqual(got.item(), 2)
            hvd.recv(got, other, process_set=own)
            self.assertEqual(got.item(), 1)
        else:
            with self.assertRaisesRegex(ValueError, "is not a member of process set"):
                hvd.send(torch.zeros(1), 0, process_set=own)
        hvd.barrier()
        self.assertTrue(hvd.remove_process_set(own))

    def test_wrong_arguments_are_refused(self):
        for call, sentence in [
            (lambda: hvd.send(torch.zeros(1), self.size), "invalid rank"),
            (lambda: hvd.send(torch.zeros(1), 0, tag=-1), "the tag must not be negative"),
            (lambda: hvd.send(torch.zeros(1), "one"), "rank is 'one'"),
            (lambda: hvd.send([1.0], 0), "expected a torch.Tensor"),
            (lambda: hvd.recv(torch.zeros(1), 0, timeout=0), "timeout is 0"),
        ]:
            with self.assertRaisesRegex(ValueError, sentence):
                call()
        hvd.send(torch.zeros(2), self.after, 3)
        with self.assertRaisesRegex(ValueError, "memory for 3 elements of float32"):
            hvd.recv(torch.zeros(3), self.before, 3)

    def test_a_time_limit_ends_the_wait_alone(self):
        with self.assertRaisesRegex(hvd.HorovodInternalError, f"rank {self.before} has not sent it"):
            hvd.recv(torch.zeros(1), self.before, 5, timeout=0.05)
        hvd.barrier()
        hvd.send(torch.ones(1), self.after, 5)
        got = torch.zeros(1)
        hvd.recv(got, self.before, 5)
        self.assertEqual(got.item(), 1)


if __name__ == "__main__":
    rank_case.main()
