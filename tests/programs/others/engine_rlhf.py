"""Four models in engines of their own, of which two are trained: DeepSpeed-Chat's third step."""

from __future__ import annotations

import argparse
from typing import Any

import deepspeed
import torch
from engine_config import get_eval_ds_config, get_train_ds_config
from texts import Texts
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModel, AutoModelForCausalLM
from witness import Witness


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="(Step 3) RLHF training arguments")
    parser.add_argument("--actor_model_name_or_path", type=str, required=True)
    parser.add_argument("--critic_model_name_or_path", type=str, required=True)
    parser.add_argument("--per_device_training_batch_size", type=int, default=16)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--max_prompt_seq_len", type=int, default=256)
    parser.add_argument("--max_answer_seq_len", type=int, default=256)
    parser.add_argument("--actor_learning_rate", type=float, default=9.65e-6)
    parser.add_argument("--critic_learning_rate", type=float, default=5e-6)
    parser.add_argument("--dtype", type=str, default="fp16", choices=["fp16", "bf16"])
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--actor_zero_stage", type=int, default=0)
    parser.add_argument("--critic_zero_stage", type=int, default=0)
    parser.add_argument("--actor_gradient_checkpointing", action="store_true")
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


class RewardModel(nn.Module):
    """A model without its head, and a number for each token."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.config, self.rwtranrsformer = base.config, base
        self.v_head = nn.Linear(base.config.hidden_size, 1, bias=False)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.rwtranrsformer(input_ids, attention_mask=attention_mask)[0]
        return self.v_head(hidden).squeeze(-1)


class DeepSpeedRLHFEngine:
    """The four engines."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.actor = self._trained(
            AutoModelForCausalLM.from_pretrained(args.actor_model_name_or_path),
            args.actor_zero_stage,
            args.actor_learning_rate,
        )
        self.ref = self._evaluated(
            AutoModelForCausalLM.from_pretrained(args.actor_model_name_or_path),
            args.actor_zero_stage,
        )
        self.critic = self._trained(
            RewardModel(AutoModel.from_pretrained(args.critic_model_name_or_path)),
            args.critic_zero_stage,
            args.critic_learning_rate,
        )
        self.reward = self._evaluated(
            RewardModel(AutoModel.from_pretrained(args.critic_model_name_or_path)),
            args.critic_zero_stage,
        )
        if args.actor_gradient_checkpointing:
            self.actor.gradient_checkpointing_enable()

    def _sized(self, config: dict[str, Any]) -> dict[str, Any]:
        micro = self.args.per_device_training_batch_size
        config["train_micro_batch_size_per_gpu"] = micro
        config["train_batch_size"] = (
            micro * torch.distributed.get_world_size() * self.args.gradient_accumulation_steps
        )
        return config

    def _trained(self, model: nn.Module, stage: int, rate: float) -> Any:
        config = self._sized(get_train_ds_config(self.args.offload, self.args.dtype, stage))
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        if rate == self.args.actor_learning_rate:
            Witness(model, model.model.layers[0].self_attn.q_proj)
        return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]

    def _evaluated(self, model: nn.Module, stage: int) -> Any:
        if stage != 3:
            stage = 0
        config = self._sized(get_eval_ds_config(False, self.args.dtype, stage))
        return deepspeed.initialize(model=model, config=config)[0]


def main() -> None:
    args = parse_args()
    deepspeed.init_distributed("gloo")
    rlhf = DeepSpeedRLHFEngine(args)
    texts = Texts(args.max_prompt_seq_len + args.max_answer_seq_len, 8)
    loader = DataLoader(
        texts, sampler=DistributedSampler(texts), batch_size=args.per_device_training_batch_size
    )
    for engine, is_trained in (
        (rlhf.actor, True),
        (rlhf.ref, False),
        (rlhf.critic, True),
        (rlhf.reward, False),
    ):
        engine.train(is_trained)
    for batch in loader:
        words = {name: batch[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            kept = rlhf.ref(**words, use_cache=False).logits
            reward = rlhf.reward(**words)
        logits = rlhf.actor(**words, use_cache=False).logits
        rlhf.actor.backward((logits - kept).float().pow(2).mean() - logits.float().mean())
        rlhf.actor.step()
        rlhf.critic.backward((rlhf.critic(**words) - reward).float().pow(2).mean())
        rlhf.critic.step()


if __name__ == "__main__":
    main()
