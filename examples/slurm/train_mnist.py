"""Trains the CNN of ../torch_digits.py for two epochs, one process for each task of the job.

srun --mpi=pmix python train_mnist.py
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from torch_digits import Net, load_digits


def main():
    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if torch.cuda.is_available():  # Slurm sets which GPUs of the node belong to the job.
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())

    train_set = load_digits("train")
    sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for images, digits in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(images.to(device)), digits.to(device))
            loss.backward()
            optimizer.step()
        loss = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f} on {hvd.size()} processes", flush=True)


if __name__ == "__main__":
    main()
