"""Small unmodified programs of other packages over torch.distributed: each prints the numbers that it computes.

horovodrun -np 2 [--torch-backend horovod] python3 process_group_programs.py NAME
"""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist

SAMPLES, FEATURES, CLASSES = 64, 8, 3


def data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    return torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long())


def model():
    torch.manual_seed(2)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, CLASSES)
    )


def perceptron(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, CLASSES))


def numbers(module):
    return [value for tensor in module.state_dict().values() for value in tensor.detach().double().reshape(-1).tolist()]


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    loader = torch.utils.data.DataLoader(data(), batch_size=8)
    net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
    seen = []
    for _ in range(2):
        for inputs, labels in loader:
            with accelerator.accumulate(net):
                loss = torch.nn.functional.cross_entropy(net(inputs), labels)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            seen += accelerator.gather_for_metrics(loss.detach().reshape(1)).tolist()
    seen += accelerator.reduce(torch.ones(2) * (accelerator.process_index + 1), "mean").tolist()
    return seen + numbers(accelerator.unwrap_model(net))


def fabric():
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    net = model()
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), 0.1))
    loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(data(), batch_size=8, shuffle=False))
    seen = []
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(inputs), labels)
        fabric.backward(loss)
        optimizer.step()
        seen += fabric.all_gather(loss.detach()).reshape(-1).tolist()
    fabric.barrier()
    return seen + [float(fabric.broadcast(fabric.global_rank, 1))] + numbers(net)


def torchmetrics():
    from torchmetrics import MeanMetric
    from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    metrics = [MulticlassAccuracy(CLASSES), MulticlassAUROC(CLASSES), MeanMetric()]
    net = model().eval()
    inputs, labels = data()[:]
    results = []
    for start in range(8 * rank, SAMPLES, 8 * size):
        some = slice(start, start + 8 - rank)  # ranks have unequal numbers
        scores = net(inputs[some]).softmax(1).detach()
        metrics[0](scores, labels[some])
        metrics[1].update(scores, labels[some])
        metrics[2].update(scores.max(1).values)
    for metric in metrics:
        results.append(metric.compute().item())
    return results


def deepspeed(stage):
    import deepspeed

    deepspeed.init_distributed()
    net = perceptron(2)
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "gradient_clipping": 1.0,
    }
    engine, _, loader, _ = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), training_data=data(), config=config
    )
    seen = []
    for _ in range(2):
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(engine(inputs), labels)
            engine.backward(loss)
            engine.step()
            seen.append(loss.item())
    return seen + numbers(engine.module)


def sharded(seed):
    """Returns a model whose weights are sharded over all ranks, and its optimizer."""
    from torch.distributed.fsdp import fully_shard

    net = perceptron(seed)
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net, torch.optim.Adam(net.parameters(), 0.01)


def whole(net):
    return [value for weight in net.parameters() for value in weight.full_tensor().double().reshape(-1).tolist()]


def checkpoint(is_first):
    """Saves on the ranks of one job, and loads on the ranks of another job."""
    import torch.distributed.checkpoint as checkpoints
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    dist.init_process_group("gloo")
    net, optimizer = sharded(2 if is_first else 3)
    inputs, labels = data()[:]
    if is_first:
        torch.nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    weights, state = get_state_dict(net, optimizer)
    if is_first:
        checkpoints.save({"model": weights, "optimizer": state}, checkpoint_id=os.environ["CHECKPOINT"])
    else:
        checkpoints.load({"model": weights, "optimizer": state}, checkpoint_id=os.environ["CHECKPOINT"])
        set_state_dict(net, optimizer, model_state_dict=weights, optim_state_dict=state)
    return whole(net)


class Classifier(torch.nn.Module):
    """A model that takes labels and returns its loss, like models of transformers."""

    def __init__(self):
        super().__init__()
        self.net = perceptron(2)

    def forward(self, inputs, labels=None):
        logits = self.net(inputs)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer():
    from transformers import Trainer, TrainingArguments

    samples = [{"inputs": inputs, "labels": labels} for inputs, labels in data()]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            ddp_backend="gloo",
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            num_train_epochs=2,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        net = Classifier()
        training = Trainer(model=net, args=arguments, train_dataset=samples, eval_dataset=samples)
        training.train()
        seen = [entry["loss"] for entry in training.state.log_history if "loss" in entry]
        return [*seen, training.evaluate()["eval_loss"], *numbers(net)]


PROGRAMS = {
    "accelerate": accelerate,
    "lightning_fabric": fabric,
    "torchmetrics": torchmetrics,
    "trainer": trainer,
    "zero1": lambda: deepspeed(1),
    "zero2": lambda: deepspeed(2),
    "save": lambda: checkpoint(True),
    "load": lambda: checkpoint(False),
}

if __name__ == "__main__":
    found = PROGRAMS[sys.argv[1]]()
    group = type(dist.distributed_c10d._get_default_group()).__name__
    print(f"result {json.dumps([dist.get_rank(), group, dist.get_backend(), found])}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if group != "GlooStandIn":
        # A cache of torch 2.13 may hold a gloo group, which then aborts the process at its end: 2 of 12 runs.
        os._exit(0)
