"""A small model for tests of hvd.elastic, its loss on a rank, and a barrier for all ranks."""

import contextlib

import rank_case
import torch
from rank_case import hvd


def make(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer


def loss_of(model, rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randn(6, 4, generator=generator)).square().mean()


class ElasticCase(rank_case.RankCase):
    def meet(self):
        """Returns after all ranks have begun their run, so that the next failure hits each rank in the run, not in the
        synchronisation before it."""
        with contextlib.suppress(hvd.HorovodInternalError):  # another rank has left already
            hvd.barrier()
