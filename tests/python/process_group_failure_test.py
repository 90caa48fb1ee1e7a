"""A rank of a group is killed: the errors of the survivors' operations, and how they continue. Ranks are forked, so
that one process imports torch for all ranks."""

import datetime
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import unittest

try:
    import torch
except ImportError:
    print(f"SKIP: {sys.executable} has no torch")
    sys.exit(77)
import torch.distributed as dist

sys.path.append(os.path.join(os.path.dirname(__file__), "../hosts"))
from idle import idle

import horovod.torch.distributed  # noqa: F401, where torch registers nothing by itself
from horovod.exceptions import HorovodInternalError
from horovod.torch.distributed._work import Work

SIZE = 3
LIMIT = 200
# Milliseconds of an idle machine; the figures are printed.
SECONDS = 5
CAUSE = r"rank \d on host \S+ was lost: its process ended"
SHOWS_KEYS = hasattr(dist.Store, "check")  # not torch 1.13, whose store cannot be watched
LARGE = 1 << 22


class Rank:
    """One rank in a separate process."""

    def __init__(self, folder, rank, victim):
        self.folder, self.rank, self.victim = folder, rank, victim

    def meet(self, name, rank, size):
        dist.init_process_group("horovod", init_method=f"file://{self.folder}/{name}", rank=rank, world_size=size)

    def prepare(self, operation):
        if operation == "backward":
            self.model = torch.nn.Linear(4, 1)
            self.module = torch.nn.parallel.DistributedDataParallel(self.model)
            for _ in range(2):  # the second pass rearranges the buckets
                self.module(torch.ones(2, 4)).sum().backward()
        elif operation == "other_group":
            self.group = dist.new_group(list(range(SIZE)), backend="horovod")
        dist.barrier()

    # The operations.
    def all_reduce(self):
        dist.all_reduce(torch.ones(1000))

    def asynchronous(self):
        works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(2)]
        works[1].wait()

    def future(self):
        dist.all_reduce(torch.ones(10), async_op=True).get_future().wait()

    def future_of_the_work(self):
        work = dist.all_reduce(torch.ones(10), async_op=True)
        work.get_future()
        work.wait()

    def broadcast(self):
        dist.broadcast(torch.ones(10), self.victim)

    def other_group(self):
        dist.all_reduce(torch.ones(10), group=self.group)

    def objects(self):
        dist.all_gather_object([None] * SIZE, self.rank)

    def barrier(self):
        dist.barrier()

    def send(self):
        dist.send(torch.ones(LARGE), self.victim)

    def receive(self):
        dist.recv(torch.ones(10), self.victim)

    def receive_from_any(self):
        dist.recv(torch.ones(10))

    def receive_in_a_batch(self):
        operations = [dist.P2POp(dist.irecv, torch.ones(5), self.victim)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    def backward(self):
        self.module(torch.ones(2, 4)).sum().backward()

    def get(self):
        dist.distributed_c10d._get_default_store().get("a key that nobody sets")

    def wait_for_a_key(self):
        dist.distributed_c10d._get_default_store().wait(["another key"], datetime.timedelta(seconds=LIMIT))

    def monitored_barrier(self):
        dist.distributed_c10d._get_default_group().monitored_barrier(datetime.timedelta(seconds=LIMIT))

    def new_group(self):
        dist.new_group(list(range(SIZE)), backend="horovod")

    def new_group_of_gloo(self):
        dist.new_group(list(range(SIZE)), backend="gloo", timeout=datetime.timedelta(seconds=LIMIT))

    def go_on(self):
        """Returns the gradient that the survivors compute with the same module."""
        del self.module
        dist.destroy_process_group()
        left = [rank for rank in range(SIZE) if rank != self.victim]
        self.meet("later", left.index(self.rank), len(left))
        self.module = torch.nn.parallel.DistributedDataParallel(self.model)
        self.model.zero_grad()
        self.module(torch.full((1, 4), float(self.rank))).sum().backward()
        dist.destroy_process_group()
        return self.model.weight.grad.tolist()


class FailureTest(unittest.TestCase):
    def lose(self, operation, victim=1, goes_on=False):
        """Kills the victim while the survivors wait in the operation. Returns the survivors' reports."""
        with tempfile.TemporaryDirectory() as folder:
            pids = [self.start(Rank(folder, rank, victim), operation, goes_on) for rank in range(SIZE)]
            end = time.monotonic() + LIMIT
            while pids:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid:
                    pids.remove(pid)
                elif time.monotonic() > end:
                    for one in pids:
                        os.kill(one, signal.SIGKILL)
                    self.fail(f"{operation}: ranks wait for ever")
                else:
                    time.sleep(0.01)
            said = []
            for rank in range(SIZE):
                with open(f"{folder}/rank{rank}", encoding="utf-8") as file:
                    said.append(json.load(file))
        killed = said.pop(victim)["at"]
        for one in said:
            self.assertIn("sentence", one, f"{operation}: {one}")
            self.assertRegex(one["sentence"], CAUSE.replace(r"\d", str(victim)), operation)
            print(f"{operation}: {1000 * (one['at'] - killed):.1f} ms: {one['type']}: {one['sentence']}")
            one["seconds"] = one["at"] - killed
            self.assertLess(one["seconds"], SECONDS, operation)
        return said

    def start(self, rank, operation, goes_on):
        pid = os.fork()
        if pid:
            return pid
        try:
            said = self.run_rank(rank, operation, goes_on)
        except BaseException:
            said = {"failed": traceback.format_exc()}
        with open(f"{rank.folder}/rank{rank.rank}", "w", encoding="utf-8") as file:
            json.dump(said, file)
        os._exit(0)

    def run_rank(self, rank, operation, goes_on):
        rank.meet("store", rank.rank, SIZE)
        rank.prepare(operation)
        if rank.rank == rank.victim:
            time.sleep(0.2)  # until the other ranks wait
            with open(f"{rank.folder}/rank{rank.rank}", "w", encoding="utf-8") as file:
                json.dump({"at": idle()}, file)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            getattr(rank, operation)()
        except Exception as error:
            at = idle()
            sentence = str(error).splitlines()[0]
            said = {"at": at, "type": type(error).__name__, "sentence": sentence}
            if goes_on:
                said["gradient"] = rank.go_on()
            return said
        return {"returned": operation}

    def loses(self, *operations, name=HorovodInternalError.__name__, **more):
        said = [one for operation in operations for one in self.lose(operation, **more)]
        self.assertEqual({one["type"] for one in said}, {name})
        return min(one["seconds"] for one in said)

    def test_collectives(self):
        self.loses("all_reduce", "asynchronous", "future_of_the_work", "broadcast", "other_group", "objects", "barrier")

    def test_messages(self):
        self.loses("send", "receive", "receive_from_any", "receive_in_a_batch")

    def test_waits_in_c_plus_plus(self):
        self.loses("future", name="RuntimeError")

    @unittest.skipUnless(SHOWS_KEYS, "the store of this torch cannot be watched")
    def test_stores(self):
        self.loses("get", "wait_for_a_key", "new_group_of_gloo")

    def test_groups_and_their_barriers(self):
        self.loses("new_group", "monitored_barrier")

    def test_a_forked_child_completes_futures(self):
        def complete():
            return Work("a work", [], [torch.ones(1)], 1).get_future().wait()[0].item()

        self.assertEqual(complete(), 1)  # a thread of this process completes the work
        pid = os.fork()
        if not pid:
            signal.alarm(10)
            os._exit(0 if complete() == 1 else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_the_first_rank(self):
        # Rank 0 owns the store that gives all survivors the same cause, and ends with the store.
        self.assertLess(self.loses("all_reduce", "receive", "barrier", victim=0), 0.4)

    def test_ddp_goes_on_with_the_same_module(self):
        for one in self.lose("backward", goes_on=True):
            self.assertEqual(one["type"], "RuntimeError")
            self.assertEqual(one["gradient"], [[1.0] * 4])


if __name__ == "__main__":
    unittest.main(verbosity=2)
