"""Detects the kind of accelerator in a failure's evidence."""

from __future__ import annotations

import re
from enum import StrEnum

from ..evidence.failure_record import FailureRecord


class Device(StrEnum):
    """A kind of accelerator, in order of the precedence of its words."""

    NPU = "npu"
    """Ascend; torch_npu mentions CUDA if it replaces it."""
    ROCM = "rocm"
    """AMD; torch for ROCm calls its devices cuda."""
    XPU = "xpu"
    """Intel."""
    CUDA = "cuda"
    """NVIDIA."""


WORDS = {
    Device.NPU: r"\bNPU|torch_npu|\bnpu(?=[:_.]|\b)|HCCL|hccl|\b(?:[Aa]scend|ASCEND)|\baclrt"
    r"|\bE[A-Z]\d{4}\b",
    Device.ROCM: r"\bHIP\b|ROCm|rocm|\bRCCL\b|\bgfx\d{3}",
    Device.XPU: r"\bXPU\b|\bxpu(?=[:_.]|\b)|oneCCL|SYCL",
    Device.CUDA: r"CUDA|\bcuda(?=[:_.]|\b)|NCCL|\bcu(?:BLAS|DNN)|CUBLAS|CUDNN|nvidia|NVIDIA",
}
"""Words for each kind of device in messages, paths and log lines."""


NAMES = {
    Device.NPU: {
        "nvidia-smi -L": "npu-smi info -l",
        "nvidia-smi": "npu-smi info",
        "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_NPU_ALLOC_CONF",
        "CUDA_VISIBLE_DEVICES": "ASCEND_RT_VISIBLE_DEVICES",
        "torch.cuda.": "torch.npu.",
    },
    Device.ROCM: {
        "nvidia-smi -L": "rocm-smi --showproductname",
        "nvidia-smi": "rocm-smi",
        "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_HIP_ALLOC_CONF",
        "CUDA_VISIBLE_DEVICES": "HIP_VISIBLE_DEVICES",
    },
}
"""Names that differ on other vendors' devices (Ascend Extension for PyTorch; HIP's environment
variables; torch's docs/source/notes/hip.rst)."""
TWICE = re.compile(r"(`[^`]+`) \(\1\)")


def named_for(device: Device | None, text: str) -> str:
    """Replaces NVIDIA's names in a text with the device's."""
    for name, other in NAMES.get(device or Device.CUDA, {}).items():
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![ ]?-|\w)", other, text)
    return TWICE.sub(r"\1", text)


def device_of(record: FailureRecord) -> Device | None:
    """The accelerator named in the failure's texts, or else in the lines around it."""
    failure = [record.message, *(raised.message for raised in record.chain)]
    failure += [f"{frame.file} {frame.source}" for frame in record.frames]
    for texts in (failure, [*record.versions, *record.log_tail]):
        text = "\n".join(texts)
        for device, words in WORDS.items():
            if re.search(words, text):
                return device
    return None
