"""LLaMA-Factory; its reader adds what depends on several arguments.

Checked in its version 0.9.5: src/llamafactory/hparams.
"""

from .framework import FrameworkRow

LLAMA_FACTORY = FrameworkRow(
    "LLaMA-Factory",
    ("llamafactory", "llmtuner"),
    "hiyouga/LlamaFactory",
    "llamafactory",
    commands=("llamafactory-cli",),
    launching=("llamafactory/cli.py", "llamafactory/launcher.py"),
    in_log=r"llamafactory/",
    on_trainer=True,
    program=r"(^|[./])(llamafactory|llmtuner)([./-]|$)",
    functions=frozenset({"run_exp"}),
    takes_file=True,
    defaults={
        "cutoff_len": 2048,
        "finetuning_type": "lora",
        "lora_rank": 8,
        "lora_target": "all",
    },
    has_own_defaults=True,
)
