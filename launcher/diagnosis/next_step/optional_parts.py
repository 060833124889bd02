"""Names an optional setting or package that takes part in a failure, and how to do without it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...catalogue.situation import Device
from .step import Basis, Case, Step, run_of

SETS = r"['\"]?[=: ]+['\"]?"
"""Between a setting's name and its value, in a command, an override or a file."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A setting that may be the cause of some failures.

    Attributes:
        message: pattern of the failure's message.
        given: pattern of the setting in the log; the group `it` quotes it.
        do: the advice, with {it}.
        device: the accelerator that it is about; None for any.
    """

    message: re.Pattern[str]
    given: re.Pattern[str]
    do: str
    device: Device | None = None


SWITCHES = (
    Switch(
        re.compile(r"Distributed package doesn't have NCCL|No backend type associated"),
        re.compile(r"Setting ds_accelerator to (?P<it>cpu|cuda)\b"),
        "Import torch_npu before DeepSpeed and transformers (`import torch_npu`), in the version"
        " that fits torch: DeepSpeed chose `{it}`, as it found no NPU, and the backend with it.",
        Device.NPU,
    ),
    Switch(
        re.compile(r"OptimState(?:8|4|Fp8)\w*|\b_?(?:un)?flat\w*_optim_state"),
        re.compile(
            r"(?P<it>(?i:\bpaged_)?\b(?i:adam\w*|lion\w*)_?(?:8|4)[-_]?bit\b|OptimState\w+)"
        ),
        "Take torch's own AdamW (`--optim adamw_torch`), or save without the optimizer's state"
        " (`--save_only_model true`): the log has `{it}`, and FSDP gathers a state that is shaped"
        " like its weights, which an 8-bit optimizer's isn't.",
    ),
    Switch(
        re.compile(r"size of tensor [ab] \(\d{6,}\)"),
        re.compile(r"(?i)(?P<it>\b(?:nf4|fp4|bnb[-_ ]?4bit|load_in_4bit['\"]?[=: ]+true)\b)"),
        "Load the base model in 16 bit for this, or upgrade what adds to its weights: the log has"
        " `{it}`, and a 4-bit weight is kept as one column of bytes, two values in each.",
    ),
    Switch(
        re.compile(
            r"No backend type associated with device type npu|assigned backend .* is not ava\w+able"
            r"|Distributed package doesn't have NCCL"
        ),
        re.compile(rf"(?P<it>-{{0,2}}\b(?:ddp_|distributed_|dist_)?backend{SETS}(?:gloo|nccl))\b"),
        "Write `hccl` instead of `{it}`: it is the backend of Ascend NPUs.",
        Device.NPU,
    ),
    Switch(
        re.compile(
            r"size of tensor a \(|[Ss]izes of tensors must match|shape '.*' is invalid"
            r"|shape mismatch|must match the (?:existing|size)|[Ss]plit_sizes|not divisible"
        ),
        re.compile(
            r"(?P<it>-{0,2}\b(?:ulysses_|rp_)?(?:sequence|context)_parallel_(?:size|degree)"
            rf"{SETS}(?:[2-9]|\d\d)\b|\bsp_size{SETS}(?:[2-9]|\d\d)\b)"
        ),
        "Run without dividing the texts, with 1 instead of `{it}`. If it trains then, this version"
        " doesn't divide all that the model gets (images, masks, lengths that don't divide): use a"
        " newer one, or ZeRO-3 or FSDP for the memory.",
    ),
    Switch(
        re.compile(
            r"storage of a tensor on device|found at least two devices.*\bcpu\b"
            r"|on different devices?.*\bcpu\b"
        ),
        re.compile(
            rf"(?P<it>[-+\w.]*\b(?:offload_policy|cpu_offload|(?:fsdp_)?offload_params|param_offload"
            rf"|optimizer_offload){SETS}[Tt]rue)\b"
        ),
        "Switch the offload off, `{it}`, or use a newer version: this step expects all weights on"
        " the device.",
    ),
    Switch(
        re.compile(r"found at least two devices, \w+:\d+ and \w+:\d+"),
        re.compile(
            r"(?P<it>device_map['\"]?[=: ]+['\"]?(?:auto|balanced\w*|sequential)"
            r"|world_size['\"]?[=: ]+1\b|Num processes: 1\b)"
        ),
        "Start one process for each device (`torchrun --nproc-per-node N`, ms-swift:"
        " `NPROC_PER_NODE=N`), or show a single one: the log has `{it}`, so one process has spread"
        " the model over several, and a part of it doesn't follow.",
    ),
)
PARTS = {
    r"torch/_(?:dynamo|inductor|functorch)/": (
        "torch.compile",
        "`export TORCHDYNAMO_DISABLE=1`, or leave `torch_compile` out",
    ),
    r"liger_kernel/": ("Liger's kernels", "`--use_liger_kernel false`"),
    r"unsloth_compiled_cache/": (
        "Unsloth's compiled code",
        "`export UNSLOTH_COMPILE_DISABLE=1`",
    ),
    r"transformer_engine/": ("Transformer Engine", "its setting in the framework, e.g. fp8, off"),
    r"flash_attn\w*/": ("FlashAttention", "`--attn_implementation sdpa`"),
    r"xformers/": ("xformers", "the setting that asks for it left out"),
}
"""Packages that a training can do without, by files on the stack: the name, and how."""
OWN_CAUSE = ("MemoryError", "OutOfMemoryError", "KeyboardInterrupt", "ImportError")
OWN_CAUSES = re.compile(r"out of memory|No module named|\bCUDA error\b|\bNCCL\b")


def switch(case: Case) -> Step | None:
    """A setting in the log that explains the failure."""
    for row in SWITCHES:
        given = row.given.search(case.around) if row.message.search(case.message) else None
        if given and row.device in (None, run_of(case).device):
            return Step(row.do.format(it=" ".join(given["it"].split())))
    return None


def optional_part(case: Case) -> Step | None:
    """How to find out whether an optional package is the cause, if the failure is in its files."""
    if case.kind in OWN_CAUSE or not case.kind or OWN_CAUSES.search(case.message):
        return None
    files = [frame.file.replace("\\", "/") for frame in case.frames[-6:]]
    for pattern, (name, how) in PARTS.items():
        if any(re.search(pattern, file) for file in files):
            return Step(
                f"Run it once without {name}: {how}. If it trains then, the cause is there: install"
                " the version of it that is for your torch, or report it with the whole traceback.",
                Basis.OPEN,
            )
    return None
