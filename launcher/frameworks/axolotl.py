"""axolotl, whose YAML has its own names for the Trainer's arguments.

Read in its source of 2026: src/axolotl/cli/train.py, src/axolotl/utils/schemas.
"""

from __future__ import annotations

from .framework import FrameworkRow

AXOLOTL = FrameworkRow(
    "axolotl",
    ("axolotl",),
    "axolotl-ai-cloud/axolotl",
    commands=("axolotl",),
    in_log=r"axolotl/",
    on_trainer=True,
    less_memory="`micro_batch_size`, `gradient_checkpointing`",
    program=r"(^|[./])axolotl[./]cli[./]train",
    takes_file=True,
    renamed={
        "micro_batch_size": "per_device_train_batch_size",
        "sequence_len": "max_seq_length",
        "sample_packing": "packing",
        "flash_attention": "use_flash_attention",
        "adapter": "finetuning_type",
        "rl": "rlhf_type",
        "fsdp_version": "fsdp",
    },
    defaults={
        "micro_batch_size": 1,
        "sequence_len": 512,
        "adapter": "full",
        "optimizer": "adamw_torch_fused",
        "gradient_checkpointing": False,
    },
    replaced_defaults=frozenset({"gradient_checkpointing", "bf16"}),
)
