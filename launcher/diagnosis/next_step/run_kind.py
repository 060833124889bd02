"""Detects a log's framework and accelerator."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...catalogue.device import Device, device_of
from ...frameworks.framework import FrameworkRow
from ...frameworks.registry import FRAMEWORKS
from .step import Case

TRAINERS = "`per_device_train_batch_size`, `gradient_checkpointing`"
"""The Trainer's settings that reduce memory."""
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
        framework: the one whose loop it is; None if unknown.
        device: its accelerator; None if unknown.
        is_cpu: whether the log shows a run without an accelerator.
    """

    framework: FrameworkRow | None
    device: Device | None
    is_cpu: bool

    @property
    def is_no_nvidia(self) -> bool:
        """Whether the devices are another vendor's or absent, so advice on NVIDIA's is wrong."""
        return self.is_cpu or self.device in (Device.NPU, Device.ROCM, Device.XPU)

    @property
    def less_memory(self) -> str:
        """The framework's settings that reduce memory; empty if unknown."""
        if self.framework is None:
            return ""
        return self.framework.less_memory or (TRAINERS if self.framework.on_trainer else "")


def run_of(case: Case) -> Run:
    """Detects the kind of run in a failure's log."""
    around = case.around
    frameworks = (row for row in FRAMEWORKS if row.in_log and re.search(row.in_log, around))
    device = device_of(case.record)
    if SURELY_NPU.search(around):
        device = Device.NPU
    elif SURELY_ROCM.search(around):
        device = Device.ROCM
    return Run(next(frameworks, None), device, device is None and ON_CPU.search(around) is not None)
