"""DeepSpeed's configuration as a function of arguments, as DeepSpeed-Chat's ds_utils.py."""

from __future__ import annotations

from typing import Any

GLOBAL_BATCH_SIZE = 32
MICRO_BATCH_SIZE = 4


def get_train_ds_config(offload: bool, dtype: str, stage: int = 2) -> dict[str, Any]:
    device = "cpu" if offload else "none"
    precision = {"bf16": {"enabled": True}} if dtype == "bf16" else {}
    return {
        "train_batch_size": GLOBAL_BATCH_SIZE,
        "train_micro_batch_size_per_gpu": MICRO_BATCH_SIZE,
        "steps_per_print": 10,
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": False,
            "offload_param": {"device": device},
            "offload_optimizer": {"device": device},
            "stage3_param_persistence_threshold": 0,
            "reduce_bucket_size": 100000,
        },
        **precision,
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
    }


def get_eval_ds_config(offload: bool, dtype: str, stage: int = 0) -> dict[str, Any]:
    device = "cpu" if offload else "none"
    precision = {"bf16": {"enabled": True}} if dtype == "bf16" else {}
    return {
        "train_batch_size": GLOBAL_BATCH_SIZE,
        "train_micro_batch_size_per_gpu": MICRO_BATCH_SIZE,
        "steps_per_print": 10,
        "zero_optimization": {"stage": stage, "offload_param": {"device": device}},
        **precision,
        "gradient_clipping": 1.0,
    }
