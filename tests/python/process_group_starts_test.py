"""How groups start and end: with each launcher and without one, in place of gloo, together with hvd.init.

process_group_starts_test.py HOROVODRUN
"""

import os
import subprocess
import sys
import tempfile
import unittest
from importlib import metadata

SKIPPED = 77
LAUNCHER = sys.argv.pop(1)
LIMIT = 500
try:
    VERSION = tuple(map(int, metadata.version("torch").split(".")[:2]))
    REGISTERS_ITSELF = VERSION >= (2, 5)
except metadata.PackageNotFoundError:
    print(f"SKIP: {sys.executable} has no torch")
    sys.exit(SKIPPED)

RECONFIGURES = VERSION >= (2, 14)

IMPORTS = """
import datetime, os, sys, time
import torch
import torch.distributed as dist
"""
REGISTER = "" if REGISTERS_ITSELF else "import horovod.torch.distributed\n"
REDUCE = """
ones = torch.ones(3)
dist.all_reduce(ones)
# A group of gloo that a variable holds at the end aborts the process in 8 of 30 runs of torch 2.13.
kind = type(dist.distributed_c10d._get_default_group()).__name__
print(f"sum {ones.tolist()} {dist.get_backend()} {kind}", flush=True)
"""


# Ranks of one job run these one after the other, each in a process that is forked after the import of torch.
FORKS = """
import glob
folder = sys.argv[1]
for number in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        os.environ["HOROVOD_GENERATION"] = str(number)
        file = os.open(f"{folder}/{number}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1), os.dup2(file, 2)
        sys.stdout.reconfigure(line_buffering=True, write_through=False)  # each line by one write
        break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    open(f"{folder}/{number}.{os.environ['RANK']}.{code}", "w").close()
    while len(glob.glob(f"{folder}/{number}.[01].*")) < 2:
        time.sleep(0.01)
else:
    sys.exit()
with open(f"{folder}/{number}.py", encoding="utf-8") as file:
    text = file.read()
del child, file, folder, glob
exec(compile(text, "program.py", "exec"))
"""
WITH_HVD = """
import horovod.torch as hvd
BEFORE
dist.init_process_group("horovod")
AFTER
REDUCE
print("hvd", hvd.allreduce(torch.ones(1), op=hvd.Sum, name="x").item(), hvd.rank() == dist.get_rank(), flush=True)
dist.destroy_process_group()
print("later", hvd.allreduce(torch.ones(1), op=hvd.Sum, name="y").item(), flush=True)
"""
HVD_LINES = {"sum [2.0, 2.0, 2.0] horovod": 2, "hvd 2.0 True": 2, "later 2.0": 2}
# By name: the program, and the expected count of each line.
FORKED = {
    "hvd first": (WITH_HVD.replace("BEFORE", "hvd.init()").replace("AFTER", "").replace("REDUCE", REDUCE), HVD_LINES),
    "hvd last": (WITH_HVD.replace("BEFORE", "").replace("AFTER", "hvd.init()").replace("REDUCE", REDUCE), HVD_LINES),
    "another world size": (
        """
if os.environ["RANK"] == "1":
    os.environ["WORLD_SIZE"] = "3"
try:
    dist.init_process_group("horovod")
except RuntimeError as error:
    os.write(1, f"refused: {error}\\n".encode())
""",
        {"is 2 on rank 0, 3 on rank 1; the launcher gave 2 to all: leave WORLD_SIZE as it is": 2},
    ),
    "a call that is not awaited": (
        """
dist.init_process_group("horovod")
mine = torch.full((2,), 1.0 + dist.get_rank())
if dist.get_rank() == 0:
    time.sleep(0.3)
    dist.reduce(mine, 0)
    print("sum", mine.tolist(), flush=True)
else:
    dist.reduce(mine, 0, async_op=True)
""",
        {"sum [3.0, 3.0]": 1},
    ),
    "calls of all groups": (
        """
dist.init_process_group("horovod")
group = dist.new_group([0, 1])
mine = torch.full((2,), 1.0 + dist.get_rank())
if dist.get_rank() == 0:
    time.sleep(0.3)
    dist.all_reduce(mine, group=group)
    print("sum", mine.tolist(), flush=True)
else:
    dist.all_reduce(mine, group=group, async_op=True)
dist.destroy_process_group()
""",
        {"sum [3.0, 3.0]": 1},
    ),
    "a future": (
        """
dist.init_process_group("horovod")
work = dist.all_reduce(torch.ones(3), async_op=True)
future = work.get_future().then(lambda done: (time.sleep(0.5), print("called", flush=True)))
work.wait()
""",
        {"called": 2},
    ),
}


class StartsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def program(self, text):
        path = os.path.join(self.folder.name, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(IMPORTS + REGISTER + text)
        return path

    def run_command(self, *command, **variables):
        done = subprocess.run(
            list(map(str, command)),
            env={**os.environ, **variables},
            timeout=LIMIT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout

    def launched(self, ranks, text, *flags, **variables):
        return self.run_command(LAUNCHER, "-np", ranks, *flags, sys.executable, self.program(text), **variables)

    def passes(self, result, *words):
        code, output = result
        self.assertEqual(code, 0, output)
        for word in words:
            self.assertIn(word, output)
        return output

    def test_horovodrun_and_a_program_of_gloo(self):
        text = 'dist.init_process_group("gloo")' + REDUCE + "dist.destroy_process_group()\n"
        output = self.passes(
            self.launched(2, text, "--torch-backend", "horovod"), "sum [2.0, 2.0, 2.0] gloo GlooStandIn"
        )
        self.assertEqual(output.count("uses horovod in place of gloo"), 1, output)
        output = self.passes(self.launched(2, text), "sum [2.0, 2.0, 2.0] gloo")
        self.assertNotIn("horovod in place", output)
        self.assertNotIn("GlooStandIn", output)

    @unittest.skipUnless(REGISTERS_ITSELF, "torchrun of torch 1.13 does not start with Python 3.11")
    def test_torchrun(self):
        text = 'dist.init_process_group("horovod")' + REDUCE
        self.passes(
            self.run_command(
                sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", self.program(text)
            ),
            "sum [2.0, 2.0, 2.0] horovod",
        )

    def test_processes_that_only_share_a_file_and_groups_that_come_again(self):
        path = self.program(f"""
rank, folder = int(sys.argv[1]), {self.folder.name!r}
for turn in range(3):
    dist.init_process_group("horovod", init_method=f"file://{{folder}}/store{{turn}}", rank=rank, world_size=2)
    {REDUCE.strip().replace(chr(10), chr(10) + "    ")}
    dist.destroy_process_group()
import horovod.torch as hvd
print("initialized", hvd.is_initialized())
""")
        other = subprocess.Popen([sys.executable, path, "1"], stdout=subprocess.DEVNULL)
        output = self.passes(self.run_command(sys.executable, path, 0), "initialized False")
        self.assertEqual(output.count("sum [2.0, 2.0, 2.0] horovod"), 3, output)
        self.assertEqual(other.wait(LIMIT), 0)

    def test_worlds_beside_the_job(self):
        text = """
import torch.multiprocessing
def child(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    mine = torch.full((2,), 1.0 + rank)
    dist.all_reduce(mine)
    os.write(1, f"child {mine.tolist()}\\n".encode())  # one line of two processes
    dist.destroy_process_group()
def world_of_children(name):
    torch.multiprocessing.spawn(child, (f"FOLDER/{name}.{os.environ['RANK']}",), nprocs=2)
def world_of_all(name):
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://FOLDER/{name}", rank=rank, world_size=2)
    mine = torch.full((2,), 1.0 + dist.get_rank())
    dist.all_reduce(mine)
    print("all", mine.tolist(), type(dist.distributed_c10d._get_default_group()).__name__, flush=True)
if __name__ == "__main__":
    world_of_children("first")
    world_of_all("second")
    world_of_children("third")
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mine = torch.ones(2)
    dist.all_reduce(mine)
    print("alone", mine.tolist(), flush=True)
    dist.destroy_process_group()
    world_of_all("fourth")
    dist.destroy_process_group()
""".replace("FOLDER", self.folder.name)
        output = self.passes(self.launched(2, text, "--torch-backend", "horovod"), "all [3.0, 3.0] GlooStandIn")
        for line, count in (("child [3.0, 3.0]", 8), ("all [3.0, 3.0] GlooStandIn", 4), ("alone [1.0, 1.0]", 2)):
            self.assertEqual(output.count(line), count, output)

    def test_a_job_within_a_rank_uses_its_own_links(self):
        text = f"""
import subprocess
dist.init_process_group("horovod")
dist.barrier()
if len(sys.argv) > 1:
    print("within", "HOROVOD_STORE" in os.environ, flush=True)
elif dist.get_rank() == 0:
    subprocess.run([{LAUNCHER!r}, "-np", "2", sys.executable, __file__, "within"], check=True)
dist.barrier()
"""
        output = self.passes(self.launched(2, text))
        self.assertEqual(output.count("within True"), 2, output)

    def test_programs_that_are_forked(self):
        path = os.path.join(self.folder.name, "{}").format
        for number, (text, _) in enumerate(FORKED.values()):
            with open(path(f"{number}.py"), "w", encoding="utf-8") as file:
                file.write(text)
        words = (self.folder.name, len(FORKED))
        self.passes(self.run_command(LAUNCHER, "-np", 2, sys.executable, self.program(FORKS), *words))
        for number, (name, (_, lines)) in enumerate(FORKED.items()):
            with self.subTest(name), open(path(f"{number}.out"), encoding="utf-8") as file:
                output = file.read()
                self.assertTrue(all(os.path.exists(path(f"{number}.{rank}.0")) for rank in range(2)), output)
                for line, count in lines.items():
                    self.assertEqual(output.count(line), count, output)

    def test_other_ranks_than_those_of_hvd_init_are_refused(self):
        text = """
import horovod.torch as hvd
hvd.init()
dist.init_process_group("horovod", rank=1 - hvd.rank(), world_size=2)
"""
        code, output = self.launched(2, text)
        self.assertNotEqual(code, 0)
        self.assertIn("give init_process_group rank=hvd.rank()", output)

    def test_a_rank_that_rank_0_does_not_know_is_refused(self):
        text = """
import concurrent.futures
from horovod.torch.distributed._ranks import _StoreRendezvous
store = dist.HashStore()
with concurrent.futures.ThreadPoolExecutor(3) as pool:
    runs = [pool.submit(_StoreRendezvous(store, rank, 2 + rank // 2).all_agree, True) for rank in range(3)]
print(*(run.exception() or run.result() for run in runs), flush=True)
"""
        self.passes(self.launched(1, text), "True True horovod: ", "is 2 on rank 0, 3 on rank 2; ")

    @unittest.skipUnless(RECONFIGURES, "this torch reconfigures no group")
    def test_a_group_that_is_to_be_reconfigured_is_of_gloo(self):
        text = """
dist.init_process_group("BACKEND", enable_reconfigure=True)
group = dist.group.WORLD
print(type(group).__name__, dist.get_backend(), dist.distributed_c10d._supports_reconfigure(), flush=True)
"""
        gloo = ["--torch-backend", "horovod"]
        output = self.passes(self.launched(2, text.replace("BACKEND", "gloo"), *gloo), "ProcessGroup gloo True")
        self.assertNotIn("horovod in place", output)
        code, output = self.launched(2, text.replace("BACKEND", "horovod"))
        self.assertNotEqual(code, 0)
        self.assertIn("the backend horovod cannot reconfigure a group in place: leave out enable_reconfigure", output)

    @unittest.skipUnless(REGISTERS_ITSELF, "torch 1.13 registers no backend for a device")
    def test_a_group_of_gloo_beside_a_default_group_of_another_backend(self):
        text = """
def create(store, rank, size, timeout):
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
dist.Backend.register_backend("other", create, devices=["cpu"])
dist.init_process_group("other")
group = dist.new_group([0, 1], backend="gloo")
ones = torch.ones(2)
dist.all_reduce(ones, group=group)
print("sum", ones.tolist(), type(group).__name__, flush=True)
dist.destroy_process_group()
"""
        self.passes(self.launched(2, text, "--torch-backend", "horovod"), "sum [2.0, 2.0] ProcessGroup")

    def test_the_end_of_a_program_does_not_wait_for_calls_that_it_has_given_up(self):
        text = """
import signal
dist.init_process_group("horovod")
if dist.get_rank() == 0:
    late = dist.all_reduce(torch.ones(1), async_op=True)
    try:
        late.wait(datetime.timedelta(seconds=0.1))
    except RuntimeError:
        signal.signal(signal.SIGALRM, lambda *unused: sys.exit(7))
        signal.alarm(1)
        dist.barrier()
time.sleep(600)
"""
        code, output = self.launched(2, text)  # otherwise the time limit would end the job
        self.assertEqual(code, 7, output)

    def test_torch_starts_beside_a_broken_package(self):
        broken = os.path.join(self.folder.name, "broken")
        os.makedirs(os.path.join(broken, "horovod"))
        with open(os.path.join(broken, "horovod", "__init__.py"), "w", encoding="utf-8") as file:
            file.write("raise SystemExit('broken')")
        before = os.environ.get("PYTHONPATH", "")
        self.passes(
            self.run_command(
                sys.executable, "-c", "import torch; print(torch.ones(2).sum().item())", PYTHONPATH=f"{broken}:{before}"
            ),
            "2.0",
        )
        self.passes(
            self.run_command(
                sys.executable,
                "-c",
                """
import sys, torch
import horovod_torch_backend
class Broken:
    def __getattr__(self, name):
        raise SystemExit(name)
sys.modules["torch.distributed"] = Broken()
horovod_torch_backend.load()
print("goes on", "horovod" in sys.modules)
""",
            ),
            "goes on False",
        )


if __name__ == "__main__":
    unittest.main(verbosity=2)
