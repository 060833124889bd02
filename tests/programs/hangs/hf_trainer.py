"""Fine-tunes with the Trainer of transformers, with evaluation and checkpoints.

    hf_trainer.py MODE FOLDER

MODE is `callback` (rank 0 reports to a server that never answers), `slow` (a metric takes rank 0
long) or `well`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

mode, folder = sys.argv[1], Path(sys.argv[2])


class Model(torch.nn.Module):
    """The smallest that the Trainer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and output."""
        output = self.linear(x).squeeze(-1)
        return {"loss": (output - labels).square().mean(), "logits": output}


class Report(TrainerCallback):
    """Tells a server of each step."""

    def on_step_end(self, args, state, _control, **_kwargs) -> None:
        """Called by the Trainer."""
        if mode == "callback" and args.process_index == 0 and state.global_step == 3:
            time.sleep(3600)  # stuck: callback

    def on_evaluate(self, args, _state, _control, **_kwargs) -> None:
        """Called by the Trainer."""
        end = time.monotonic() + 8
        while mode == "slow" and args.process_index == 0 and time.monotonic() < end:
            torch.randn(64, 64).svd()


data = [{"x": torch.randn(8), "labels": torch.tensor(1.0)} for _ in range(48)]
arguments = TrainingArguments(
    output_dir=str(folder),
    per_device_train_batch_size=4,
    max_steps=6,
    eval_strategy="steps",
    eval_steps=2,
    save_steps=4,
    use_cpu=True,
    ddp_backend="gloo",
    report_to=[],
    disable_tqdm=True,
)
Trainer(Model(), arguments, train_dataset=data, eval_dataset=data, callbacks=[Report()]).train()
