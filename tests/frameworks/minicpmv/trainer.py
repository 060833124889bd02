"""The Trainer of the fine-tuning script: the loss of the answers' tokens."""

from __future__ import annotations

from torch import nn
from transformers import Trainer


class CPMTrainer(Trainer):
    """Computes the loss itself, where the labels are those of the next token."""

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=-100)
        return (loss, outputs) if return_outputs else loss
