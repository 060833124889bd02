"""The situation of a failure: its device, the training loop, the engine, the scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from ..core.choices import Adapter, Engine, Framework
from ..core.settings import Fact
from ..core.workload import Workload
from ..evidence.failure_record import FailureRecord

LONGEST = 60
"""Maximum characters of a paragraph's label before the colon."""


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
SURELY = {
    Device.NPU: r"(?<!\w)torch_npu|HCCL|hccl|\b[Aa]scend(?!ing)|ASCEND_|\bEI\d{4}\b|\bnpu:\d"
    r"|npu-smi|\b910[AB]\d?\b|\bCANN\b|昇腾",
    Device.ROCM: r"\bROCm|\brocm|\bHIP (?:error|out)|RCCL|\bgfx\d{3}",
    Device.XPU: r"\bxpu:\d|oneCCL|intel_extension_for_pytorch|xpu-smi",
    Device.CUDA: r"CUDA error|CUDA out of memory|NVRM|\bncclUnhandled",
}
"""Evidence that outweighs words of CUDA, which torch uses on any machine."""


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
    """The accelerator surely shown, or named in the failure's texts or in the lines around it."""
    failure = [record.message, *(raised.message for raised in record.chain)]
    failure += [f"{frame.file} {frame.source}" for frame in record.frames]
    around = [*record.versions, *record.log_tail]
    searched = ((SURELY, failure), (SURELY, around), (WORDS, failure), (WORDS, around))
    for kinds, texts in searched:
        text = "\n".join(texts)
        if device := next((kind for kind in kinds if re.search(kinds[kind], text)), None):
            return device
    return None


class Trait(StrEnum):
    """A property of a run; the value is the label of paragraphs for such runs."""

    TRAINER = "on the trainer"
    LIGHTNING = "with lightning"
    ACCELERATE = "with accelerate"
    DEEPSPEED = "under deepspeed"
    FSDP = "under fsdp"
    LORA = "with lora"
    SLURM = "under slurm"
    KUBERNETES = "on kubernetes"


LOOPS = {
    Trait.TRAINER: ("transformers/trainer.py",),
    Trait.LIGHTNING: ("lightning/", "pytorch_lightning/", "lightning_fabric/"),
    Trait.ACCELERATE: ("accelerate/accelerator.py",),
}
"""Files in the traceback of a framework's training loop, outermost loop first."""
WORKING = {
    Trait.DEEPSPEED: ("deepspeed/runtime/",),
    Trait.FSDP: ("torch/distributed/fsdp/",),
}
"""Files in the traceback of an engine."""
SCHEDULERS = {"SLURM_JOB_ID": Trait.SLURM, "KUBERNETES_SERVICE_HOST": Trait.KUBERNETES}
"""Variables that a scheduler sets for every job."""
ENGINES = {Engine.DEEPSPEED.value: Trait.DEEPSPEED, Engine.FSDP.value: Trait.FSDP}


def traits_of(record: FailureRecord, workload: Workload) -> frozenset[Trait]:
    """The traits of a run, from its failure, or else from the workload.

    Args:
        record: a failure of the run; an empty record before any.
        workload: known facts about the training; empty for a log.
    """
    adapters = Trait.LORA if _is_adapted(record, workload) else None
    traits = (_loop(record, workload), _engine(record, workload), adapters)
    return frozenset(trait for trait in traits if trait is not None)


def scheduled_by(environment: Mapping[str, str]) -> frozenset[Trait]:
    """The traits of a run from its scheduler."""
    return frozenset(trait for name, trait in SCHEDULERS.items() if name in environment)


def _loop(record: FailureRecord, workload: Workload) -> Trait | None:
    """The framework that owns the training loop."""
    read = {Framework.TRANSFORMERS: Trait.TRAINER, Framework.ACCELERATE: Trait.ACCELERATE}
    return _traced(record, LOOPS) or read.get(workload.framework)


def _traced(record: FailureRecord, files: Mapping[Trait, Sequence[str]]) -> Trait | None:
    """The first trait with a file in the traceback."""
    paths = [f"/{frame.file}" for frame in record.frames]
    for trait, names in files.items():
        if any(f"/{name}" in path for path in paths for name in names):
            return trait
    return None


def _engine(record: FailureRecord, workload: Workload) -> Trait | None:
    """The engine that shards the training; None for DDP."""
    observed = record.observed.get(Fact.ENGINE.value)
    if observed is not None:
        return ENGINES.get(str(observed))
    return _traced(record, WORKING) or ENGINES.get(str(workload.engine))


def _is_adapted(record: FailureRecord, workload: Workload) -> bool:
    if record.model:
        return bool(record.model.get("peft"))
    return workload.value(Fact.ADAPTER) == Adapter.LORA


def required(paragraph: str) -> frozenset[Trait]:
    """The traits in a paragraph's label, separated by commas; empty if none.

    Raises:
        ValueError: a part beside a trait isn't a trait; the message quotes it.
    """
    head, colon, _ = paragraph.partition(":")
    parts = [" ".join(part.lower().split()) for part in head.split(",")]
    known = {trait.value: trait for trait in Trait}
    if not colon or len(head) > LONGEST or not known.keys() & set(parts):
        return frozenset()
    for part in parts:
        if part not in known:
            raise ValueError(part)
    return frozenset(known[part] for part in parts)


def prose_for(prose: str, traits: frozenset[Trait]) -> str:
    """A section's advice to a run, as a line."""
    return " ".join(meant_for(prose, traits))


def meant_for(prose: str, traits: frozenset[Trait]) -> list[str]:
    """The paragraphs of a section that apply to a run, a line each.

    Includes the first one, unless it is for other runs, and those with the most traits of this run.
    """
    paragraphs = [" ".join(paragraph.split()) for paragraph in prose.split("\n\n")]
    general = [paragraph for paragraph in paragraphs[:1] if not required(paragraph)]
    specific = [
        (len(needed), paragraph)
        for paragraph in paragraphs
        if (needed := required(paragraph)) and needed <= traits
    ]
    most = max((count for count, _ in specific), default=0)
    return [*general, *(paragraph for count, paragraph in specific if count == most)]
