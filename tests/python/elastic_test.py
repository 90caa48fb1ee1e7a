"""hvd.elastic: saved and shared states, samplers, and training that restarts."""

import contextlib
import io
import queue
import random
import threading
import time
import unittest.mock
import warnings
from types import SimpleNamespace

import rank_case
import torch
from rank_case import hvd

from horovod import _basics, _elastic, process_sets
from horovod.common.exceptions import HostsUpdatedInterrupt

elastic = hvd.elastic


def make(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer


def loss_of(model, rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randn(6, 4, generator=generator)).square().mean()


class ElasticTest(rank_case.RankCase):
    def train(self, model, optimizer, fails):
        """Makes ten steps, with a commit after every second and one call of `fails`. Returns runs and resets."""
        state = elastic.TorchState(model, optimizer, step=0, seen=[])
        runs, resets = [], []
        state.register_reset_callbacks([lambda: resets.append(hvd.size())])

        @elastic.run
        def train(state, steps):
            runs.append(state.step)
            while state.step < steps:
                if state.step == 5 and len(runs) == 1:
                    fails()
                state.optimizer.zero_grad()
                loss_of(state.model, self.rank, state.step).backward()
                state.optimizer.step()
                state.seen.append(state.step)
                state.step += 1
                if state.step % 2 == 0:
                    state.commit()
            return state.seen

        return train(state, 10), runs, resets

    def test_training_starts_again_from_the_last_commit(self):
        def fails():
            # One rank leaves; the next operation of the other ranks fails.
            if self.rank == 0:
                hvd.shutdown()
                raise hvd.HorovodInternalError("planted")

        model, optimizer = make(self.rank)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        seen, runs, resets = self.train(model, optimizer, fails)
        self.assertEqual(seen, list(range(10)))
        self.assertEqual(runs, [0, 4])
        self.assertEqual(resets, [self.size])

        alone, plain = make(0)
        for step in range(10):
            plain.zero_grad()
            (sum(loss_of(alone, rank, step) for rank in range(self.size)) / self.size).backward()
            plain.step()
        for got, want in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            for row in hvd.allgather(got.detach()[None], name="weights"):
                self.assertTrue(torch.equal(row, got))

    def test_a_failure_in_the_midst_of_backward(self):
        if self.size == 1:
            return
        params = [torch.nn.Parameter(torch.zeros((1 << 20) + 1)) for _ in range(2)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0))
        state = elastic.TorchState(optimizer=optimizer, step=0)
        runs, gradients = [], []

        def between(_):  # the first gradient is in flight when the second is ready
            gradients.append(None)
            if len(gradients) == 2:
                hvd.allreduce(torch.ones(1), name="elastic.in_flight")
                reducer = optimizer._reducer
                (handle,) = [work for bucket in reducer.buckets for work in bucket.works]
                while not hvd.poll(handle):
                    time.sleep(0.01)

        @elastic.run
        def train(state):
            runs.append(state.step)
            while state.step < 3:
                fails = state.step == 1 and len(runs) == 1
                if fails and self.rank == 0:
                    hvd.allreduce(torch.ones(1), name="elastic.in_flight")
                    hvd.shutdown()
                    raise hvd.HorovodInternalError("planted")
                hooks = [param.register_hook(between) for param in params if fails]
                optimizer.zero_grad()
                try:
                    sum((param * (self.rank + 1.0)).sum() for param in params).backward()
                finally:
                    for hook in hooks:
                        hook.remove()
                optimizer.step()
                state.step += 1
                state.commit()

        train(state)
        self.assertEqual((runs, state.step), ([0, 1], 3))
        mean = (self.size + 1) / 2
        for param in params:
            self.assert_close(param.grad[:3], torch.full((3,), mean), torch.float32)

    def meet(self):
        """Returns after all ranks have begun their run, so that all of them see the failure that follows in it,
        and not in the synchronisation before."""
        with contextlib.suppress(hvd.HorovodInternalError):  # another rank has left already
            hvd.barrier()

    def test_process_sets_are_there_again_with_their_ids(self):
        if self.size == 1:
            return
        first, kept = hvd.add_process_set([0]), hvd.add_process_set([1])
        number = kept.process_set_id
        hvd.remove_process_set(first)
        late = hvd.ProcessSet([0])
        runs = []

        @elastic.run
        def train(state):
            runs.append(kept.process_set_id)
            self.meet()
            if len(runs) == 1:
                raise hvd.HorovodInternalError("planted")
            if kept.included():
                self.assertEqual(hvd.allgather_object(self.rank, process_set=kept), [1])
            # A reset callback may add it again, as a new rank does.
            self.assertIs(hvd.add_process_set([1]), kept)
            with self.assertRaisesRegex(ValueError, "already"):
                hvd.add_process_set([1])
            self.assertIs(hvd.add_process_set(late), late)

        train(elastic.ObjectState())
        self.assertEqual(runs, [number, number])
        self.assertIsNone(first.process_set_id)
        for each in (kept, late):
            self.assertTrue(hvd.remove_process_set(each))
            self.assertFalse(hvd.remove_process_set(each))

    def test_a_reset_callback_may_remove_and_add_process_sets(self):
        if self.size == 1:
            return
        added, gone, removed = [hvd.add_process_set([1])], hvd.add_process_set([0]), []
        number = added[0].process_set_id

        def add_again():
            if self.rank == 0:  # the others only add it, as new ranks do
                self.assertTrue(hvd.remove_process_set(added[0]))
                self.assertFalse(hvd.remove_process_set(added[0]))
                with self.assertRaisesRegex(ValueError, "not registered"):
                    added[0].included()
            added[0] = hvd.add_process_set([1])
            removed.append(hvd.remove_process_set(gone))

        @elastic.run
        def train(state):
            self.meet()
            if len(removed) < 2:
                raise hvd.HorovodInternalError("planted")

        state = elastic.ObjectState()
        state.register_reset_callbacks([add_again])
        train(state)
        self.assertEqual((added[0].process_set_id, removed), (number, [True, False]))
        if added[0].included():
            self.assertEqual(hvd.allgather_object(self.rank, process_set=added[0]), [1])
        hvd.add_process_set(gone)
        for each in (added[0], gone):
            self.assertTrue(hvd.remove_process_set(each))

    def test_missed_process_sets_differ_and_can_be_removed(self):
        members = [0, self.size]
        record = process_sets._Record(members, 3)
        record.is_missed = True
        self.addCleanup(process_sets._records.clear)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            process_sets._records.append(record)
            process_sets.restore(lambda mine: mine)
        first, second = hvd.ProcessSet(members), hvd.ProcessSet(members)
        self.assertFalse(hvd.remove_process_set(first))
        self.assertIs(hvd.add_process_set(first), first)
        process_sets.restore(lambda mine: mine)
        self.assertIs(hvd.add_process_set(second), second)
        for each in (first, second):
            with self.assertRaisesRegex(ValueError, "cannot be used now"):
                each.size()
        self.assertTrue(hvd.remove_process_set(second))
        for each in (first, second):
            self.assertFalse(hvd.remove_process_set(each))
            with self.assertRaisesRegex(ValueError, "not registered"):
                each.size()
        told = []
        process_sets.restore(lambda mine: told.extend(mine) or mine)
        self.assertEqual((told, process_sets._records), ([], []))

    def test_init_tries_again_when_a_rank_is_lost_while_sets_are_added(self):
        wanted = hvd.ProcessSet([0])
        library = SimpleNamespace(hvd_generation=lambda: calls.count("init") - 1, hvd_is_provisional=lambda: 0,
                                  **{f"hvd_{scope}{what}": lambda: 0 for scope in ("", "local_", "cross_")
                                     for what in ("rank", "size")})
        calls, answers = [], iter([hvd.HorovodInternalError("planted"), None])

        def add(process_set):
            calls.append(process_set)
            answer = next(answers)
            if answer is not None:
                raise answer

        with unittest.mock.patch.multiple(
                "horovod._basics", is_elastic=lambda: True, is_initialized=lambda: bool(calls), library=lambda: library,
                _first_generation=None, _init_interruptibly=lambda sets, ranks: calls.append("init"),
                _leave=lambda: calls.append("leave")), \
                unittest.mock.patch.multiple("horovod.process_sets", add_process_set=add, forget_all=lambda keeps: None,
                                             restore=lambda broadcast: calls.append("restore")), \
                unittest.mock.patch.multiple("horovod._ops", reset=lambda: None), \
                unittest.mock.patch.dict("os.environ"):
            hvd.init(process_sets=[wanted])
            self.assertTrue(_basics.was_there_from_the_start())  # it is the second attempt that had generation 1
        self.assertEqual(calls, ["init", wanted, "leave", "init", "restore", wanted])

    def test_a_process_that_joins_ranks_says_why_it_has_not_their_sets(self):
        def join(*unused):
            _basics._joined()

        def refuse(*unused):
            raise ValueError("planted")

        library = SimpleNamespace(hvd_is_provisional=lambda: 1)
        with unittest.mock.patch.multiple("horovod._basics", library=lambda: library, _restore_sets=refuse), \
                unittest.mock.patch.multiple("horovod._ops", complete_init=join):
            with self.assertRaisesRegex(ValueError, "^planted$"):
                _basics.complete_init()
            with self.assertWarnsRegex(UserWarning, "without their process sets: planted"):
                join()  # as in a collective

    def test_failures_are_retried_without_commits_up_to_a_limit(self):
        runs = []

        @elastic.run
        def never_commits(state, failures):
            runs.append(state.step)
            state.step += 1
            self.meet()
            if len(runs) <= failures:
                raise hvd.HorovodInternalError("planted again")
            return hvd.allgather_object(len(runs))

        self.assertEqual(never_commits(elastic.ObjectState(step=3), 4), [5] * self.size)
        self.assertEqual(runs, [3] * 5)
        runs.clear()
        with unittest.mock.patch.dict("os.environ", HOROVOD_RESET_LIMIT="2"):
            with self.assertRaisesRegex(hvd.HorovodInternalError, "planted again"):
                never_commits(elastic.ObjectState(step=3), 4)
        self.assertEqual(runs, [3, 3, 3])
        with unittest.mock.patch.dict("os.environ", HOROVOD_RESET_LIMIT="many"):
            with self.assertRaisesRegex(ValueError, "HOROVOD_RESET_LIMIT is 'many'; give a whole number"):
                never_commits(elastic.ObjectState(), 0)

    def test_a_rank_without_the_state_of_the_training_is_no_source(self):
        def choose(*ranks, state=None, must=(True,)):
            """Returns the source and its commits, for ranks (commits, has the state), of which the first one is this
            one; must: what each of them says of a synchronisation."""
            state = state or elastic.ObjectState()
            state._commits = ranks[0][0]
            others = [(commits, None if has_state else "", any(must[1:])) for commits, has_state in ranks[1:]]
            with unittest.mock.patch.multiple("horovod._basics", is_elastic=lambda: True, size=lambda: len(ranks),
                                              _first_generation=0 if ranks[0][1] else 1), \
                    unittest.mock.patch.multiple("horovod._elastic", _has_synced=False, _source=0), \
                    unittest.mock.patch("horovod._objects.allgather_object", lambda mine, name: [mine, *others]):
                commits = _elastic._choose_source(state, must[0])
                return _elastic.source_rank(), commits

        self.assertEqual(choose((-1, True)), (0, -1))
        self.assertEqual(choose((3, True), (4, True), (4, True)), (1, 4))
        self.assertEqual(choose((-1, False), (-1, True)), (1, -1))
        self.assertEqual(choose((5, False), (-1, True), (4, True)), (2, 4))
        # All ranks synchronise if one of them must, such as a new one or one that a failure has reached.
        self.assertEqual(choose((3, True), (4, True), must=(False, True)), (1, 4))
        self.assertEqual(choose((3, True), (3, True), must=(False, False)), (0, None))
        for ranks in [[(-1, False)], [(-1, False), (-1, False)], [(2, False), (-1, False)]]:
            with self.assertRaisesRegex(RuntimeError, "no rank is left that has the state of the training"):
                choose(*ranks)
        lost = elastic.ObjectState()
        lost._lost = "planted."
        self.assertEqual(choose((5, True), (4, True), state=lost), (1, 4))
        with self.assertRaisesRegex(RuntimeError, "the state of the training. planted."):
            choose((5, True), (-1, False), state=lost)

        class Own(elastic.ObjectState):
            def sync(self):
                pass

        class Inherits(elastic.ObjectState):
            pass

        self.assertEqual(choose((2, True), (3, True), state=Inherits()), (1, 3))
        for own in (Own(), elastic.ObjectState(hvd.broadcast_object, hvd.rank)):
            self.assertEqual(choose((2, True), (3, True), state=own), (0, 2))
            with self.assertRaisesRegex(RuntimeError, "rank 0, which is new"):
                choose((2, False), (None, True), state=own)
            own._lost = "planted."
            with self.assertRaisesRegex(RuntimeError, "rank 0, which cannot return to its last commit: planted.$"):
                choose((2, True), (None, True), state=own)

    def test_all_ranks_return_to_the_newest_commit_of_any_rank(self):
        if self.size == 1:
            return

        for snapshot in (True, False):
            model, optimizer = make(self.rank)
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            state = elastic.TorchState(model, optimizer, scheduler=scheduler, step=0, snapshot=snapshot)
            runs, sources = [], []

            @elastic.run
            def train(state):
                runs.append(state.step)
                sources.append(_elastic.source_rank())
                self.assertEqual(optimizer.param_groups[0]["lr"], 0.1 * 0.5**state.step)
                while state.step < 5:
                    optimizer.zero_grad()
                    loss_of(model, self.rank, state.step).backward()
                    optimizer.synchronize()
                    if state.step == 3 and len(runs) == 1:
                        self.meet()  # the gradients are there on all ranks
                        if self.rank == 0:
                            # As if the end of another rank had come before the result: the others step, and commit.
                            hvd.shutdown()
                            raise hvd.HorovodInternalError("planted")
                    with optimizer.skip_synchronize():
                        optimizer.step()
                    scheduler.step()
                    state.step += 1
                    state.commit()
                    if len(runs) == 1 and state.step == 4:
                        hvd.barrier()  # fails

            train(state)
            self.assertEqual((runs, sources), ([0, 4], [0, 1]))
            self.assertEqual(state._commits, 5)
            alone, plain = make(0)
            schedule = torch.optim.lr_scheduler.ExponentialLR(plain, 0.5)
            for step in range(5):
                plain.zero_grad()
                (sum(loss_of(alone, rank, step) for rank in range(self.size)) / self.size).backward()
                plain.step()
                schedule.step()
            for got, want in zip(model.parameters(), alone.parameters()):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
                for row in hvd.allgather(got.detach()[None], name="weights"):
                    self.assertTrue(torch.equal(row, got))

    def test_a_failed_synchronisation_returns_to_values_of_one_commit(self):
        from horovod.torch.elastic import state as handlers

        for snapshot in (True, False):
            model, optimizer = make(0)
            state = elastic.TorchState(model, optimizer, step=0, snapshot=snapshot)
            loss_of(model, 0, 0).backward()
            optimizer.step()
            state.step = 1
            state.save()
            want = [param.detach().clone() for param in model.parameters()]
            momentum = optimizer.state[model[0].bias]["momentum_buffer"].clone()

            def receive(handler):  # as a broadcast does, without a new version
                for param in model.parameters():
                    param.data.add_(1)

            def fails(handler):
                optimizer.state[model[0].bias]["momentum_buffer"].zero_()
                raise hvd.HorovodInternalError("planted")

            with unittest.mock.patch.object(handlers.ModelStateHandler, "receive", receive), \
                    unittest.mock.patch.object(handlers.OptimizerStateHandler, "receive", fails), \
                    unittest.mock.patch.object(handlers, "source_rank", lambda: self.rank + 1), \
                    self.assertRaises(hvd.HorovodInternalError):
                state.sync()
            state.restore()
            for got, wanted in zip(model.parameters(), want):
                self.assertTrue(torch.equal(got, wanted))
            self.assertTrue(torch.equal(optimizer.state[model[0].bias]["momentum_buffer"], momentum))
            self.assertEqual(state.step, 1)

    def test_without_snapshots_unchanged_weights_stay_and_changed_ones_return_to_the_copy(self):
        from horovod.torch.elastic import state as handlers

        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        scaler = handlers._registry[-1][0](enabled=False)
        state = elastic.TorchState(model, optimizer, scaler=scaler, step=0, snapshot=False)

        def step():
            optimizer.zero_grad()
            loss_of(model, 0, state.step).backward()
            optimizer.step()
            state.step += 1

        def weights():
            return [value.clone() for value in model.state_dict().values()]

        def equal(one, other):
            return all(map(torch.equal, one, other))

        def is_unchanged():
            return state._mark.holds(state._marked())

        for _ in range(3):
            step()
            state.commit()
        third, place = weights(), model[0].weight.data_ptr()
        model(torch.randn(6, 4))  # changes buffers
        optimizer.param_groups[0]["lr"], state.step = 7.0, 99
        self.assertTrue(is_unchanged())
        self.assertFalse(equal(weights(), third))
        state.restore()
        self.assertTrue(equal(weights(), third))
        self.assertEqual((state.step, state._commits, optimizer.param_groups[0]["lr"]), (3, 3, 0.1))
        self.assertEqual(model[0].weight.data_ptr(), place)

        def replace_storage():
            model[0].weight.data = model[0].weight.data.clone()

        def replace_parameter():
            model[0].weight = torch.nn.Parameter(model[0].weight.detach().clone())

        def change_state():
            optimizer.state[model[0].bias]["exp_avg"].add_(1)

        def write():
            with torch.no_grad():
                model[0].bias.add_(1)

        state._copy_all()
        for change in (step, replace_storage, change_state, write, replace_parameter):
            with self.subTest(change=change.__name__):
                self.assertTrue(is_unchanged())
                change()
                self.assertFalse(is_unchanged())
                state._commits = 7
                state.restore()
                self.assertTrue(is_unchanged())
                self.assertTrue(equal(weights(), third))
                self.assertEqual((state.step, state._commits), (3, 3))

        # A commit makes the copy before the last one is a minute old.
        clock = [1000.0]
        with unittest.mock.patch.object(handlers, "time", SimpleNamespace(monotonic=lambda: clock[0])):
            state = elastic.TorchState(model, optimizer, step=0, snapshot=False)
            copies = []
            for _ in range(20):
                clock[0] += 9.0
                step()
                state.commit()
                copies.append(state._copy[0])
            self.assertEqual(copies, [-1] * 5 + [6] * 6 + [12] * 6 + [18] * 3)
            step()
            state.restore()
            self.assertEqual((state.step, state._commits), (18, 18))

    def test_states_without_snapshots_copy_where_they_must(self):
        class OwnHandler(elastic.TorchState):
            def sync(self):
                super().sync()

        model, optimizer = make(0)
        adasum = hvd.DistributedOptimizer(make(0)[1], op=hvd.Adasum)
        lbfgs = torch.optim.LBFGS(model.parameters())
        for why, made in {"2 optimizers": lambda: elastic.TorchState(model, optimizer, other=lbfgs, snapshot=False),
                          "no optimizers": lambda: elastic.TorchState(model, snapshot=False),
                          "LBFGS": lambda: elastic.TorchState(model, lbfgs, snapshot=False),
                          "op=Adasum": lambda: elastic.TorchState(model, adasum, snapshot=False),
                          "program's own": lambda: OwnHandler(model, optimizer, snapshot=False)}.items():
            with self.subTest(why=why):
                with self.assertWarnsRegex(UserWarning, f"in spite of snapshot=False, because .*{why}"):
                    state = made()
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    state.commit()
                with torch.no_grad():
                    weight = model[0].weight.clone()
                    model[0].weight += 1
                state.restore()
                self.assertTrue(torch.equal(model[0].weight, weight))
        if not hasattr(torch.nn.Parameter, "register_post_accumulate_grad_hook") or self.size > 1:
            return
        plain = make(0)[1]
        param = plain.param_groups[0]["params"][0]
        state = elastic.TorchState(optimizer=plain, snapshot=False)
        self.assertFalse(state._copies())
        param.register_post_accumulate_grad_hook(lambda param: plain.step())
        param.square().sum().backward()
        with self.assertWarnsRegex(UserWarning, "because the optimizer steps inside backward"):
            state.commit()

    def test_without_snapshots_a_failure_returns_to_what_was_synchronised_or_later(self):
        model, optimizer = make(self.rank)
        state = elastic.TorchState(model, optimizer, step=0, snapshot=False)
        with torch.no_grad():  # from a checkpoint, once there is a state
            model[0].weight.fill_(100 + self.rank)
        state.step = 5000 + self.rank
        runs = []

        @elastic.run
        def train(state):
            runs.append((state.step, float(model[0].weight.min()), float(model[0].weight.max())))
            for _ in range(3):
                loss_of(model, 0, state.step).backward()
                optimizer.step()
                state.step += 1
                state.commit()
            loss_of(model, 0, state.step).backward()
            optimizer.step()
            self.meet()
            if len(runs) == 1:
                raise hvd.HorovodInternalError("planted")

        train(state)
        self.assertEqual(runs, [(5000, 100, 100)] * 2)

    def test_without_snapshots_a_state_that_marks_later_returns_to_one_commit(self):
        model, optimizer = make(0)
        with self.assertWarnsRegex(UserWarning, "because the state has no optimizers"):
            state = elastic.TorchState(None, None, step=0, snapshot=False)

        def step(number):
            with torch.no_grad():
                model[0].weight.fill_(number)
            state.step = number

        def returns():
            step(99)
            state.restore()
            return state.step, float(model[0].weight.min()), float(model[0].weight.max()), state._commits

        state.model, state.optimizer = model, optimizer
        step(4)
        state.commit()
        self.assertTrue(state._is_marked)
        self.assertEqual(returns(), (4, 4, 4, 1))
        step(5)
        state.commit()
        with self.assertWarnsRegex(UserWarning, "because a step of LBFGS"):
            state.optimizer = torch.optim.LBFGS(model.parameters())
        step(10)
        state.commit()
        self.assertFalse(state._is_marked)
        self.assertEqual(returns(), (10, 10, 10, 3))
        state.optimizer = optimizer
        step(11)
        state.commit()
        self.assertTrue(state._is_marked)
        self.assertEqual(returns(), (11, 11, 11, 4))
        step(12)
        state.commit()
        state.commit()
        self.assertEqual(returns(), (11, 11, 11, 4))

    def test_without_snapshots_the_first_copies_are_in_host_memory_too(self):
        from horovod.torch.elastic import state as handlers

        model, optimizer = make(0)
        for snapshot in (True, False):
            with unittest.mock.patch.object(handlers, "kept_copy", wraps=handlers.kept_copy) as copies:
                state = elastic.TorchState(model, optimizer, later=None, snapshot=snapshot)
                state.later = torch.nn.Linear(2, 2)
            self.assertEqual({call.args[2] for call in copies.call_args_list}, {not snapshot})

    def test_without_snapshots_values_that_cannot_be_compared_count_as_changed(self):
        class Array:  # as of NumPy
            def __init__(self, number):
                self.number = number

            def __eq__(self, other):
                return torch.tensor([self.number == other.number] * 2)

        model, optimizer = make(0)
        optimizer.state[model[0].weight]["history"] = Array(1)
        state = elastic.TorchState(model, optimizer, step=0, snapshot=False)
        state.step = 1
        state.commit()
        optimizer.state[model[0].weight]["history"].number = 7
        state.restore()
        self.assertEqual((state.step, optimizer.state[model[0].weight]["history"].number), (0, 1))

    def test_without_snapshots_a_handler_that_extends_ours_is_not_bypassed(self):
        from horovod.torch.elastic import state as handlers

        class Doubled(handlers.ModelStateHandler):
            restored = 0

            def restore(self):
                super().restore()
                self.restored += 1

        class Both(Doubled):
            def restore_small(self):
                super().restore_small()
                self.restored += 1

        registry = list(elastic.get_handler_registry())
        try:
            for kind in (Doubled, Both):
                elastic.set_handler_registry([(torch.nn.Module, kind), *registry])
                model, optimizer = make(0)
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    state = elastic.TorchState(model, optimizer, snapshot=False)
                self.assertEqual(["no `save_small`" in str(each.message) for each in said],
                                 [True] if kind is Doubled else [])
                state.restore()
                self.assertEqual((state._handlers["model"].restored, state._copies()), (1, kind is Doubled))
        finally:
            elastic.set_handler_registry(registry)

    def test_scalers_forget_a_step_that_was_not_completed(self):
        from horovod.torch.elastic.state import ScalerStateHandler

        class Scaler:  # as GradScaler on a GPU
            _per_optimizer_states = {}
            scale = 8.0

            def state_dict(self):
                return {"scale": self.scale}

            def load_state_dict(self, values):
                self.scale = values["scale"]

        scaler = Scaler()
        handler = ScalerStateHandler(scaler)
        handler.save_small()
        for restore in (handler.restore, handler.restore_small):
            scaler.scale, scaler._per_optimizer_states[1] = 4.0, "unscaled"
            restore()
            self.assertEqual((scaler.scale, scaler._per_optimizer_states), (8.0, {}))

    def test_an_interrupt_keeps_the_state_and_may_skip_its_synchronisation(self):
        for skip_sync in (True, False):
            state = elastic.ObjectState(step=0)
            resets, runs = [], []
            state.register_reset_callbacks([lambda: resets.append(hvd.size())])

            @elastic.run
            def train(state):
                runs.append(state.step)
                self.meet()
                if len(runs) == 1:
                    state.step = 10 + self.rank  # without a commit
                    raise HostsUpdatedInterrupt(skip_sync=skip_sync)
                return state.step

            self.assertEqual(train(state), 10 + (self.rank if skip_sync else 0))
            self.assertEqual((resets, runs[0]), ([self.size], 0))
        self.assertIs(HostsUpdatedInterrupt(True).skip_sync, True)

    def test_a_failure_within_a_reset_callback_is_a_failure_as_any(self):
        runs, resets = [], []

        def fails_once():
            resets.append(hvd.size())
            if len(resets) == 1:
                raise hvd.HorovodInternalError("planted in a callback")

        @elastic.run
        def train(state):
            runs.append(state.step)
            self.meet()
            if len(runs) == 1:
                raise hvd.HorovodInternalError("planted")

        state = elastic.ObjectState(step=3)
        state.register_reset_callbacks([fails_once])
        train(state)
        self.assertEqual((runs, resets), ([3, 3], 2 * [self.size]))

    def test_mistakes_are_raised(self):
        runs = []

        @elastic.run
        def is_wrong(state):
            runs.append("wrong")
            raise ValueError("a mistake")

        with self.assertRaisesRegex(ValueError, "a mistake"):
            is_wrong(elastic.ObjectState())
        self.assertEqual(runs, ["wrong"])

    def test_states_are_kept_and_shared(self):
        model, optimizer = make(self.rank)
        state = elastic.TorchState(model=model, optimizer=optimizer, epoch=self.rank, best=None)
        state.sync()
        self.assertEqual(state.epoch, 0)
        self.assertIs(state.model, model)
        start, _ = make(0)
        for got, want in zip(model.parameters(), start.parameters()):
            self.assertTrue(torch.equal(got, want))
        loss_of(model, 0, 0).backward()
        optimizer.step()
        state.epoch, state.best = 7, {"loss": 1.0}
        state.restore()
        self.assertEqual((state.epoch, state.best), (0, None))
        for got, want in zip(model.parameters(), start.parameters()):
            self.assertTrue(torch.equal(got, want))
        state.epoch = 5
        state.commit()
        state.epoch = 6
        state.restore()
        self.assertEqual(state.epoch, 5)
        other, _ = make(99)
        state.model = other
        self.assertIs(state.model, other)
        with torch.no_grad():
            other[0].bias += 1
        state.restore()
        self.assertTrue(torch.equal(other[0].bias, make(99)[0][0].bias))
        with self.assertRaisesRegex(ValueError, "model is a NoneType now; give it another module"):
            state.model = None

    def test_a_model_may_come_later(self):
        state = elastic.TorchState(epoch=0)
        self.assertEqual((state.model, state.optimizer), (None, None))
        model, _ = make(0)
        state.model = model
        state.commit()
        with torch.no_grad():
            model[0].bias += 1
        state.restore()
        self.assertIs(state.model, model)
        self.assertTrue(torch.equal(model[0].bias, make(0)[0][0].bias))

    def test_subclasses_find_what_the_original_s_find(self):
        state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=self.rank)
        self.assertEqual((state._saved_state, state._rank()), ({"step": self.rank}, self.rank))
        self.assertEqual(state._bcast_object(self.rank), 0)
        state.step = 5
        state.save()
        self.assertEqual(state._saved_state, {"step": 5})
        self.assertEqual(elastic.State()._rank(), self.rank)

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
            # All ranks get the position of rank 0, as they get its weights.
            sampler.load_state_dict(state_dict={"epoch": 1 + self.rank, "processed_num": self.rank})
            state.sync()
            self.assertEqual(sampler.state_dict(), {"epoch": 1, "processed_num": 0})
            self.assertEqual(list(sampler) == mine, not shuffle)

    def of_ranks(self, ranks, state, make, batches, batch_size):
        """Lets this many ranks process some batches from a state on. Returns their samples and the next state."""
        seen, states, lengths = [], set(), set()
        for rank in range(ranks):
            with unittest.mock.patch.multiple("horovod._basics", is_initialized=lambda: True, size=lambda: ranks,
                                              rank=lambda rank=rank: rank):
                data = make()
                data.load_state_dict(state)
            is_sampler = isinstance(data, elastic.ElasticSampler)
            mine = torch.utils.data.DataLoader(data.dataset if is_sampler else data, batch_size=batch_size,
                                               sampler=data if is_sampler else None)
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
                    break  # the rest is left out
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
                # In the end some samples are there twice, so that all ranks have equally many.
                self.assertLess(len(seen) - samples, ranks)

    def test_two_samplers_in_one_state_keep_their_positions_with_loaders_that_have_workers(self):
        train = elastic.ElasticSampler(torch.arange(40), seed=1)
        test = elastic.ElasticSampler(torch.arange(10), shuffle=False)
        state = elastic.TorchState(train=train, test=test)
        loaders = [torch.utils.data.DataLoader(sampler.dataset, sampler=sampler, batch_size=2, num_workers=2)
                   for sampler in (train, test)]
        seen = [], []
        for sampler, loader, part in zip((train, test), loaders, seen):
            for index, batch in zip(range(2), loader):
                sampler.record_batch(index, len(batch))
                part.extend(batch.tolist())
            state.commit()
        train.record_batch(2, 2)
        state.restore()
        for sampler, samples in ((train, 40), (test, 10)):
            self.assertEqual(sampler.state_dict(),
                             {"epoch": 0, "processed_num": min(4, -(-samples // self.size)) * self.size})
        state.sync()
        for loader, part, samples in zip(loaders, seen, (40, 10)):
            rest = sum((batch.tolist() for batch in loader), [])
            done, left = (sum(hvd.allgather_object(mine), []) for mine in (part, rest))
            self.assertEqual(set(done) | set(left), set(range(samples)))
            self.assertLess(len(done) + len(left) - samples, self.size)  # the padding

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
        for _ in range(2):  # with a new worker each
            self.assertEqual(len(list(loader)), -(-100 // self.size))
        loader = torch.utils.data.DataLoader(data, num_workers=1, batch_size=None, persistent_workers=True)
        self.assertEqual(len(list(loader)), -(-100 // self.size))
        with self.assertRaisesRegex(ValueError, "leave out persistent_workers"):
            list(loader)
        with self.assertRaisesRegex(ValueError, "source is an iterator, which cannot begin again"):
            elastic.ElasticIterable(number for number in range(3))

    def test_listeners_hear_of_changed_hosts(self):
        from horovod.common.elastic import notification_manager
        from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager

        class Listener:
            def __init__(self):
                self.heard = queue.Queue()

            def on_hosts_updated(self, timestamp, update_res):
                self.heard.put((timestamp, update_res))

        class Unhashable(Listener, dict):
            def on_hosts_updated(self, timestamp, update_res):
                super().on_hosts_updated(timestamp, update_res)
                raise ValueError("planted")

        def hear(listener):
            timestamp, result = listener.heard.get(timeout=60)
            self.assertLess(abs(timestamp - time.time()), 60)
            return result

        manager = WorkerNotificationManager()
        self.assertIsInstance(notification_manager, WorkerNotificationManager)
        first, second, state = Listener(), Unhashable(), elastic.ObjectState()
        manager.init()
        manager.register_listener(first)
        self.assertIsNone(manager._ended)  # no thread: hosts of this job do not change
        manager.handle_hosts_updated(7, HostUpdateResult.added)
        self.assertEqual(first.heard.get_nowait(), (7, HostUpdateResult.added))

        told = SimpleNamespace(hvd_generation=lambda: 4, hvd_host_updates=lambda: changes)
        changes = 0
        with unittest.mock.patch("horovod._notices.library", lambda: told), \
                unittest.mock.patch("horovod._basics.is_elastic", lambda: True), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            manager.register_listener(second)  # it raises, and is the first to be called
            manager.remove_listener(first)
            manager.register_listener(first)
            manager.init("127.0.0.1", 1234, nic="lo")
            ended = manager._ended
            manager.register_listener(state)
            changes = 2
            self.assertEqual([hear(first), hear(second)], [HostUpdateResult.added] * 2)
            changes = 3  # the same generation, and another change
            self.assertEqual([hear(first), hear(second)], [HostUpdateResult.mixed] * 2)
            manager.remove_listener(first)
            manager.remove_listener(first)
            self.assertFalse(ended.is_set())
            changes = 1
            self.assertEqual(hear(second), HostUpdateResult.removed)
            manager.remove_listener(second)  # the state looks for itself
            self.assertTrue(ended.is_set())
            for thread in threading.enumerate():
                if thread.name == "hvd-hosts":
                    thread.join(60)
        self.assertIn("ValueError: planted", said.getvalue())
        self.assertEqual((first.heard.qsize(), second.heard.qsize(), state._host_messages.qsize()), (0, 0, 0))
        manager.handle_hosts_updated(8, HostUpdateResult.removed)
        with self.assertRaises(HostsUpdatedInterrupt) as raised:
            state.check_host_updates()
        self.assertIs(raised.exception.skip_sync, True)

    def test_a_program_may_announce_changed_hosts(self):
        from horovod.common.elastic import notification_manager
        from horovod.runner.elastic.worker import HostUpdateResult

        runs = []

        @elastic.run
        def train(state):
            runs.append(state.step)
            self.meet()
            if len(runs) == 1:
                state.step = 3
                notification_manager.handle_hosts_updated(int(time.time()), HostUpdateResult.added)
                state.commit()
            return state.step

        self.assertEqual((train(elastic.ObjectState(step=0)), runs), (3, [0, 3]))
        self.assertEqual(notification_manager._listeners, {})

    def test_registry(self):
        registry = elastic.get_handler_registry()
        self.assertEqual([entry[0] for entry in registry[:4]],
                         [torch.nn.Module, torch.optim.Optimizer, elastic.ElasticSampler,
                          elastic.ElasticIterable])
        self.assertEqual([entry[1].__name__ for entry in registry[4:]],
                         2 * ["SchedulerStateHandler"] + ["ScalerStateHandler"])
        elastic.set_handler_registry([])
        self.addCleanup(elastic.set_handler_registry, registry)
        self.assertEqual(elastic.get_handler_registry(), [])
        elastic.get_handler_registry().append((dict, object))
        self.assertEqual(elastic.get_handler_registry(), [(dict, object)])

    def test_a_handler_of_the_user_s_own(self):
        from horovod.torch.elastic.state import StateHandler

        class Schedule:
            place = 3

        class ScheduleHandler(StateHandler):
            def save(self):
                self.saved = self.value.place

            def restore(self):
                self.value.place = self.saved

            def sync(self):
                self.value.place = hvd.broadcast_object(self.value.place, 0)
                self.save()

        registry = elastic.get_handler_registry()
        elastic.set_handler_registry([(Schedule, ScheduleHandler)] + registry)
        self.addCleanup(elastic.set_handler_registry, registry)
        state = elastic.TorchState(schedule=Schedule(), epoch=0)
        state.schedule.place = 5 + self.rank
        state.sync()
        state.schedule.place = 9
        state.restore()
        self.assertEqual(state.schedule.place, 5)
        handler, state.schedule = state._handlers["schedule"], Schedule()
        self.assertIs(state._handlers["schedule"], handler)
        self.assertEqual(handler.saved, 3)

    def test_a_handler_of_the_user_s_own_may_extend_one_of_ours(self):
        from horovod.torch.elastic.state import ModelStateHandler

        calls = []

        class Syncs(ModelStateHandler):
            def sync(self):
                calls.append("sync")
                super().sync()

        class Receives(ModelStateHandler):
            def receive(self):
                calls.append("receive")
                super().receive()

        registry = elastic.get_handler_registry()
        self.addCleanup(elastic.set_handler_registry, registry)
        for kind, call, follows in ((Syncs, "sync", False), (Receives, "receive", True)):
            elastic.set_handler_registry([(torch.nn.Module, kind)] + registry)
            model, _ = make(self.rank)
            state = elastic.TorchState(model, epoch=self.rank)
            state.sync()
            self.assertEqual((calls, _elastic.follows_source(state)), ([call], follows))
            self.assertTrue(torch.equal(model[0].weight, make(0)[0][0].weight))
            self.assertEqual(state.epoch, 0)
            calls.clear()

    def test_handlers_made_by_name(self):
        from horovod.torch.elastic import state as handlers

        model, optimizer = make(0)
        other, _ = make(1)
        handler = handlers.ModelStateHandler(model=model)
        handler.set_value(other)
        weight = other[0].weight.detach().clone()
        with torch.no_grad():
            other[0].weight += 1
        handler.restore()
        self.assertTrue(torch.equal(other[0].weight, weight))
        for made in [handlers.OptimizerStateHandler(optimizer=optimizer),
                     handlers.SamplerStateHandler(sampler=elastic.ElasticSampler([1, 2]))]:
            made.sync()

    def test_states_and_resets_of_the_user_s_own(self):
        from horovod.common.elastic import ObjectState, run_fn

        sent, resets = [], []

        def broadcast(attributes):
            sent.append(attributes)
            return hvd.broadcast_object(attributes)

        def reset():
            hvd.shutdown()
            hvd.init()
            resets.append(hvd.size())

        def train(state, until):
            while state.step < until:
                if state.step == 1 and not resets:
                    raise hvd.HorovodInternalError("planted")
                state.step += 1
                state.commit()
            return hvd.allgather_object(state.step)

        state = ObjectState(broadcast, hvd.rank, step=0, name=f"of {self.rank}")
        self.assertEqual(run_fn(train, reset)(state, 3), [3] * self.size)
        self.assertEqual((state.name, resets), ("of 0", [self.size]))
        self.assertEqual([each["step"] for each in sent], [0, 1])


if __name__ == "__main__":
    rank_case.main()
