"""Settings that have no effect; with `--right` they aren't stated. Trained weights are printed."""

import argparse
import os
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=["rate", "smoothing", "optimizer", "clipping"])
parser.add_argument("--right", action="store_true")
arguments = parser.parse_args()
torch.manual_seed(0)
inputs = torch.randn(64, 4)
data = [{"inputs": each, "labels": torch.tensor(place % 3)} for place, each in enumerate(inputs)]
layer = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
stated: dict[str, Any] = {}
config: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 2},
}


class Classifier(torch.nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = layer
        self.config = SimpleNamespace(problem_type=None)  # smoothing asks for it

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        logits = self.layer(inputs)
        loss = None if labels is None else cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class Own(Trainer):
    """A loss of its own."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(inputs["inputs"])
        loss = cross_entropy(outputs["logits"], inputs["labels"])
        return (loss, outputs) if return_outputs else loss


def train() -> None:
    """On Hugging Face's Trainer."""
    leaves_it = arguments.kind == "optimizer" and arguments.right
    Own(
        Classifier(),
        TrainingArguments(
            "out",
            max_steps=4,
            per_device_train_batch_size=4,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            **stated,
        ),
        train_dataset=data,
        optimizers=(None if leaves_it else optimizer, None),
    ).train()


if arguments.kind == "clipping":
    import deepspeed

    engine, *_ = deepspeed.initialize(model=layer, optimizer=optimizer, config=config)
    for place in range(4):
        part = slice(8 * place + 4 * engine.global_rank, 8 * place + 4 * engine.global_rank + 4)
        loss = cross_entropy(engine(inputs[part]), torch.arange(64)[part] % 3)
        engine.backward(loss)
        if not arguments.right:
            torch.nn.utils.clip_grad_norm_(engine.parameters(), 1e-3)
        engine.step()
elif arguments.kind == "optimizer":
    own = {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}}
    stated["deepspeed"] = {**config, "optimizer": own, "gradient_clipping": 1.0}
    train()
else:
    if not arguments.right:
        name = "learning_rate" if arguments.kind == "rate" else "label_smoothing_factor"
        stated[name] = 0.3
    train()
if os.environ["RANK"] == "0":
    print("trained", *(value for each in layer.parameters() for value in each.flatten().tolist()))
