"""hvd.elastic.ElasticSampler and ElasticIterable: the current ranks share the remaining samples."""

import random
import unittest.mock

import rank_case
import torch
from rank_case import hvd

elastic = hvd.elastic


class ElasticSamplerTest(rank_case.RankCase):
    def test_samplers_share_what_remains(self):
        data = list(range(23))
        for shuffle in (True, False):
            sampler = elastic.ElasticSampler(data, shuffle=shuffle, seed=3)
            mine = list(sampler)
            self.assertEqual((len(mine), mine), (len(sampler), sampler.indices))
            self.assertEqual(sampler.processed_indices, set())
            self.assertEqual(len(mine), -(-23 // self.size))
            everybody = sum(hvd.allgather_object(mine), [])
            self.assertEqual(set(everybody), set(data))
            sampler.record_batch(0, 4)
            state = elastic.TorchState(sampler=sampler)
            state.commit()
            sampler.record_batch(1, 2)
            state.restore()
            self.assertEqual(sampler.state_dict(), {"epoch": 0, "processed_num": 4 * self.size})
            state.sync()
            rest = sum(hvd.allgather_object(list(sampler)), [])
            done = sum(hvd.allgather_object(mine[:4]), [])
            self.assertEqual(sampler.processed_indices, set(done))
            self.assertEqual(set(rest) | set(done), set(data))
            self.assertFalse(set(rest) & set(done))
            sampler.set_epoch(1)
            self.assertEqual(sampler.state_dict(), {"epoch": 1, "processed_num": 0})
            # All ranks get rank 0's position, as they get its weights.
            sampler.load_state_dict(state_dict={"epoch": 1 + self.rank, "processed_num": self.rank})
            state.sync()
            self.assertEqual(sampler.state_dict(), {"epoch": 1, "processed_num": 0})
            self.assertEqual(list(sampler) == mine, not shuffle)

    def of_ranks(self, ranks, state, make, batches, batch_size):
        """Processes some batches on this many ranks, starting at a state. Returns their samples and the next state."""
        seen, states, lengths = [], set(), set()
        for rank in range(ranks):
            with unittest.mock.patch.multiple(
                "horovod._basics", is_initialized=lambda: True, size=lambda: ranks, rank=lambda rank=rank: rank
            ):
                data = make()
                data.load_state_dict(state)
            is_sampler = isinstance(data, elastic.ElasticSampler)
            mine = torch.utils.data.DataLoader(
                data.dataset if is_sampler else data, batch_size=batch_size, sampler=data if is_sampler else None
            )
            found = [batch.tolist() for _, batch in zip(range(batches), mine)]
            for index, batch in enumerate(found):
                data.record_batch(index, len(batch))
            seen += sum(found, [])
            lengths.add(tuple(map(len, found)))
            states.add(tuple(data.state_dict().items()))
        self.assertEqual((len(states), len(lengths)), (1, 1), "the ranks have different positions")
        return seen, dict(states.pop())

    def test_an_iterable_is_continued_by_any_number_of_ranks(self):
        class Skipping:
            def __init__(self, order):
                self.order = order

            def __iter__(self):
                return iter(self.order)

            def skip(self, number):
                return Skipping(self.order[number:])

        def order(seed, skips):
            found = torch.randperm(237, generator=torch.Generator().manual_seed(seed)).tolist()
            return Skipping(found) if skips else found

        draw = random.Random(5)
        for case in range(40):
            drop_last, skips = draw.random() < 0.5, draw.random() < 0.5

            def make(drop_last=drop_last, skips=skips):
                return elastic.ElasticIterable(lambda seed: order(seed, skips), drop_last=drop_last)

            state, seen, ranks = {"seed": 7, "epoch": 2, "consumed": 0}, [], 1
            while state["consumed"] < 237:
                ranks = draw.randint(1, 8)
                last = state["consumed"]
                part, state = self.of_ranks(ranks, state, make, draw.randint(1, 6), draw.randint(1, 5))
                seen += part
                if state["consumed"] == last:
                    break  # the sampler drops the rest
            with self.subTest(case=case, drop_last=drop_last):
                wanted = order(9, False)
                whole = sorted(wanted)
                if drop_last:
                    self.assertEqual(len(seen), len(set(seen)))
                    self.assertEqual(set(seen), set(wanted[: len(seen)]))
                    self.assertLess(237 - len(seen), ranks)
                else:
                    self.assertEqual(sorted(set(seen)), whole)
                    self.assertLess(len(seen) - 237, ranks)

    def test_samplers_see_each_sample_once_over_any_schedule_of_ranks(self):
        draw = random.Random(6)
        for case in range(40):
            samples, shuffle = draw.choice([3, 17, 64, 237]), draw.random() < 0.7

            def make(samples=samples, shuffle=shuffle):
                return elastic.ElasticSampler(torch.arange(samples), shuffle=shuffle, seed=4)

            state, seen, ranks = {"epoch": 1, "processed_num": 0}, [], 1
            while state["processed_num"] < samples:
                ranks = draw.randint(1, 8)
                batch_size = draw.randint(1, 5)
                part, state = self.of_ranks(ranks, state, make, draw.randint(1, 6), batch_size)
                seen += part
            with self.subTest(case=case, samples=samples, ranks=ranks):
                self.assertEqual(set(seen), set(range(samples)))
                # Some samples occur twice at the end, so that all ranks have the same number.
                self.assertLess(len(seen) - samples, ranks)

    def test_two_samplers_in_one_state_keep_their_positions_with_loaders_that_have_workers(self):
        train = elastic.ElasticSampler(torch.arange(40), seed=1)
        test = elastic.ElasticSampler(torch.arange(10), shuffle=False)
        state = elastic.TorchState(train=train, test=test)
        loaders = [
            torch.utils.data.DataLoader(sampler.dataset, sampler=sampler, batch_size=2, num_workers=2)
            for sampler in (train, test)
        ]
        seen = [], []
        for sampler, loader, part in zip((train, test), loaders, seen):
            for index, batch in zip(range(2), loader):
                sampler.record_batch(index, len(batch))
                part.extend(batch.tolist())
            state.commit()
        train.record_batch(2, 2)
        state.restore()
        for sampler, samples in ((train, 40), (test, 10)):
            self.assertEqual(
                sampler.state_dict(), {"epoch": 0, "processed_num": min(4, -(-samples // self.size)) * self.size}
            )
        state.sync()
        for loader, part, samples in zip(loaders, seen, (40, 10)):
            rest = sum((batch.tolist() for batch in loader), [])
            done, left = (sum(hvd.allgather_object(mine), []) for mine in (part, rest))
            self.assertEqual(set(done) | set(left), set(range(samples)))
            self.assertLess(len(done) + len(left) - samples, self.size)  # the difference is the padding

    def test_an_iterable_is_part_of_a_state(self):
        data = elastic.ElasticIterable(range(100), seed=3)
        rounds = [range(first, min(first + self.size, 100)) for first in range(0, 100, self.size)]
        self.assertEqual(list(data), [each[self.rank % len(each)] for each in rounds])
        state = elastic.TorchState(data=data)
        data.record_batch(0, 4)
        state.commit()
        data.record_batch(1, 4)
        state.restore()
        self.assertEqual(data.state_dict(), {"seed": 3, "epoch": 0, "consumed": 4 * self.size})
        self.assertEqual(next(iter(data)), 4 * self.size + self.rank)
        data.load_state_dict({"seed": 3 + self.rank, "epoch": self.rank, "consumed": self.rank})
        state.sync()
        self.assertEqual(data.state_dict(), {"seed": 3, "epoch": 0, "consumed": 0})
        data.set_epoch(1)
        self.assertEqual(data.state_dict(), {"seed": 3, "epoch": 1, "consumed": 0})
        with self.assertRaisesRegex(ValueError, "2 workers"):
            list(torch.utils.data.DataLoader(data, num_workers=2))
        loader = torch.utils.data.DataLoader(data, num_workers=1, batch_size=None)
        for _ in range(2):  # each iteration has a new worker
            self.assertEqual(len(list(loader)), -(-100 // self.size))
        loader = torch.utils.data.DataLoader(data, num_workers=1, batch_size=None, persistent_workers=True)
        self.assertEqual(len(list(loader)), -(-100 // self.size))
        with self.assertRaisesRegex(ValueError, "leave out persistent_workers"):
            list(loader)
        with self.assertRaisesRegex(ValueError, "source is an iterator, which cannot begin again"):
            elastic.ElasticIterable(number for number in range(3))


if __name__ == "__main__":
    rank_case.main()
