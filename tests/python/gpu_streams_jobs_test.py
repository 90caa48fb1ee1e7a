"""Whole jobs with HOROVOD_ENABLE_ASYNC_COMPLETION=1: errors after synchronize(), lost ranks, and results equal to those
without the variable.

gpu_streams_jobs_test.py HOROVODRUN DOUBLE [TEST...]

HVD_TEST_SEEDS is the number of times that a rank is lost between synchronize() and commit().
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from importlib import util
from pathlib import Path

PROGRAM = Path(__file__).resolve()
NAMED = r"allreduce 'allreduce\.{}' failed after synchronize\(\) had returned"
STEPS = 12


class StreamJobsTest(unittest.TestCase):
    def job(self, program, *arguments, ranks=2, code=0, **variables):
        """Runs a program of this file on ranks, and returns the output."""
        environment = {
            **os.environ,
            "HOROVOD_ENABLE_ASYNC_COMPLETION": "1",
            "HVD_TEST_PROGRAM": program,
            **{name: str(value) for name, value in variables.items()},
        }
        command = [LAUNCHER, "-np", ranks, *arguments, sys.executable, "-B", PROGRAM, DOUBLE]
        ran = subprocess.run(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
            env=environment,
        )
        self.assertEqual(ran.returncode != 0, code != 0, ran.stdout)
        return ran.stdout

    def test_a_rank(self):
        """A rank is lost between synchronize() and commit()."""
        for seed in range(1, int(os.environ.get("HVD_TEST_SEEDS", "1")) + 1):
            with self.subTest(seed=seed):
                said = self.job("train", "--min-np", 2, ranks=3, HVD_DOUBLE_SEED=seed)
                self.assertEqual(len(re.findall(f"weight {STEPS * (STEPS + 1) // 2}.0", said)), 2, said)
                if "lost after synchronize" in said:
                    self.assertEqual(len(re.findall("did not commit", said)), 2, said)

    def test_an_error_after_the_wait(self):
        said = self.job("fail", HVD_DOUBLE_FAULT_AFTER=2)
        self.assertEqual(len(re.findall(NAMED.format("step.3") + ".*an illegal memory access", said)), 4, said)

    def test_an_error_after_the_wait_ends_a_program_that_returns_to_no_commit(self):
        began = time.monotonic()
        said = self.job("sleep", code=1, HVD_DOUBLE_FAULT_AFTER=2)
        self.assertRegex(
            said, NAMED.format("step.3") + ".*this process ends: hvd.elastic.run returns to the last commit"
        )
        self.assertNotIn("went on", said)
        self.assertLess(time.monotonic() - began, 60)

    def test_a_lost_rank_ends_a_program_before_it_reads_a_result(self):
        said = self.job("read", code=1, HVD_DOUBLE_DYING_US=4_000_000)
        self.assertRegex(said, NAMED.format("read") + ".*rank 1.*was lost.*this process ends")
        self.assertNotIn("went on", said)

    def test_an_error_of_nccl_ends_a_program_before_it_reads_a_result(self):
        """The rank with the error waits for its own result meanwhile. Its abort takes a second: the runtime does
        not wait until the other ranks have the error."""
        said = self.job("broken", code=1)
        self.assertRegex(said, NAMED.format("read") + ".*rank 1: .*remote process exited.*this process ends")
        self.assertNotIn("went on", said)

    def test_an_error_during_shutdown_is_logged(self):
        said = self.job("leave", HOROVOD_STALL_CHECK_TIME_SECONDS=1)
        self.assertRegex(said, NAMED.format("read") + ".*rank 1.*was lost.*this rank has called shutdown")

    def test_a_device_that_fails_before_the_copies_of_a_result(self):
        said = self.job("copy", HVD_DOUBLE_FAULT_AFTER=2)
        self.assertEqual(len(re.findall("GPU [01] failed before a result was copied: EventQuery", said)), 2, said)
        self.assertEqual(said.count("limit kept, and over"), 2, said)

    def test_a_hang_is_named(self):
        said = self.job("hang", HOROVOD_STALL_CHECK_TIME_SECONDS=1)
        self.assertRegex(
            said, "allreduce 'allreduce.hung' on the stream of GPU 0 of rank 0, host localhost: not over after 1 s"
        )
        self.assertNotRegex(said, "of rank 1")

    def test_times_of_batches_that_wait_for_those_before_are_no_hang(self):
        for _ in range(3):
            said = self.job("slow", HOROVOD_STALL_CHECK_TIME_SECONDS=1)
            if max(map(float, re.findall("longest ([0-9.]+)", said))) < 0.9:  # else the machine is too busy
                self.assertNotIn("not over after", said)
                break

    def test_times_of_a_timeline_are_those_of_the_device(self):
        """Rank 1 begins each batch 0.3 s late, while rank 0 negotiates the next one."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            self.job("timeline", HVD_TEST_TIMELINE=path)
            events = json.loads(path.read_text())
        [pid] = [one["pid"] for one in events if one.get("args", {}).get("name") == "allreduce.step"]
        of = [[one for one in events if (one["pid"], one.get("tid")) == (pid, tid)] for tid in range(4)]
        words = "B NEGOTIATE_ALLREDUCE,X 0,E,B ALLREDUCE,B NCCL_ALLREDUCE,E,E float32".split(",")
        said = [(one["ph"], one.get("name", one.get("args", {}).get("dtype", ""))) for one in of[0] if one["ph"] != "M"]
        self.assertEqual([" ".join(filter(None, one)) for one in said], 5 * words)
        kernels = [[one for one in of[tid] if one["ph"] == "X"] for tid in (2, 3)]
        for of_rank in kernels:
            self.assertEqual([one["name"] for one in of_rank], 5 * ["NCCL_ALLREDUCE"])
        # Some batches may begin late on a busy machine.
        self.assertGreater(max(one["dur"] for one in kernels[0]), 200_000)
        self.assertGreater(max(late["ts"] - one["ts"] for one, late in zip(*kernels)), 200_000)

    def test_results_are_those_without_it(self):
        # Two hosts with the same name have GPUs with the same number.
        hosts = {"HVD_TEST_SHARES_GPU": 1, "HVD_TEST_HOSTS": 1}
        found = {
            tuple(sorted(re.findall("digest ([0-9a-f]+)", self.job("digest", **variables))))
            for variables in ({}, {"HOROVOD_ENABLE_ASYNC_COMPLETION": 0}, hosts)
        }
        self.assertEqual(len(found), 1)
        self.assertEqual(len(found.pop()), 2)


def train():
    """Kills a rank in one of the steps; in most seeds, batches of other ranks wait for it on their streams."""
    chosen = random.Random(int(os.environ["HVD_DOUBLE_SEED"]))
    last, is_submitted, pause = chosen.randrange(2, STEPS), chosen.random() < 0.8, chosen.random() * 0.02

    class State(hvd.elastic.State):
        weight, step = here(torch.zeros(8)), 0
        kept = (torch.zeros(8), 0)

        def save(self):
            self.kept = (self.weight.cpu().as_subclass(torch.Tensor).clone(), self.step)

        def restore(self):
            self.weight, self.step = here(self.kept[0]), self.kept[1]

        def sync(self):
            self.kept = hvd.broadcast_object(self.kept, 0)
            self.restore()

    @hvd.elastic.run
    def run(state):
        while state.step < STEPS:
            value, mine = state.step + 1.0, hvd.rank() + 1.0
            lost = hvd.size() == 3 and hvd.rank() == 2 and state.step == last
            if lost and not is_submitted:
                os.kill(os.getpid(), signal.SIGKILL)
            gradient = here(torch.full((8,), value * 2 * mine / (hvd.size() + 1)))
            with held_back() if lost else contextlib.nullcontext():
                hvd.allreduce_(gradient, name="gradient")
                if lost:
                    time.sleep(pause)
                    print("lost after synchronize", flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)
            state.weight.add_(gradient)
            state.step += 1
            try:
                state.commit()
            except HorovodInternalError:
                print(f"rank {hvd.rank()} did not commit", flush=True)
                raise
        return state

    state = run(State())
    print("weight", *set(state.weight.cpu().tolist()), flush=True)


def steps():
    """The kernel of the last step fails after the wait for it has ended."""
    stream, going = _devices.cuda.current, threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda unused: going.wait(60))
    for number in range(1, 4):
        tensor = here(torch.ones(4))
        if number == 3:
            assert stream.library.cudaLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), function, None) == 0
        hvd.allreduce_(tensor, op=hvd.Sum, name=f"step.{number}")
    going.set()
    return tensor, function


def fail():
    with _ops.surviving():
        state = hvd.elastic.ObjectState()
        kept, until = steps(), time.monotonic() + 30
        with contextlib.suppress(HorovodInternalError):  # NCCL's thread waits 2 s for a better reason
            while time.monotonic() < until:
                time.sleep(0.1)
                hvd.barrier()
        for call in (hvd.barrier, state.save):
            try:
                call()
            except HorovodInternalError as error:
                print(error, flush=True)
        os._exit(0 if kept else 1)


def sleep():
    kept = steps()
    time.sleep(100)
    print("went on", kept, flush=True)


def read(use=lambda tensor: print("went on", tensor.cpu().tolist(), flush=True), seconds=0.5):
    """One rank ends while the other rank reads a result of a slow kernel."""
    tensor = here(torch.ones(4))
    with held_back() if hvd.rank() == 1 else contextlib.nullcontext():
        hvd.allreduce_(tensor, op=hvd.Sum, name="read")
        if hvd.rank() == 1:
            time.sleep(seconds)
            os._exit(0)
        use(tensor)


def broken():
    """NCCL reports an error on rank 1, for whose first kernel the one of rank 0 waits."""
    tensors = [here(torch.ones(4, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    with held_back() if hvd.rank() == 1 else contextlib.nullcontext():
        first, second = (
            hvd.allreduce_async_(one, op=hvd.Sum, name=name) for one, name in zip(tensors, ("read", "later"))
        )
        if hvd.rank() == 1:
            try:
                hvd.synchronize(second)
            finally:
                time.sleep(10)
        print("went on", hvd.synchronize(first).cpu().tolist(), flush=True)


def leave():
    """Rank 0 is in shutdown(), which waits a second for the result."""
    read(lambda unused: hvd.shutdown(), 3)


def copy():
    """The kernel of a later batch fails before the caller's stream reaches the copies of a result."""
    stream, going = _devices.cuda.current, threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda unused: going.wait(60))
    with _ops.surviving():
        handle = hvd.allgather_async(here(torch.ones(4)), name="copied")
        assert stream.library.cudaLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), function, None) == 0
        kept = hvd.synchronize(handle)
        began = time.monotonic()
        _native.complete_early(0.2)
        assert time.monotonic() - began >= 0.2
        with gpu_hazards_test.on(gpu_hazards_test.new_stream()):
            for name in ("good", "failed"):
                later = hvd.allreduce_async_(here(torch.ones(4)), name=name)
                while not hvd.poll(later):
                    time.sleep(0.01)
        try:
            _native.complete_early(-1.0)
        except HorovodInternalError as error:
            print(error, flush=True)
        began = time.monotonic()
        hvd.shutdown()
        print("limit kept, and over", kept is None, flush=True)
        os._exit(0 if time.monotonic() - began < 5 else 1)


def hang():
    tensor = here(torch.ones(4))
    with held_back() if hvd.rank() == 1 else contextlib.nullcontext():
        hvd.allreduce_(tensor, op=hvd.Sum, name="hung")
        if hvd.rank() == 1:
            time.sleep(6)
    tensor.cpu()


def slow():
    """Eight batches are on the stream at the same time, and each one begins 0.4 s after the end of the one before."""
    stream, ends = _devices.cuda.current, [time.monotonic()]

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def wait(unused):
        time.sleep(0.4)
        ends.append(time.monotonic())

    tensors = [here(torch.ones(4)) for _ in range(8)]
    for number, tensor in enumerate(tensors):
        assert stream.library.cudaLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), wait, None) == 0
        hvd.allreduce_(tensor, op=hvd.Sum, name=f"slow.{number}")
    gpu_hazards_test.synchronize()
    print("longest", max(end - begin for begin, end in zip(ends, ends[1:])), flush=True)


def timeline():
    hvd.start_timeline(os.environ["HVD_TEST_TIMELINE"])
    hvd.barrier()
    for _ in range(5):
        tensor = here(torch.ones(4))
        with held_back() if hvd.rank() == 1 else contextlib.nullcontext():
            hvd.allreduce_(tensor, op=hvd.Sum, name="step")
            if hvd.rank() == 1:
                time.sleep(0.3)
    _native.complete_early(-1.0)
    hvd.barrier()
    hvd.stop_timeline()


def digest():
    torch.manual_seed(hvd.rank())
    found = hashlib.sha256()
    for number in range(20):
        tensors = [here(torch.randn(100 + number)) for _ in range(5)]
        handles = [hvd.allreduce_async(one, name=f"{number}.{at}") for at, one in enumerate(tensors)]
        results = [hvd.synchronize(handle) for handle in handles]
        results += [hvd.allgather(tensors[0]), hvd.reducescatter(tensors[1], op=hvd.Sum, prescale_factor=1 / 3)]
        results += hvd.grouped_allreduce([one.clone() for one in tensors], op=hvd.Sum)
        for result in results:
            found.update(bytes(result.cpu().contiguous().view(torch.uint8).tolist()))
    print("digest", found.hexdigest(), flush=True)


if __name__ == "__main__" and "HVD_TEST_PROGRAM" not in os.environ:
    LAUNCHER, DOUBLE = sys.argv.pop(1), sys.argv.pop(1)
    if util.find_spec("torch") is None:
        print(f"SKIP: {sys.executable} has no torch")
        sys.exit(77)
    unittest.main()
elif __name__ == "__main__":
    import contextlib
    import ctypes
    import hashlib
    import threading

    if "HVD_TEST_HOSTS" in os.environ:
        os.environ["NCCL_HOSTID"] = os.environ["HOROVOD_RANK"]
    import gpu_hazards_test
    from gpu_test import GpuTest, here
    from rank_case import hvd, torch

    from horovod import _native, _ops
    from horovod.exceptions import HorovodInternalError
    from horovod.torch import _devices

    if (os.environ["HVD_TEST_PROGRAM"], os.environ["HOROVOD_RANK"]) == ("broken", "1"):
        os.environ.update(HOROVOD_ENABLE_ASYNC_COMPLETION="0", HVD_DOUBLE_FAILS_AFTER="1", HVD_DOUBLE_ABORT_MS="1000")
    hvd.init()
    gpu_hazards_test.choose_device()

    def held_back():
        return GpuTest.stopped(None)

    globals()[os.environ["HVD_TEST_PROGRAM"]]()
