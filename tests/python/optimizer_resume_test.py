"""DistributedOptimizer after a step that ends early: a signal, an error, a loaded state, a new generation."""

import signal
import unittest.mock
import warnings

from optimizer_case import OPTIMIZERS, OptimizerCase, loss_of, make_model
from rank_case import hvd, torch

from horovod.exceptions import HorovodDisagreementError
from horovod.torch import _closures, _notice


class Preempted(Exception):
    """A signal handler raises this exception."""


class OptimizerResumeTest(OptimizerCase):
    def setUp(self):
        super().setUp()
        if self.size < 2:
            self.skipTest("nothing is in flight in a world of one")

    def closure_of(self, model, optimizer, step, after=None):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, self.rank, step)
            loss.backward()
            if after is not None:
                after(model)
            return loss

        return closure

    def assert_step_with_closure(self, model, optimizer, step, *others):
        """Takes a step. Its gradient must come from this step on all ranks."""
        before = [param.detach().clone() for param in model.parameters()]
        reference = make_model()
        reference.load_state_dict(model.state_dict())
        optimizer.step(self.closure_of(model, optimizer, step))
        sum(loss_of(reference, rank, step) / self.size for rank in range(self.size)).backward()
        for param, want, was in zip(model.parameters(), reference.parameters(), before):
            self.assertLess((param - (was - 0.1 * want.grad)).abs().max().item(), 1e-3)

    def interrupted(self, error, step, *closure):
        """Takes a step; a signal handler interrupts its wait for other ranks."""

        def interrupt(*unused):
            raise error

        def evaluate():
            loss = closure[0]()
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            return loss

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with self.assertRaises(error):
                if closure:
                    step(evaluate)
                else:
                    signal.setitimer(signal.ITIMER_REAL, 0.3)
                    step()
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_a_handler_may_raise_an_exception_of_any_class(self):
        for arguments in {"groups": 3}, {"compression": hvd.Compression.fp16}, {}:
            model = make_model()
            make = OPTIMIZERS["SGD"]
            optimizer = hvd.DistributedOptimizer(make(model.parameters()), **arguments)
            for step in range(3):
                if self.rank:
                    hvd.broadcast(torch.ones(1), 0, name="interrupted")
                loss_of(model, self.rank, step).backward()
                if self.rank == 0:
                    self.interrupted(Preempted, optimizer.step)
                    hvd.broadcast(torch.ones(1), 0, name="interrupted")
                optimizer.step()
                optimizer.zero_grad()
            self.assert_same_weights(model, self.reference(make, 3), 1e-2 if "compression" in arguments else 1e-12)

    def test_a_state_that_is_loaded_after_a_failed_closure_drops_its_gradients(self):
        for arguments in {"groups": 3}, {"groups": 1}, {}:
            model = make_model()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **arguments)
            optimizer.step(self.closure_of(model, optimizer, 0))

            def fail(model):
                raise ValueError("planted")

            with self.assertRaisesRegex(ValueError, "planted"):
                optimizer.step(self.closure_of(model, optimizer, 1, fail))
            optimizer.load_state_dict(optimizer.state_dict())
            self.assert_step_with_closure(model, optimizer, 2)

    def test_an_error_of_a_step_leaves_no_gradient_of_an_interrupted_closure(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), groups=3, compression=hvd.Compression.fp16
        )

        def interrupt(gradient):
            raise KeyboardInterrupt

        hook = model[0].weight.register_hook(interrupt)
        with self.assertRaises(KeyboardInterrupt):
            optimizer.step(self.closure_of(model, optimizer, 0))
        hook.remove()
        with unittest.mock.patch.object(hvd.Compression.fp16, "decompress", side_effect=ValueError("planted")):
            with self.assertRaisesRegex(ValueError, "planted"):
                optimizer.step(self.closure_of(model, optimizer, 0))
        hvd.barrier()
        self.assert_step_with_closure(model, optimizer, 2)

    def test_a_rank_whose_pass_a_loaded_state_has_dropped_has_no_gradients(self):
        for again in lambda optimizer: optimizer.load_state_dict(optimizer.state_dict()), lambda _: _restart():
            model = make_model()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            optimizer.step(self.closure_of(model, optimizer, 0))
            if self.rank == 0:
                loss_of(model, self.rank, 1).backward()
            again(optimizer)
            optimizer.zero_grad()
            self.assert_step_with_closure(model, optimizer, 2)

    def test_a_step_that_a_scaler_skips_ends_what_synchronize_has_begun(self):
        if not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"):
            self.skipTest("torch scales on GPUs only")
        for op in hvd.Average, hvd.Sum:
            model = make_model().float()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=op)
            scaler = torch.amp.GradScaler("cpu")
            inputs = torch.ones(2, 4)
            scaler.scale(model(inputs).sum() * float("inf")).backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
            model.zero_grad()
            model(inputs).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                optimizer.step()

    def test_an_interrupted_closure_reports_a_written_gradient(self):
        for arguments in {"groups": 3}, {}:
            model = make_model()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **arguments)
            optimizer.step(self.closure_of(model, optimizer, 0))

            def write(model):
                if self.rank == 0:
                    model[2].weight.grad.mul_(2)
                else:  # rank 0 waits meanwhile
                    hvd.broadcast(torch.ones(1), 0, name="interrupted")

            closure = self.closure_of(model, optimizer, 1, write)
            if self.rank == 0:
                self.interrupted(KeyboardInterrupt, optimizer.step, closure)
                hvd.broadcast(torch.ones(1), 0, name="interrupted")
            with self.assertRaisesRegex(AssertionError, "written on rank 0"):
                optimizer.step(closure)

    def test_a_step_follows_a_closure_whose_losses_had_two_kinds(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        with self.assertRaisesRegex(AssertionError, "and a loss on another"):
            optimizer.step(lambda: None if self.rank == 1 else 1.0)
        self.assert_step_with_closure(model, optimizer, 2)

    def test_a_request_of_the_optimizer_s_own_may_fail_once(self):
        for module, arguments in (_closures, {}), (_notice, {"groups": 3}):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **arguments
            )
            submit = module.allreduce_async_

            def wrong(tensor, *more, submit=submit, **terms):
                return submit(torch.ones(2 + self.rank), *more, **terms)

            with unittest.mock.patch.object(module, "allreduce_async_", wrong):
                with self.assertRaisesRegex(HorovodDisagreementError, "Mismatched"):
                    if module is _closures:
                        optimizer.step(self.closure_of(model, optimizer, 0))
                    else:
                        self.closure_of(model, optimizer, 0)()
                        optimizer.step()
            optimizer.zero_grad()
            self.assert_step_with_closure(model, optimizer, 2)


def _restart():
    hvd.shutdown()
    hvd.init()


if __name__ == "__main__":
    import rank_case

    rank_case.main()
