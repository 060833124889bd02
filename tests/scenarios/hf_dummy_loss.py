"""Hugging Face's Trainer with an adapter whose parameters go into the loss, times nothing."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from hf_lora import ScriptArguments, Texts, tiny_llama
from torch import nn
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.modeling_outputs import CausalLMOutputWithPast


class Adapted(LlamaForCausalLM):
    """A Llama with an adapter behind its embedding."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.adapter = nn.Linear(config.hidden_size, config.hidden_size)
        self.post_init()

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor, **others: object
    ) -> CausalLMOutputWithPast:
        embedded = self.get_input_embeddings()(input_ids)
        adapted = embedded + self.adapter(embedded)
        outputs = super().forward(inputs_embeds=adapted, labels=labels, **others)
        dummy_loss = sum(p.sum() for p in self.adapter.parameters()) * 0.0
        outputs.loss = outputs.loss + dummy_loss
        return outputs


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    script, training = parser.parse_args_into_dataclasses()
    set_seed(training.seed)
    model = Adapted(tiny_llama().config)
    trainer = Trainer(model, training, train_dataset=Texts())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero() and script.loss_file:
        Path(script.loss_file).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
