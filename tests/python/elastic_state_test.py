"""hvd.elastic.TorchState: saving, restoring and sharing, with and without copies, and users' handlers."""

import unittest.mock
import warnings
from types import SimpleNamespace

import elastic_case
import rank_case
import torch
from elastic_case import loss_of, make
from rank_case import hvd

from horovod import _elastic

elastic = hvd.elastic


class ElasticStateTest(elastic_case.ElasticCase):
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

        # A commit makes a copy before the last copy is a minute old.
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
        for why, made in {
            "2 optimizers": lambda: elastic.TorchState(model, optimizer, other=lbfgs, snapshot=False),
            "no optimizers": lambda: elastic.TorchState(model, snapshot=False),
            "LBFGS": lambda: elastic.TorchState(model, lbfgs, snapshot=False),
            "op=Adasum": lambda: elastic.TorchState(model, adasum, snapshot=False),
            "program's own": lambda: OwnHandler(model, optimizer, snapshot=False),
        }.items():
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
        with torch.no_grad():  # loaded from a checkpoint, after the state exists
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
        class Array:  # like a NumPy array
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
                self.assertEqual(
                    ["no `save_small`" in str(each.message) for each in said], [True] if kind is Doubled else []
                )
                state.restore()
                self.assertEqual((state._handlers["model"].restored, state._copies()), (1, kind is Doubled))
        finally:
            elastic.set_handler_registry(registry)

    def test_scalers_forget_a_step_that_was_not_completed(self):
        from horovod.torch.elastic.state import ScalerStateHandler

        class Scaler:  # like GradScaler on a GPU
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

    def test_registry(self):
        registry = elastic.get_handler_registry()
        self.assertEqual(
            [entry[0] for entry in registry[:4]],
            [torch.nn.Module, torch.optim.Optimizer, elastic.ElasticSampler, elastic.ElasticIterable],
        )
        self.assertEqual(
            [entry[1].__name__ for entry in registry[4:]], 2 * ["SchedulerStateHandler"] + ["ScalerStateHandler"]
        )
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
        for made in [
            handlers.OptimizerStateHandler(optimizer=optimizer),
            handlers.SamplerStateHandler(sampler=elastic.ElasticSampler([1, 2])),
        ]:
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
