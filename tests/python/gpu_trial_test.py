"""The path of GPU tensors that the ranks choose if no variable does.

gpu_trial_test.py DOUBLE

Runs on three ranks, over the test library of tests/plugins/nccl.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
import time
import weakref
from unittest import mock

import gpu_test  # prepares the test library
from gpu_test import DoubleCuda, DoubleTensor
from rank_case import RankCase, hvd, main, torch

from horovod.common.util import env
from horovod.exceptions import HorovodInternalError
from horovod.torch import _devices, _paths


class MixedCuda(DoubleCuda):
    """Makes tensors of the test library count as GPU tensors, and others as host tensors."""

    def holds(self, tensor):
        return isinstance(tensor, DoubleTensor)


_devices.cuda = MixedCuda()
RANK = int(os.environ["HOROVOD_RANK"])


@contextlib.contextmanager
def job(**variables):
    """Starts Horovod with these environment variables; HOROVOD_GPU_OPERATIONS is unset unless they include it. Yields a
    function that returns the lines of this job's stderr that contain `words`."""
    hvd.shutdown()
    with tempfile.TemporaryFile("w+") as log, env(**{"HOROVOD_GPU_OPERATIONS": None, **variables}):
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)

        def logged(words="tensors of GPUs"):
            log.seek(0)
            return [line for line in log.read().splitlines() if words in line]

        try:
            hvd.init()
            yield logged
        finally:
            hvd.shutdown()
            os.dup2(stderr, 2)
            os.close(stderr)
            log.seek(0)
            sys.stderr.write(log.read())


def on_gpu(value=1.0):
    return _devices.cuda.late(torch.full((4,), value))


class GpuTrialTest(RankCase):
    def sum(self, tensor, size=3, **arguments):
        got = hvd.allreduce(tensor, op=hvd.Sum, **arguments)
        self.assert_equal_tensors(got.cpu(), torch.full((4,), float(size)))

    def decide(self, process_set=hvd.global_process_set):
        """Sums until all ranks know the outcome, and returns the outcome."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            self.sum(on_gpu(), process_set.size(), name="work", process_set=process_set)
            known = _paths.trial_of(process_set.process_set_id, gpu_test.LOCAL_RANK).outcome()
            outcomes = hvd.allgather_object(known, process_set=process_set)
            if None not in outcomes:
                self.assertEqual(len(set(outcomes)), 1)
                return known
        self.fail("the ranks do not decide")

    def uses_gpu(self, **arguments):
        events = _devices.cuda.events
        self.sum(on_gpu(), **arguments)
        return _devices.cuda.events > events

    def test_nccl_is_chosen_where_each_rank_has_a_gpu_of_its_own(self):
        for _ in range(2):  # the next job decides again
            with job(HOROVOD_LOG_LEVEL="info") as logged:
                self.assertTrue(self.decide())
                self.assertTrue(self.uses_gpu(name="work"))
                self.assertTrue(self.uses_gpu(name="other"))
                self.assertEqual(
                    [line.partition("tensors of GPUs")[2].partition(",")[0] for line in logged()],
                    [" go through NCCL 2.18.5"] if RANK == 0 else [],
                )

    def test_ranks_that_lack_something_go_through_host_memory(self):
        version = "22003" if RANK == 1 else "21805"
        for variables, words in (
            (
                {"HVD_DOUBLE_VERSION": version},
                "has NCCL 2.18.5, and rank 1 on host [^ ]* has NCCL 2.20.3: all ranks need one version",
            ),
            ({"CUDA_VISIBLE_DEVICES": "0,1,1"}, "ranks 1 and 2 use one GPU, number 1 of host [^ ]*, and NCCL "),
            ({"HVD_DOUBLE_MIG": "2"}, "ranks 0 and 1 use two MIG instances of one GPU"),
        ):
            with self.subTest(variables=variables), job(**variables) as logged:
                self.assertFalse(self.decide())
                self.assertFalse(self.uses_gpu(name="work"))
                self.assertEqual(len(logged()), 1 if RANK == 0 else 0)
                if RANK == 0:
                    self.assertRegex(logged()[0], "warning.*tensors of GPUs go through host memory: .*" + words)

    def broadcast(self, model):
        hvd.broadcast_parameters([(f"param.{index}", param) for index, param in enumerate(model)], 0)
        for param in model:
            self.assert_equal_tensors(param.cpu(), torch.zeros(4))

    def test_a_model_waits_for_the_choice(self):
        with job(HVD_DOUBLE_START_MS="700"):
            pins = _devices.cuda.pins
            self.broadcast([on_gpu(float(RANK)) for _ in range(20)])
            self.assertTrue(self.uses_gpu(name="work"))
            self.assertEqual(_devices.cuda.pins, pins)

    def test_the_end_of_the_choice_changes_no_bits(self):
        def bits(**variables):
            found = hashlib.sha256()
            with job(**variables):
                self.broadcast([on_gpu(float(RANK))])
                for step in range(5):
                    torch.manual_seed(10 * step + RANK)
                    total = hvd.allreduce(_devices.cuda.late(torch.randn(100)), op=hvd.Sum, name="work")
                    found.update(bytes(total.cpu().view(torch.uint8).tolist()))
            return found.digest()

        by_nccl = bits(HOROVOD_GPU_OPERATIONS="NCCL")
        self.assertNotEqual(bits(HOROVOD_GPU_OPERATIONS="HOST"), by_nccl)
        for milliseconds in ("0", "700"):
            self.assertEqual(bits(HVD_DOUBLE_START_MS=milliseconds), by_nccl)

    def test_a_model_waits_for_a_while_only(self):
        with job(), mock.patch.object(_paths, "LIMIT", 0.2):
            self.broadcast([on_gpu(float(RANK)) if RANK < 2 else torch.full((4,), 2.0) for _ in range(20)])

    def test_little_of_a_model_is_in_host_memory_at_a_time(self):
        with job(HOROVOD_GPU_OPERATIONS="HOST"):
            made, alive, pinned = [], [], _devices.cuda.pinned

            def counted(like):
                tensor = pinned(like)
                made.append(weakref.ref(tensor))
                alive.append(sum(one() is not None for one in made))
                return tensor

            # Leaves room for 4 tensors of 16 bytes at a time.
            with mock.patch.object(_devices, "STAGED_BYTES", 64), mock.patch.object(_devices.cuda, "pinned", counted):
                self.broadcast([on_gpu(float(RANK)) for _ in range(20)])
            self.assertEqual((len(alive), max(alive)), (20, 4))

    def test_a_rank_with_tensors_in_host_memory(self):
        with job(HOROVOD_STALL_CHECK_TIME_SECONDS="1") as logged:
            two = hvd.add_process_set([0, 1])
            for step in range(5):
                self.sum(on_gpu() if RANK < 2 else torch.ones(4), name="work")
                self.sum(on_gpu() if RANK == 0 else torch.ones(4), name=f"other.{step}")
            if RANK < 2:
                self.assertTrue(self.decide(two))
                self.assertTrue(self.uses_gpu(name="work", size=2, process_set=two))
                self.assertFalse(self.uses_gpu(name="beside"))
            else:
                self.sum(torch.ones(4), name="beside")
            time.sleep(2.5)  # an attempt that does not begin is not a stall
            hvd.barrier()
            self.assertEqual(logged("trial_of_gpus") + logged(), [])
            hvd.remove_process_set(two)
            self.sum(on_gpu() if RANK < 2 else torch.ones(4), name="work")

    def test_once_nccl_is_chosen_a_tensor_in_host_memory_is_an_error(self):
        with job():
            mixed = torch.ones(4) if RANK == 2 else on_gpu()
            for _ in range(3):
                self.sum(mixed, name="mixed")
            self.assertTrue(self.decide())
            for name in ("work", "mixed"):
                with self.assertRaisesRegex(HorovodInternalError, "Mismatched CPU/GPU device selections of "):
                    hvd.allreduce(mixed, name=name)
                self.sum(on_gpu(), name=name)

    def test_a_variable_chooses_host_memory(self):
        with job(HOROVOD_GPU_OPERATIONS="HOST"):
            for _ in range(3):
                self.assertFalse(self.uses_gpu(name="work"))
        with job(HOROVOD_REPRODUCIBLE="1"):
            self.assertFalse(self.uses_gpu(name="work"))
        with self.assertRaisesRegex(
            HorovodInternalError,
            "HOROVOD_GPU_OPERATIONS differs between the ranks: rank 0 .*has no value, rank 1 .*has host; set it alike",
        ):
            with job(HOROVOD_GPU_OPERATIONS="HOST" if RANK == 1 else None):
                pass

    def test_a_rank_that_joins_early(self):
        with job():
            if RANK != 1:
                self.sum(on_gpu(), 2, name="work")
            hvd.join()
            self.sum(on_gpu(), name="work")
            if RANK != 1:
                # Other ranks know that rank 1 did not take part in the attempt, and rank 1 waits for it.
                self.assertIs(_paths.trial_of(0, gpu_test.LOCAL_RANK).outcome(), False)

    def test_another_gpu_of_a_rank_goes_through_host_memory(self):
        # A context on the second GPU is expected.
        with job(HVD_DOUBLE_RULES="one_launcher,launch_order"):
            self.assertTrue(self.decide())
            second = gpu_test.LOCAL_RANK + 8
            _devices.cuda.ordinal = lambda tensor: second
            own = DoubleTensor.get_device
            DoubleTensor.get_device = lambda tensor: second
            library = _devices.cuda.library.raw
            library.cudaSetDevice(second)
            try:
                # The native module has submitted nothing yet.
                self.assert_equal_tensors(
                    hvd.allreduce_(on_gpu(), op=hvd.Sum, name="in_place").cpu(), torch.full((4,), 3.0)
                )
                for name in ("work", "second"):
                    self.assertFalse(self.uses_gpu(name=name))
            finally:
                library.cudaSetDevice(gpu_test.LOCAL_RANK)
                DoubleTensor.get_device = own
                del _devices.cuda.ordinal
            self.assertTrue(self.uses_gpu(name="work"))


if __name__ == "__main__":
    main()
