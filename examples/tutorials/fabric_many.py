"""Trains a small network on handwritten digits with Lightning Fabric, in all processes of a job."""

import os

import torch
from lightning_fabric import Fabric

from digits import load

size, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
fabric = Fabric(accelerator="cpu", devices=here, num_nodes=size // here, strategy="ddp")
fabric.launch()
torch.manual_seed(1)
data = torch.utils.data.TensorDataset(*map(torch.from_numpy, load("train")))
loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(data, batch_size=16, shuffle=True))

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))

for epoch in range(5):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        fabric.backward(loss)
        optimizer.step()
    fabric.print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

test_images, test_labels = map(torch.from_numpy, load("t10k"))
right = (model(test_images).argmax(1) == test_labels).float().mean().item()
fabric.print(f"test accuracy {right:.3f}")
