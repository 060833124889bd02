"""A loop around accelerate, as transformers' run_clm_no_trainer.py and peft's examples."""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from texts import Texts
from torch.utils.data import DataLoader
from transformers import AutoConfig, AutoModelForCausalLM, default_data_collator, get_scheduler
from witness import Witness


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Finetune a model on causal language modeling")
    parser.add_argument("--dataset_name", type=str, default=None)
    parser.add_argument("--model_name_or_path", type=str, required=False)
    parser.add_argument("--per_device_train_batch_size", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    parser.add_argument("--max_train_steps", type=int, default=None)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--block_size", type=int, default=None)
    parser.add_argument("--num_warmup_steps", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    config = AutoConfig.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, config=config)
    Witness(model, model.model.layers[0].self_attn.q_proj)
    train_dataloader = DataLoader(
        Texts(args.block_size or 1024),  # type: ignore[arg-type]
        shuffle=True,
        collate_fn=default_data_collator,
        batch_size=args.per_device_train_batch_size,
    )
    no_decay = ["bias", "layer_norm.weight"]
    named = list(model.named_parameters())
    groups = [
        {
            "params": [p for n, p in named if not any(nd in n for nd in no_decay)],
            "weight_decay": args.weight_decay,
        },
        {"params": [p for n, p in named if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.learning_rate)
    lr_scheduler = get_scheduler(
        name="linear",
        optimizer=optimizer,
        num_warmup_steps=args.num_warmup_steps,
        num_training_steps=args.max_train_steps,
    )
    model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, lr_scheduler
    )
    completed_steps = 0
    model.train()
    for batch in train_dataloader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
        completed_steps += accelerator.sync_gradients
        if completed_steps >= args.max_train_steps:
            break


if __name__ == "__main__":
    main()
