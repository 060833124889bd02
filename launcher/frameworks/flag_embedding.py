"""FlagEmbedding, whose modules for decoders add adapters.

Checked in its version 1.4.2: FlagEmbedding/finetune/*/decoder_only/*/arguments.py,
FlagEmbedding/abc/finetune/*/AbsArguments.py. Its wrapper class keeps the Trainer from recognizing
the model as transformers', so DDP looks for unused parameters.
"""

from __future__ import annotations

from dataclasses import replace

from .framework import FrameworkRow

FLAG_EMBEDDING = FrameworkRow(
    "FlagEmbedding",
    ("FlagEmbedding",),
    "FlagOpen/FlagEmbedding",
    program=r"^FlagEmbedding\.",
    defaults={"ddp_find_unused_parameters": True, "passage_max_len": 128},
)
TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
FOR_DECODERS = replace(
    FLAG_EMBEDDING,
    program=r"^FlagEmbedding\..*decoder_only",
    defaults={
        **FLAG_EMBEDDING.defaults,
        "use_lora": True,
        "lora_rank": 64,
        "target_modules": TARGETS,
    },
)
