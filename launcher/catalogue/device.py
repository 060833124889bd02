"""The kind of accelerator that a failure is about, by its evidence."""

from __future__ import annotations

import re
from enum import StrEnum

from ..evidence.failure_record import FailureRecord


class Device(StrEnum):
    """A kind of accelerator; in the order in which its words count."""

    NPU = "npu"
    """Ascend; torch_npu speaks of CUDA where it stands in for it."""
    ROCM = "rocm"
    """AMD; torch for ROCm calls its devices cuda."""
    XPU = "xpu"
    """Intel."""
    CUDA = "cuda"
    """NVIDIA."""


WORDS = {
    Device.NPU: r"\bNPU|torch_npu|\bnpu(?=[:_.]|\b)|HCCL|hccl|\bascend|\bAscend|\bEI\d{4}\b",
    Device.ROCM: r"\bHIP\b|ROCm|rocm|\bRCCL\b|\bgfx\d{3}",
    Device.XPU: r"\bXPU\b|\bxpu(?=[:_.]|\b)|oneCCL|SYCL",
    Device.CUDA: r"CUDA|\bcuda(?=[:_.]|\b)|NCCL|\bcu(?:BLAS|DNN)|CUBLAS|CUDNN|nvidia|NVIDIA",
}
"""What names each kind in messages, paths and lines of logs."""


def device_of(record: FailureRecord) -> Device | None:
    """The accelerator that the failure's own texts name, else the lines around it."""
    own = [record.message, *(raised.message for raised in record.chain)]
    own += [f"{frame.file} {frame.source}" for frame in record.frames]
    for texts in (own, [*record.versions, *record.log_tail]):
        text = "\n".join(texts)
        for device, words in WORDS.items():
            if re.search(words, text):
                return device
    return None
