"""Detects a log's training loop and accelerator."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...catalogue.device import Device, device_of
from .step import Case


@dataclass(frozen=True, slots=True)
class Loop:
    """A training loop recognized by its files and words."""

    name: str
    words: str
    less_memory: str = ""


LOOPS = (
    Loop(
        "verl",
        r"\bverl/|\bverl\.|RayPPOTrainer|actor_rollout_ref",
        "`actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu`,"
        " `actor_rollout_ref.rollout.gpu_memory_utilization`",
    ),
    Loop(
        "OpenRLHF",
        r"\bopenrlhf/|\bopenrlhf\.",
        "`--micro_train_batch_size`, `--micro_rollout_batch_size`, `--vllm_gpu_memory_utilization`",
    ),
    Loop(
        "Megatron",
        r"\bmegatron/(?:core|training)|megatron\.core|pretrain_gpt\.py|\bmindspeed",
        "`--micro-batch-size`, `--recompute-granularity full`, `--tensor-model-parallel-size`",
    ),
    Loop(
        "torchtitan", r"\btorchtitan/", "`training.local_batch_size`, `activation_checkpoint.mode`"
    ),
    Loop(
        "torchtune",
        r"\btorchtune/|\btune run",
        "`batch_size`, `enable_activation_checkpointing=True`",
    ),
    Loop("NeMo", r"\bnemo/|nemo_run"),
    Loop("Lightning", r"\b(?:pytorch_)?lightning(?:_fabric)?/"),
    Loop(
        "the Trainer",
        r"transformers/trainer\.py|trl/trainer/|llamafactory/|swift/(?:llm|trainers)/|axolotl/",
        "`per_device_train_batch_size`, `gradient_checkpointing`",
    ),
)
"""Training loops, nested ones first."""
SURELY_NPU = re.compile(r"torch_npu|HCCL|hccl|\b[Aa]scend|ASCEND_|\bEI\d{4}\b|\bnpu:\d|npu-smi")
SURELY_ROCM = re.compile(r"\bROCm|\brocm|\bHIP (?:error|out)|RCCL|\bgfx\d{3}")
"""Evidence of ROCm that outweighs words of CUDA, which ROCm builds use too."""
ON_CPU = re.compile(
    r"\bgloo\b|ds_accelerator to cpu|device[= :'\"]+cpu\b|\bno (?:GPU|accelerator|CUDA)", re.I
)


@dataclass(frozen=True, slots=True)
class Run:
    """The facts on a run.

    Attributes:
        loop: its training loop; None if unknown.
        device: its accelerator; None if unknown.
        is_cpu: whether the log shows a run without an accelerator.
    """

    loop: Loop | None
    device: Device | None
    is_cpu: bool

    @property
    def is_no_nvidia(self) -> bool:
        """Whether the devices are another vendor's or absent, so advice on NVIDIA's is wrong."""
        return self.is_cpu or self.device in (Device.NPU, Device.ROCM, Device.XPU)

    @property
    def less_memory(self) -> str:
        """The loop's settings that reduce memory; empty if the loop is unknown."""
        return "" if self.loop is None else self.loop.less_memory


def run_of(case: Case) -> Run:
    """Detects the kind of run in a failure's log."""
    around = case.around
    loop = next((loop for loop in LOOPS if re.search(loop.words, around)), None)
    device = device_of(case.record)
    if SURELY_NPU.search(around):
        device = Device.NPU
    elif SURELY_ROCM.search(around):
        device = Device.ROCM
    return Run(loop, device, device is None and ON_CPU.search(around) is not None)
