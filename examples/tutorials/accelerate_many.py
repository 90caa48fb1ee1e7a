"""Trains a small network on handwritten digits with Accelerate, in all processes of a job."""

import torch
from accelerate import Accelerator

from digits import load

accelerator = Accelerator(cpu=True)
torch.manual_seed(1)
data = torch.utils.data.TensorDataset(*map(torch.from_numpy, load("train")))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

for epoch in range(5):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
    accelerator.print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

test_images, test_labels = map(torch.from_numpy, load("t10k"))
right = (accelerator.unwrap_model(model)(test_images).argmax(1) == test_labels).float().mean().item()
accelerator.print(f"test accuracy {right:.3f}")
accelerator.end_training()
