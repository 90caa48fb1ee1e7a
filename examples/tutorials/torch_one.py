"""Trains a small network on handwritten digits with PyTorch, in one process."""

import torch

from digits import load

torch.manual_seed(1)
images, labels = map(torch.from_numpy, load("train"))

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
loss_function = torch.nn.CrossEntropyLoss()

for epoch in range(5):
    for batch in torch.randperm(len(images)).split(32):
        optimizer.zero_grad()
        loss = loss_function(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

test_images, test_labels = map(torch.from_numpy, load("t10k"))
right = (model(test_images).argmax(1) == test_labels).float().mean().item()
print(f"test accuracy {right:.3f}")
torch.save(model.state_dict(), "digits.pt")
