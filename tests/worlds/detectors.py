"""Detects ranks as frameworks do: python3 detectors.py NAME... runs each detector in a new process, one after the
other, and prints a line for each: "cell NAME rank R size S local L sum T", or "cell NAME failed ...".

A detector returns its rank, its size, its local rank or None, and the sum of rank + 1 over all ranks. It uses only the
calls of the framework's users. CELL_HOSTS and CELL_SLOTS are the numbers that users of Lightning write into their
program; CELL_PORT is added to MASTER_PORT, so that no detector meets sockets of the previous one.
"""

import importlib
import os
import signal
import sys
import warnings

HOSTS, SLOTS = int(os.environ.get("CELL_HOSTS", "1")), int(os.environ.get("CELL_SLOTS", "2"))
LIMIT = 200  # seconds for one detector
torch = None  # set if a detector needs torch
DETECTORS = {}
NEEDS = {}


def detector(*needs):
    """Registers a function under its name, with the modules that its process imports before the fork."""

    def add(function):
        name = function.__name__.replace("_", "-").replace("--", ".")
        DETECTORS[name] = function
        NEEDS[name] = needs
        return function

    return add


def by_torch():
    """Returns the place of this process in a framework's process group, and its sum."""
    import torch.distributed as group

    total = torch.tensor([group.get_rank() + 1.0])
    group.all_reduce(total)
    return group.get_rank(), group.get_world_size(), total.item()


def by_horovod(hvd, one):
    hvd.init()
    total = hvd.allreduce(one * (hvd.rank() + 1), op=hvd.Sum, name="cell")
    place = hvd.rank(), hvd.size(), hvd.local_rank(), float(total[0])
    hvd.shutdown()
    return place


@detector("horovod.numpy", "numpy")
def hvd__numpy():
    return by_horovod(sys.modules["horovod.numpy"], sys.modules["numpy"].ones(1))


@detector("torch")
def hvd__torch():
    return by_horovod(importlib.import_module("horovod.torch"), torch.ones(1))


@detector("tensorflow")
def hvd__tensorflow():
    return by_horovod(importlib.import_module("horovod.tensorflow"), sys.modules["tensorflow"].ones(1))


@detector("jax")
def hvd__jax():
    return by_horovod(importlib.import_module("horovod.jax"), sys.modules["jax"].numpy.ones(1))


@detector("torch")
def torch_env():
    torch.distributed.init_process_group("gloo")
    rank, size, total = by_torch()
    return rank, size, None, total


@detector("torch")
def device_mesh():
    mesh = torch.distributed.init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    rank, size, total = by_torch()
    assert (mesh.get_local_rank(), mesh.size()) == (rank, size)
    return rank, size, None, total


@detector("torch", "lightning")
def lightning_trainer():
    from lightning.pytorch.demos.boring_classes import BoringModel

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = sys.modules["lightning"].Trainer(
        accelerator="cpu", devices=SLOTS, num_nodes=HOSTS, strategy="ddp", max_steps=2, limit_val_batches=0, **quiet
    )
    trainer.fit(BoringModel())
    rank, size, total = by_torch()
    assert (trainer.global_rank, trainer.world_size) == (rank, size)
    return rank, size, trainer.local_rank, total


@detector("torch", "lightning")
def lightning_fabric():
    fabric = sys.modules["lightning"].Fabric(accelerator="cpu", devices=SLOTS, num_nodes=HOSTS, strategy="ddp")
    fabric.launch()
    total = fabric.all_reduce(torch.tensor([fabric.global_rank + 1.0]), reduce_op="sum")
    return fabric.global_rank, fabric.world_size, fabric.local_rank, total.item()


@detector("torch", "accelerate")
def accelerate():
    state = sys.modules["accelerate"].Accelerator(cpu=True)
    total = state.reduce(torch.tensor([state.process_index + 1.0]), "sum")
    return state.process_index, state.num_processes, state.local_process_index, total.item()


@detector("torch", "transformers")
def transformers_trainer():
    arguments = sys.modules["transformers"].TrainingArguments(output_dir="/tmp/cell", use_cpu=True, report_to="none")
    place = arguments.process_index, arguments.world_size, arguments.local_process_index
    return *place, by_torch()[2]


@detector("torch", "ignite.distributed")
def ignite():
    idist = sys.modules["ignite.distributed"]
    found = []

    def train(_):
        total = idist.all_reduce(idist.get_rank() + 1.0)
        found.extend((idist.get_rank(), idist.get_world_size(), idist.get_local_rank(), total))

    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(train)
    return found


@detector("torch", "deepspeed")
def deepspeed():
    sys.modules["deepspeed"].init_distributed(dist_backend="gloo")
    rank, size, total = by_torch()
    return rank, size, None, total


@detector("jax")
def jax__distributed():
    jax = sys.modules["jax"]
    if "SLURM_JOB_ID" not in os.environ:
        importlib.import_module("horovod.jax")  # registers horovodrun: JAX detects ranks only under Slurm
    jax.distributed.initialize(initialization_timeout=LIMIT)
    rank, size = jax.process_index(), jax.process_count()
    # By the coordinator: gloo in JAX listens at the address of the host's name, which may be a loopback address.
    store = importlib.import_module("jax._src.distributed").global_state.client
    store.key_value_set(f"cell/{rank}", str(rank + 1))
    total = sum(int(store.blocking_key_value_get(f"cell/{each}", 1000 * LIMIT)) for each in range(size))
    jax.distributed.shutdown()
    return rank, size, None, total


@detector("mpi4py")
def mpi4py():
    mpi = importlib.import_module("mpi4py.MPI")
    world = mpi.COMM_WORLD
    place = world.rank, world.size, None, world.allreduce(world.rank + 1)
    mpi.Finalize()  # otherwise the next program of this rank waits for this program's end
    return place


def run(name):
    rank, size, local, total = DETECTORS[name]()
    return f"cell {name} rank {rank} size {size} local {'-' if local is None else local} sum {total:g}"


def in_child(name, number):
    """Runs a detector and prints its line in a single write, so that no thread can split it."""
    if "MASTER_PORT" in os.environ:
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + int(os.environ.get("CELL_PORT", "0")) + number)
    signal.alarm(LIMIT)
    try:
        line = run(name)
    except BaseException as error:
        line = f"cell {name} failed {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    os.write(1, f"{line}\n".encode())
    os._exit(0)


def main():
    global torch
    warnings.filterwarnings("ignore")
    names = sys.argv[1:]
    for module in dict.fromkeys(module for name in names for module in NEEDS[name]):
        importlib.import_module(module)
    torch = sys.modules.get("torch")
    for number, name in enumerate(names):
        child = os.fork()
        if child == 0:
            in_child(name, number)
        _, status = os.waitpid(child, 0)
        if status:
            os.write(1, f"cell {name} failed with status {status}\n".encode())


if __name__ == "__main__":
    main()
