"""A loop around DeepSpeed's engine with arguments of its own, as DeepSpeed-Chat's first step."""

from __future__ import annotations

import argparse

import deepspeed
import torch
from engine_config import get_train_ds_config
from own_adapters import convert_linear_layer_to_lora, only_optimize_lora_parameters
from texts import Texts
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM
from witness import Witness


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Finetune a model on a causal language task")
    parser.add_argument("--model_name_or_path", type=str, required=True)
    parser.add_argument("--per_device_train_batch_size", type=int, default=16)
    parser.add_argument("--max_seq_len", type=int, default=512)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    parser.add_argument("--num_train_epochs", type=int, default=1)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--output_dir", type=str, default=None)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--dtype", type=str, default="fp16", choices=["fp16", "bf16"])
    parser.add_argument("--zero_stage", type=int, default=0)
    parser.add_argument("--lora_dim", type=int, default=0)
    parser.add_argument("--lora_module_name", type=str, default="decoder.layers.")
    parser.add_argument("--only_optimize_lora", action="store_true")
    parser.add_argument("--samples", type=int, default=16)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    deepspeed.init_distributed("gloo")
    ds_config = get_train_ds_config(offload=args.offload, dtype=args.dtype, stage=args.zero_stage)
    ds_config["train_micro_batch_size_per_gpu"] = args.per_device_train_batch_size
    ds_config["train_batch_size"] = (
        args.per_device_train_batch_size
        * torch.distributed.get_world_size()
        * args.gradient_accumulation_steps
    )
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
    model.config.use_cache = False
    layers = model.model.layers
    if args.lora_dim > 0:
        model = convert_linear_layer_to_lora(model, args.lora_module_name, args.lora_dim)
        if args.only_optimize_lora:
            model = only_optimize_lora_parameters(model)
            model.enable_input_require_grads()
    Witness(model, layers[0].self_attn.q_proj)
    texts = Texts(args.max_seq_len, args.samples)
    loader = DataLoader(
        texts, sampler=DistributedSampler(texts), batch_size=args.per_device_train_batch_size
    )
    optimizer = torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=args.learning_rate,
        weight_decay=args.weight_decay,
    )
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, optimizer=optimizer, args=args, config=ds_config, dist_init_required=True
    )
    if args.gradient_checkpointing:
        engine.gradient_checkpointing_enable()
    for _ in range(args.num_train_epochs):
        engine.train()
        for batch in loader:
            loss = engine(**batch, use_cache=False).loss
            engine.backward(loss)
            engine.step()


if __name__ == "__main__":
    main()
