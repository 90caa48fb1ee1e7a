"""Trains by each project's own loop, as its users write it, and prints the weights:

python3 projects.py NAME [FILE], alone or by horovodrun. Each run takes the same rows in each step, 8 in all; the ranks
share them equally.
"""

import json
import os
import sys
import tempfile

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ROWS, STEPS, BATCH = 64, 8, 8
SIZE, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
HOSTS = int(os.environ.get("HOROVOD_CROSS_SIZE", "1"))


def data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(ROWS, 4, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, inputs @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]], dtype=torch.float64))


def model():
    torch.manual_seed(2 + RANK)  # the project must send rank 0's weights to the others
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()


def descent(net):
    return torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)


loss_of = torch.nn.functional.mse_loss


def ignite():
    import ignite.distributed as idist
    from ignite.engine import create_supervised_trainer

    def train(_):
        net = idist.auto_model(model())
        loader = idist.auto_dataloader(data(), batch_size=BATCH, shuffle=False)
        create_supervised_trainer(net, idist.auto_optim(descent(net)), loss_of).run(loader, max_epochs=1)
        return net

    found = []
    with idist.Parallel(backend="horovod" if SIZE > 1 else None) as parallel:
        parallel.run(lambda rank: found.append(train(rank)))
    return found[0]


def lightning():
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model()

        def training_step(self, batch, _):
            return loss_of(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return descent(self)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(
        accelerator="cpu",
        devices=SIZE // HOSTS,
        num_nodes=HOSTS,
        max_epochs=1,
        strategy="ddp" if SIZE > 1 else "auto",
        **quiet,
    )
    module = Module()
    # Lightning's own sampler shuffles.
    sampler = DistributedSampler(data(), SIZE, RANK, shuffle=False)
    trainer.fit(module, DataLoader(data(), batch_size=BATCH // SIZE, sampler=sampler))
    return module.net


def trainer():
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, inputs, labels):
            return {"loss": loss_of(self.net(inputs), labels)}

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            per_device_train_batch_size=BATCH // SIZE,
            num_train_epochs=1,
            max_grad_norm=0,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        module = Model()
        rate = torch.optim.lr_scheduler.ConstantLR(optimizer := descent(module), 1)
        samples = [{"inputs": inputs, "labels": labels} for inputs, labels in data()]
        Trainer(model=module, args=arguments, train_dataset=samples, optimizers=(optimizer, rate)).train()
    return module.net


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = model()
    net, optimizer, loader = accelerator.prepare(net, descent(net), DataLoader(data(), batch_size=BATCH // SIZE))
    for inputs, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(loss_of(net(inputs), labels))
        optimizer.step()
    return accelerator.unwrap_model(net)


def deepspeed():
    """By ZeRO-1: each rank keeps its part of the momentum. ZeRO computes in float32."""
    import deepspeed

    net = model().float()
    settings = {
        "train_micro_batch_size_per_gpu": BATCH // SIZE,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=net, optimizer=descent(net), config=settings, dist_init_required=True)
    sampler = DistributedSampler(data(), SIZE, RANK, shuffle=False)
    for inputs, labels in DataLoader(data(), batch_size=BATCH // SIZE, sampler=sampler):
        engine.backward(loss_of(engine(inputs.float()), labels.float()))
        engine.step()
    return engine.module


if __name__ == "__main__":
    weights = [
        value for tensor in globals()[sys.argv[1]]().parameters() for value in tensor.detach().flatten().tolist()
    ]
    os.write(1, f"weights {json.dumps(weights)}\n".encode())
    os._exit(0)  # a group of gloo may abort the process at its end
