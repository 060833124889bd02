"""All frameworks, a row each; one of which more is known than its names has a module."""

from __future__ import annotations

from .accelerate import ACCELERATE
from .axolotl import AXOLOTL
from .flag_embedding import FLAG_EMBEDDING, FOR_DECODERS
from .framework import FrameworkRow
from .llama_factory import LLAMA_FACTORY
from .ms_swift import MS_SWIFT
from .transformers import TRANSFORMERS
from .trl import TRL

FRAMEWORKS: tuple[FrameworkRow, ...] = (
    FrameworkRow(
        "verl",
        ("verl",),
        "verl-project/verl",
        in_log=r"\bverl/|\bverl\.|RayPPOTrainer|actor_rollout_ref",
        less_memory="`actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu`,"
        " `actor_rollout_ref.rollout.gpu_memory_utilization`",
    ),
    FrameworkRow(
        "OpenRLHF",
        ("openrlhf",),
        "OpenRLHF/OpenRLHF",
        in_log=r"\bopenrlhf/|\bopenrlhf\.",
        less_memory="`--micro_train_batch_size`, `--micro_rollout_batch_size`,"
        " `--vllm_gpu_memory_utilization`",
    ),
    FrameworkRow(
        "Megatron",
        ("megatron",),
        "NVIDIA/Megatron-LM",
        "megatron-core",
        in_log=r"\bmegatron/(?:core|training)|megatron\.core|pretrain_gpt\.py|\bmindspeed",
        less_memory="`--micro-batch-size`, `--recompute-granularity full`,"
        " `--tensor-model-parallel-size`",
    ),
    FrameworkRow(
        "torchtitan",
        ("torchtitan",),
        "pytorch/torchtitan",
        in_log=r"\btorchtitan/",
        less_memory="`training.local_batch_size`, `activation_checkpoint.mode`",
    ),
    FrameworkRow(
        "torchtune",
        ("torchtune",),
        "meta-pytorch/torchtune",
        commands=("tune",),
        in_log=r"\btorchtune/|\btune run",
        less_memory="`batch_size`, `enable_activation_checkpointing=True`",
    ),
    FrameworkRow("NeMo", ("nemo",), "NVIDIA-NeMo/NeMo", "nemo-toolkit", in_log=r"\bnemo/|nemo_run"),
    FrameworkRow(
        "Lightning",
        ("lightning", "lightning_fabric", "pytorch_lightning"),
        "Lightning-AI/pytorch-lightning",
        in_log=r"\b(?:pytorch_)?lightning(?:_fabric)?/",
    ),
    MS_SWIFT,
    LLAMA_FACTORY,
    AXOLOTL,
    FOR_DECODERS,
    FLAG_EMBEDDING,
    TRL,
    TRANSFORMERS,
    ACCELERATE,
)
"""Those that run others inside first: a log shows the loops of both."""
OF_PACKAGE = {package: row for row in FRAMEWORKS for package in row.packages}
"""Frameworks by import name."""
COMMANDS = "|".join(command for row in FRAMEWORKS for command in row.commands)
"""Pattern of the programs that start them."""
