"""ms-swift by `swift sft` and `swift rlhf`, which start torchrun for themselves."""

from __future__ import annotations

import json
from pathlib import Path

from frameworks.cases import Case, Done, Failure

QWEN2 = ("--model", "model", "--model_type", "qwen2", "--template", "qwen2_5")
COMMON = (
    *("--check_model", "false"),
    # It makes fp16 of a model in fp32 unless both are switched off.
    *("--torch_dtype", "float32", "--fp16", "false", "--bf16", "false"),
    *("--split_dataset_ratio", "0"),
    *("--per_device_train_batch_size", "2"),
    *("--gradient_accumulation_steps", "1"),
    *("--max_steps", "6"),
    *("--learning_rate", "1e-2"),
    *("--logging_steps", "1"),
    *("--save_strategy", "no"),
    *("--output_dir", "out"),
    *("--report_to", "none"),
)
ON_CPU = ("--use_cpu", "true")
SFT = ("--dataset", "chats.jsonl", *QWEN2, *COMMON, *ON_CPU)
LORA = (*SFT, "--tuner_type", "lora", "--deepspeed", "zero2")
# A trainer of one's own, as a plugin: two forward passes in every step.
TWICE = (*SFT, "--tuner_type", "full", "--deepspeed", "zero2", "--external_plugins", "rdrop.py")
DPO = (
    *("--rlhf_type", "dpo", "--dataset", "pairs.jsonl", *QWEN2, *COMMON, *ON_CPU),
    *("--tuner_type", "lora"),
)
# A model of one's own, in the order of the file: samples with and without a recording.
SLAM = (
    *("--model", "slam", "--model_type", "slam", "--external_plugins", "slam.py"),
    *("--dataset", "recordings.jsonl", *COMMON, "--tuner_type", "full"),
    *("--freeze_parameters", "encoder"),
    *("--dataset_shuffle", "false", "--train_dataloader_shuffle", "false"),
)


def logged(done: Done) -> list[float]:
    """The losses that it logs with eight digits; every attempt has a folder of its own."""
    path = max(done.folder.glob("out/*/logging.jsonl"), key=lambda one: one.stat().st_mtime)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [float(row["loss"]) for row in rows if "loss" in row]


def case(
    name: str, command: str, healthy: tuple[str, ...], failure: Failure, npus: int = 0
) -> Case:
    """A case of one of its commands."""
    return Case(
        name=name,
        framework="ms-swift",
        environment="ms-swift",
        packages=("ms-swift", "transformers", "peft", "trl", "deepspeed", "torch"),
        prepare=Path(__file__).with_name("prepare.py"),
        own=("swift", command),
        launched=("safe-launch", "wrap", "--log-dir", "runs", "--", "swift", command),
        healthy=healthy,
        failure=failure,
        losses=logged,
        variables={"NPROC_PER_NODE": "2"},
        seconds=600,
        npus=npus,
    )


CASES = (
    # It takes reentrant checkpointing under DeepSpeed whatever the model asks for.
    case(
        "ms-swift-sft",
        "sft",
        LORA,
        Failure(
            arguments=TWICE,
            dies=r"The parameter \S+ has already been reduced",
            entry="zero2-gradient-reduced-twice",
            change="gradient_checkpointing: reentrant -> non_reentrant",
            attempts=2,
            reference=(*TWICE, "--gradient_checkpointing", "false"),
        ),
    ),
    case(
        "ms-swift-dpo",
        "rlhf",
        DPO,
        Failure(
            arguments=(*DPO, "--gradient_checkpointing_kwargs", '{"use_reentrant": true}'),
            dies="Expected to mark a variable ready only once",
            entry="ddp-parameter-ready-twice",
            change="gradient_checkpointing: reentrant -> non_reentrant",
            attempts=1,
        ),
    ),
    case(
        "ms-swift-npu",
        "sft",
        (*SLAM, "--deepspeed", "zero2"),
        Failure(
            arguments=(*SLAM, "--deepspeed", "zero3"),
            dies=r"0 != \d+ Cannot reduce scatter gradients whose size is not same as the params",
            entry="zero3-parameter-outside-forward",
            change="zero_stage: 3 -> 2",
            attempts=2,
            reference=(*SLAM, *ON_CPU, "--per_device_train_batch_size", "4"),
            alone={"NPROC_PER_NODE": "1"},
        ),
        npus=2,
    ),
)
