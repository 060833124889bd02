"""MiniCPM-V 4.6 with a script of the user's own that takes upstream's arguments."""

from __future__ import annotations

from pathlib import Path

from frameworks.cases import Case, Failure, logged_losses

COMMON = (
    *("--model_name_or_path", "model"),
    *("--llm_type", "qwen"),
    *("--remove_unused_columns", "false"),
    *("--label_names", "labels"),
    *("--prediction_loss_only", "false"),
    *("--bf16", "false"),
    *("--fp16", "false"),
    *("--use_cpu", "true"),
    "--do_train",
    *("--tune_vision", "true"),
    *("--model_max_length", "256"),
    *("--max_slice_nums", "4"),
    *("--max_steps", "8"),
    *("--save_steps", "8"),
    *("--output_dir", "out"),
    *("--per_device_train_batch_size", "2"),
    *("--gradient_accumulation_steps", "1"),
    *("--learning_rate", "5e-3"),
    *("--logging_steps", "1"),
    *("--gradient_checkpointing", "true"),
    *("--report_to", "none"),
)
PICTURES = ("--data_path", "pictures.json", *COMMON, "--deepspeed", "zero2.json")
TEXTS = ("--data_path", "texts.json", *COMMON)
LORA = (
    *("--data_path", "pictures.json"),
    *COMMON,
    *("--tune_llm", "false"),
    *("--use_lora", "true"),
    *("--lora_dropout", "0"),
)
REENTRANT = ("--gradient_checkpointing_kwargs", '{"use_reentrant": true}')
TO_OTHER = "gradient_checkpointing: reentrant -> non_reentrant"


def case(name: str, healthy: tuple[str, ...], failure: Failure) -> Case:
    """A case of the script."""
    return Case(
        name=name,
        framework="MiniCPM-V",
        environment="trainers",
        packages=("transformers", "peft", "accelerate", "deepspeed", "torch"),
        prepare=Path(__file__).with_name("prepare.py"),
        own=("torchrun", "--nproc_per_node=2", "finetune.py"),
        launched=("safe-launch", "--nproc_per_node=2", "--log-dir=runs", "finetune.py"),
        healthy=healthy,
        failure=failure,
        losses=logged_losses,
    )


CASES = (
    # The tower runs once for the pictures of a batch and once for its videos.
    case(
        "minicpm-v-zero2",
        PICTURES,
        Failure(
            arguments=(*PICTURES, *REENTRANT),
            dies=r"The parameter \S+ has already been reduced",
            entry="zero2-gradient-reduced-twice",
            change=TO_OTHER,
            attempts=2,
        ),
    ),
    # Without a picture the tower takes no part; with checkpointing the Trainer doesn't expect that.
    case(
        "minicpm-v-texts",
        (*TEXTS, "--ddp_find_unused_parameters", "true"),
        Failure(
            arguments=TEXTS,
            dies="Expected to have finished reduction in the prior iteration",
            entry="ddp-unused-parameters",
            change="find_unused_parameters: False -> True",
            attempts=2,
        ),
    ),
    case(
        "minicpm-v-lora",
        LORA,
        Failure(
            arguments=(*LORA, *REENTRANT),
            dies="Expected to mark a variable ready only once",
            entry="ddp-parameter-ready-twice",
            change=TO_OTHER,
            attempts=1,
        ),
    ),
)
