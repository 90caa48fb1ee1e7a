"""An unmodified script for DeepSpeed. It uses its own communication, with the launcher's variables.

horovodrun -np 2 python train.py --deepspeed --deepspeed_config ds_config.json
"""

import argparse
import gzip
import hashlib
import json
import pathlib

import deepspeed
import torch
import torch.distributed as dist

DATA = pathlib.Path(__file__).resolve().parents[4] / "examples/data"


def read(name, header):
    with gzip.open(DATA / name) as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
engine, _, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config_params=json.load(open("ds_config.json"))
)
images = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 64).float() / 16
labels = read("train-labels-idx1-ubyte.gz", 8).long()
size = engine.train_micro_batch_size_per_gpu()
mine = range(dist.get_rank() * size, len(images) - 16, 16)
for start in mine:
    loss = torch.nn.functional.cross_entropy(engine(images[start : start + size]), labels[start : start + size])
    engine.backward(loss)
    engine.step()
weights = b"".join(each.detach().float().numpy().tobytes() for each in engine.module.parameters())
sums = [None] * dist.get_world_size()
dist.all_gather_object(sums, hashlib.sha256(weights).hexdigest())
accuracy = (engine.module(images).argmax(1) == labels).float().mean().item()
print(
    f"rank {dist.get_rank()} of {dist.get_world_size()}: stage {engine.zero_optimization_stage()}, "
    f"identical {len(set(sums)) == 1}, learned {accuracy > 0.7}",
    flush=True,
)
dist.destroy_process_group()
