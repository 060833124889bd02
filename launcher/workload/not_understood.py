"""Finds flags that no reader understood and whose names suggest an effect on memory or failures."""

from __future__ import annotations

import re

from ..core.workload import Origin
from ..frameworks.arguments import Flags

MATTERS = re.compile(
    r"lora|adapter|peft|(^|_)d?oft(_|$)|boft|galore|apollo|badam|lisa|quant(?!ile)|(^|_)[248]bit|fp8|fp4"
    r"|offload|zero|stage|checkpointing|recompute|remat|batch|accum|(^|_)length|(^|_)len(_|$)"
    r"|parallel|(^|_)(tp|pp|cp|sp|ep|dp)(_|$)|fsdp|freeze|frozen|(^|_)fix_|tune_|train_only|trainable"
    r"|reference|ref_|reward|teacher|student|critic|actor|vllm|sglang|optim|precision|fp16|bf16"
    r"|dtype|packing|task_type|liger|experts|ema(_|$)|(^|_)kt(_|$)|unsloth|shift_attn|mixture_of_depths"
    r"|config_overrides|num_(hidden_)?layers|max_memory|megatron|swap"
)
"""Names about memory, parallelism, or trained parameters."""
MINOR = re.compile(
    r"(^|_)(eval|test|val|valid|validation|predict|save|saving|log|logging|load_from|resume|push)"
    r"(_|$)|dropout|alpha|bias|path|dir$|file|steps?$|_name$|weight|init|column|seed|beta|scale"
    r"|lr|schedul|warmup|limit|funcs|template|map_batch|num_proc|merge|bnb_4bit|nested|double"
    r"|group_by|within|pretrain_|learning_rate|cls_to_wrap|gather|ratio|overwrite|plugin|delete|preproc|sampler|strategy|server|port|aligner|impl$|coef|(^|_)kl(_|$)|args$|quant\w*_method|fp8_"
)
"""Parts of names without such an effect."""


def not_understood(flags: Flags) -> tuple[str, ...]:
    """Flags and keys of files, as written, that no reader looked up and that aren't off."""
    understood = {flags.all[name].source for name in flags.looked_up if name in flags.all}
    return tuple(
        dict.fromkeys(
            flag.source
            for name, flag in flags.all.items()
            if flag.origin is not Origin.DEFAULT
            and flag.source not in understood
            and MATTERS.search(name)
            and not MINOR.search(name)
            and not flag.is_negative
        )
    )
