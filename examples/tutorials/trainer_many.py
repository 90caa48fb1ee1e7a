"""Trains a small network on handwritten digits with the Trainer of transformers, in all processes of a job."""

import tempfile

import torch
from transformers import Trainer, TrainingArguments

from digits import load


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def forward(self, images, labels):
        scores = self.layers(images)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


def samples(part):
    return [{"images": image, "labels": label} for image, label in zip(*map(torch.from_numpy, load(part)))]


arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    num_train_epochs=5,
    per_device_train_batch_size=16,
    learning_rate=0.01,
    use_cpu=True,
    report_to="none",
    save_strategy="no",
    logging_strategy="epoch",
    disable_tqdm=True,
    ddp_find_unused_parameters=False,
)
trainer = Trainer(
    Classifier(),
    arguments,
    train_dataset=samples("train"),
    eval_dataset=samples("t10k"),
    compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(1) == found.label_ids).mean()},
)
trainer.train()
accuracy = trainer.evaluate()["eval_accuracy"]
if trainer.is_world_process_zero():
    print(f"test accuracy {accuracy:.3f}")
