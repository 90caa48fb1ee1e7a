"""hvd.elastic.run: restarts of training, process sets, failures and changes of hosts."""

import contextlib
import io
import queue
import threading
import time
import unittest.mock
import warnings
from types import SimpleNamespace

import elastic_case
import rank_case
import torch
from elastic_case import loss_of, make
from rank_case import hvd

from horovod import _basics, _elastic, process_sets
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.torch import _requests

elastic = hvd.elastic


class ElasticTest(elastic_case.ElasticCase):
    def train(self, model, optimizer, fails):
        """Makes ten steps, commits after every second step and calls `fails` once. Returns the numbers of runs and
        resets."""
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
            # One rank leaves; the other ranks' next operation fails.
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
        runs, gradients, handles = [], [], []

        def start(*arguments, start=_requests.allreduce_async_):
            handles.append(start(*arguments))
            return handles[-1]

        def between(_):  # the first gradient is in flight when the second is ready
            gradients.append(None)
            if len(gradients) == 2:
                hvd.allreduce(torch.ones(1), name="elastic.in_flight")
                while not hvd.poll(handles[-1]):
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

        with unittest.mock.patch.object(_requests, "allreduce_async_", start):
            train(state)
        self.assertEqual((runs, state.step), ([0, 1], 3))
        mean = (self.size + 1) / 2
        for param in params:
            self.assert_close(param.grad[:3], torch.full((3,), mean), torch.float32)

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
            # A reset callback may add the process set again, as a new rank does.
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
            if self.rank == 0:  # the other ranks only add the set, like new ranks
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
        library = SimpleNamespace(
            hvd_generation=lambda: calls.count("init") - 1,
            hvd_is_provisional=lambda: 0,
            **{f"hvd_{scope}{what}": lambda: 0 for scope in ("", "local_", "cross_") for what in ("rank", "size")},
        )
        calls, answers = [], iter([hvd.HorovodInternalError("planted"), None])

        def add(process_set):
            calls.append(process_set)
            answer = next(answers)
            if answer is not None:
                raise answer

        with unittest.mock.patch.multiple(
            "horovod._basics",
            is_elastic=lambda: True,
            is_initialized=lambda: bool(calls),
            library=lambda: library,
            _first_generation=None,
            _init_interruptibly=lambda sets, ranks: calls.append("init"),
            _leave=lambda: calls.append("leave"),
        ), unittest.mock.patch.multiple(
            "horovod.process_sets",
            add_process_set=add,
            forget_all=lambda keeps: None,
            restore=lambda broadcast: calls.append("restore"),
        ), unittest.mock.patch.multiple("horovod._ops", reset=lambda: None), unittest.mock.patch.dict("os.environ"):
            hvd.init(process_sets=[wanted])
            self.assertTrue(_basics.was_there_from_the_start())  # the second attempt had generation 1
        self.assertEqual(calls, ["init", wanted, "leave", "init", "restore", wanted])

    def test_a_process_that_joins_ranks_says_why_it_has_not_their_sets(self):
        def join(*unused):
            _basics._joined()

        def refuse(*unused):
            raise ValueError("planted")

        library = SimpleNamespace(hvd_is_provisional=lambda: 1)
        with unittest.mock.patch.multiple(
            "horovod._basics", library=lambda: library, _restore_sets=refuse
        ), unittest.mock.patch.multiple("horovod._ops", complete_init=join):
            with self.assertRaisesRegex(ValueError, "^planted$"):
                _basics.complete_init()
            with self.assertWarnsRegex(UserWarning, "without their process sets: planted"):
                join()  # a collective would join in the same way

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
            """Returns the source and its commits for ranks (commits, has the state); the first rank is this one. `must`
            has per rank whether the rank must synchronise its state."""
            state = state or elastic.ObjectState()
            state._commits = ranks[0][0]
            others = [(commits, None if has_state else "", any(must[1:])) for commits, has_state in ranks[1:]]
            with unittest.mock.patch.multiple(
                "horovod._basics",
                is_elastic=lambda: True,
                size=lambda: len(ranks),
                _first_generation=0 if ranks[0][1] else 1,
            ), unittest.mock.patch.multiple("horovod._elastic", _has_synced=False, _source=0), unittest.mock.patch(
                "horovod._objects.allgather_object", lambda mine, name: [mine, *others]
            ):
                commits = _elastic._choose_source(state, must[0])
                return _elastic.source_rank(), commits

        self.assertEqual(choose((-1, True)), (0, -1))
        self.assertEqual(choose((3, True), (4, True), (4, True)), (1, 4))
        self.assertEqual(choose((-1, False), (-1, True)), (1, -1))
        self.assertEqual(choose((5, False), (-1, True), (4, True)), (2, 4))
        # All ranks synchronise if one rank must, for example a new rank or a rank that a failure has reached.
        self.assertEqual(choose((3, True), (4, True), must=(False, True)), (1, 4))
        self.assertEqual(choose((3, True), (3, True), must=(False, False)), (0, None))
        for ranks in [[(-1, False)], [(-1, False), (-1, False)], [(2, False), (-1, False)]]:
            with self.assertRaisesRegex(RuntimeError, "no remaining rank has the training state"):
                choose(*ranks)
        lost = elastic.ObjectState()
        lost._lost = "planted."
        self.assertEqual(choose((5, True), (4, True), state=lost), (1, 4))
        with self.assertRaisesRegex(RuntimeError, "has the training state. planted."):
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
                        self.meet()  # all ranks have the gradients
                        if self.rank == 0:
                            # Simulates a rank that ends before its result: the other ranks step and commit.
                            hvd.shutdown()
                            raise hvd.HorovodInternalError("planted")
                    with optimizer.skip_synchronize():
                        optimizer.step()
                    scheduler.step()
                    state.step += 1
                    state.commit()
                    if len(runs) == 1 and state.step == 4:
                        hvd.barrier()  # this barrier fails

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

            with unittest.mock.patch.object(handlers.ModelStateHandler, "receive", receive), unittest.mock.patch.object(
                handlers.OptimizerStateHandler, "receive", fails
            ), unittest.mock.patch.object(handlers, "source_rank", lambda: self.rank + 1), self.assertRaises(
                hvd.HorovodInternalError
            ):
                state.sync()
            state.restore()
            for got, wanted in zip(model.parameters(), want):
                self.assertTrue(torch.equal(got, wanted))
            self.assertTrue(torch.equal(optimizer.state[model[0].bias]["momentum_buffer"], momentum))
            self.assertEqual(state.step, 1)

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
                    state.step = 10 + self.rank  # changes the state without a commit
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
            timestamp, result = listener.heard.get(timeout=200)
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
        with unittest.mock.patch("horovod._notices.library", lambda: told), unittest.mock.patch(
            "horovod._basics.is_elastic", lambda: True
        ), contextlib.redirect_stderr(io.StringIO()) as said:
            manager.register_listener(second)  # the first call raises
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
            manager.remove_listener(second)  # the state checks for changes
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

    def test_the_launcher_learns_where_the_outermost_run_begins_and_ends(self):
        for error, ends in (
            (None, ["returned"]),
            (ValueError, ["raised"]),
            (KeyboardInterrupt, ["raised"]),
            (BaseException, ["raised"]),
            (SystemExit, []),
        ):
            events = []
            library = SimpleNamespace(
                hvd_elastic_run_entered=lambda: events.append("entered"),
                hvd_elastic_run_returned=lambda: events.append("returned"),
                hvd_elastic_run_raised=lambda: events.append("raised"),
            )

            def inner(error):
                events.append("inner")
                if error:
                    raise error

            def outer(error):
                with contextlib.suppress(ValueError):
                    _elastic._noted(inner)(ValueError)
                _elastic._noted(inner)(error)

            with unittest.mock.patch("horovod._basics.is_elastic", lambda: True), unittest.mock.patch(
                "horovod._elastic.library", lambda: library
            ):
                for _ in range(2):
                    with self.assertRaises(error) if error else contextlib.nullcontext():
                        _elastic._noted(outer)(error)
            self.assertEqual(events, ["entered", "inner", "inner", *ends] * 2, error)

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


if __name__ == "__main__":
    rank_case.main()
