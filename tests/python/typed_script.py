"""A user's script with type hints; types_test.py runs mypy on it, and no test executes it."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import horovod
import horovod.jax
import horovod.keras
import horovod.mxnet
import horovod.numpy
import horovod.tensorflow
import horovod.tensorflow.keras
import horovod.torch as hvd
import torch
from horovod.torch.elastic import ElasticSampler, TorchState


def train(epochs: int) -> float:
    hvd.init()
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), hvd.SyncBatchNorm(3))
    # Like most scripts, this script reuses the variable of the original optimizer.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16,
        op=hvd.Average,
        backward_passes_per_step=2,
        groups=2,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    loss = torch.zeros(1)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
    clipped = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()))
    clipped.synchronize()
    with clipped.skip_synchronize():
        clipped.step()
    return float(hvd.allreduce(loss, name="loss", op=hvd.Sum))


def collectives(tensor: torch.Tensor) -> List[Any]:
    one: torch.Tensor = hvd.allreduce_(tensor)
    handle: int = hvd.allreduce_async_(one, name="one")
    done: bool = hvd.poll(handle)
    waited: torch.Tensor = hvd.synchronize(handle)
    group: List[torch.Tensor] = hvd.grouped_allreduce([tensor, tensor])
    rows: torch.Tensor = hvd.alltoall(tensor)
    pair: Tuple[torch.Tensor, torch.Tensor] = hvd.alltoall(tensor, splits=[2, 2])
    even: hvd.ProcessSet = hvd.add_process_set(range(0, hvd.size(), 2))
    if even.included():
        hvd.barrier(process_set=even)
    hvd.remove_process_set(even)
    settings: Dict[str, int] = hvd.broadcast_object({"seed": 1}, root_rank=0)
    everybody: List[Any] = hvd.allgather_object(hvd.rank())
    last: int = hvd.join()
    return [done, waited, group, rows, pair, settings, everybody, last, horovod.__version__]


def sizes() -> List[int]:
    return [
        hvd.size(),
        horovod.jax.size(),
        horovod.keras.size(),
        horovod.mxnet.size(),
        horovod.numpy.size(),
        horovod.tensorflow.size(),
        horovod.tensorflow.keras.size(),
    ]


@hvd.elastic.run
def elastic(state: TorchState) -> int:
    try:
        state.commit()
    except hvd.HorovodInternalError as error:
        print(error, len(ElasticSampler([1, 2, 3])))
    return 1


if __name__ == "__main__":
    results: List[float] = horovod.run(train, args=(2,), num_proc=2, hosts="a:1,b:1")
    print(results, elastic(TorchState(batch=0)))
