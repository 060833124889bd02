"""How people really say what they train: command lines and files of the common frameworks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safe_launch.accelerate_config import variables
from safe_launch.exit_code import LaunchError
from safe_launch.readers import read_workload
from safe_launch.request import LaunchRequest
from safe_launch.settings import Fact, Framework, Name, Setting, Value
from safe_launch.workload import Workload

PLAIN = "from transformers import HfArgumentParser, TrainingArguments, Trainer\n"


def read(folder: Path, *arguments: str, source: str = PLAIN, module: str = "") -> Workload:
    """What is read of a script, or a module, with these arguments."""
    script = folder / "train.py"
    script.write_text(source)
    name = module or str(script)
    return read_workload(LaunchRequest(name, bool(module), arguments, 8, "--nproc 8"))


MINICPM = (
    "--model_name_or_path openbmb/MiniCPM-V-2_6 --bf16 true --do_train --tune_vision true "
    "--tune_llm false --use_lora true --lora_target_modules "
    r"llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj) --model_max_length 2048 "
    "--per_device_train_batch_size 1 --gradient_accumulation_steps 8 --gradient_checkpointing true"
)
QWEN = (
    "--model_name_or_path Qwen/Qwen-7B-Chat --bf16 True --use_lora --q_lora --optim adamw_torch "
    "--model_max_length 512 --per_device_train_batch_size 2 --gradient_accumulation_steps 8"
)
SWIFT_2 = (
    "--model_type qwen2-7b-instruct --sft_type lora --lora_rank 8 --lora_target_modules ALL "
    "--max_length 2048 --batch_size 1 --deepspeed default-zero2"
)
SWIFT_3 = (
    "--model Qwen/Qwen2.5-7B-Instruct --train_type lora --lora_rank 16 --lora_alpha 32 "
    "--target_modules all-linear --torch_dtype bfloat16 --attn_impl flash_attn "
    "--max_length 4096 --per_device_train_batch_size 1 --deepspeed zero3_offload"
)
SWIFT_4 = "--model Qwen/Qwen3-8B --tuner_type full --max_length 8192 --use_liger_kernel true"
TRL = (
    "--model_name_or_path Qwen/Qwen2-0.5B --use_peft --lora_r 32 --lora_target_modules q_proj "
    "v_proj --load_in_4bit --max_length 1024 --attn_implementation flash_attention_2"
)
EMBEDDING = (
    "--model_name_or_path BAAI/bge-m3 --train_group_size 8 --query_max_len 512 "
    "--passage_max_len 512 --fp16 --per_device_train_batch_size 2 --gradient_checkpointing"
)


@pytest.mark.parametrize(
    ("source", "module", "line", "expected"),
    [
        (
            PLAIN,
            "",
            MINICPM,
            {
                Fact.ADAPTER: "lora",
                Fact.LORA_TARGETS: r"llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)",
                Fact.VISION_TRAINED: True,
                Fact.LANGUAGE_TRAINED: False,
                Fact.SEQUENCE_LENGTH: 2048,
                Fact.FROZEN_PARAMETERS: True,
                Setting.ACCUMULATION: 8,
            },
        ),
        (
            PLAIN,
            "",
            QWEN,
            {
                Fact.ADAPTER: "lora",
                Fact.QUANTIZATION_BITS: 4,
                Fact.OPTIMIZER: "adamw",
                Fact.SEQUENCE_LENGTH: 512,
            },
        ),
        (
            "",
            "swift.cli.sft",
            SWIFT_2,
            {
                Fact.ADAPTER: "lora",
                Fact.LORA_RANK: 8,
                Fact.LORA_TARGETS: "all-linear",
                Setting.ZERO_STAGE: 2,
                Fact.ENGINE: "deepspeed",
            },
        ),
        (
            "",
            "swift.cli.sft",
            SWIFT_3,
            {
                Fact.ADAPTER: "lora",
                Fact.LORA_RANK: 16,
                Fact.LORA_TARGETS: "all-linear",
                Fact.LOADED_PRECISION: "bf16",
                Fact.ATTENTION: "flash_attention_2",
                Setting.ZERO_STAGE: 3,
                Setting.OFFLOAD: "optimizer_and_parameters",
                Setting.MICRO_BATCH: 1,
            },
        ),
        (
            "",
            "swift.cli.sft",
            SWIFT_4,
            {Fact.ADAPTER: "none", Fact.LOSS: "fused", Fact.SEQUENCE_LENGTH: 8192},
        ),
        (
            "from trl import SFTTrainer, TrlParser\n",
            "",
            TRL,
            {
                Fact.ADAPTER: "lora",
                Fact.LORA_RANK: 32,
                Fact.LORA_TARGETS: "q_proj,v_proj",
                Fact.QUANTIZATION_BITS: 4,
                Fact.ATTENTION: "flash_attention_2",
            },
        ),
        (
            "from trl import DPOTrainer, DPOConfig\n",
            "",
            "--model_name_or_path x --max_length 512",
            {Fact.OBJECTIVE: "preference", Fact.REFERENCE_MODEL: True},
        ),
        (PLAIN, "", EMBEDDING, {Fact.SEQUENCE_LENGTH: 8 * 512 + 512, Setting.PRECISION: "fp16"}),
    ],
    ids=["minicpm-v", "qwen", "swift-2", "swift-3", "swift-4", "trl", "dpo", "bge"],
)
def test_command_lines(
    source: str, module: str, line: str, expected: dict[Name, Value], tmp_path: Path
) -> None:
    """What each framework's own examples say."""
    workload = read(tmp_path, *line.split(), source=source, module=module)
    assert {name: workload.value(name) for name in expected} == expected
    assert workload.framework is Framework.TRANSFORMERS


def test_a_file_of_llama_factory(tmp_path: Path) -> None:
    """Its YAML with overrides; its own defaults where both are silent."""
    config = tmp_path / "sft.yaml"
    config.write_text(
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ncutoff_len: 4096\n"
        "lora_target: q_proj,v_proj\nper_device_train_batch_size: 2\nquantization_bit: 4\n"
    )
    workload = read(
        tmp_path, "train", str(config), "per_device_train_batch_size=1", module="llamafactory.cli"
    )
    assert workload.value(Setting.MICRO_BATCH) == 1
    assert workload.value(Fact.SEQUENCE_LENGTH) == 4096
    assert workload.value(Fact.ADAPTER) == "lora"
    assert workload.known[Fact.ADAPTER].source == "LLaMA-Factory's default of finetuning_type"
    assert workload.value(Fact.LORA_TARGETS) == "q_proj,v_proj"
    assert workload.known[Fact.LORA_TARGETS].source == "sft.yaml: lora_target"
    assert workload.value(Fact.QUANTIZATION_BITS) == 4


def test_sizes_in_a_deepspeed_configuration(tmp_path: Path) -> None:
    """Numbers as elements, also in scientific notation; "auto" is the framework's."""
    config = {
        "zero_optimization": {
            "stage": 3,
            "reduce_bucket_size": "auto",
            "sub_group_size": 1e9,
            "stage3_max_live_parameters": 500_000,
            "overlap_comm": True,
        },
        "optimizer": {"type": "OneBitAdam"},
    }
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(config))
    workload = read(tmp_path, "--deepspeed", str(path))
    assert workload.value(Fact.AUTO_BUCKETS) is True
    assert workload.value(Fact.REDUCE_BUCKET) is None
    assert workload.value(Fact.SUB_GROUP) == 1_000_000_000
    assert workload.value(Fact.MAX_LIVE_PARAMETERS) == 500_000
    assert workload.value(Fact.OVERLAP_COMM) is True
    assert workload.value(Fact.OPTIMIZER) == "adamw"
    source = workload.known[Fact.SUB_GROUP].source
    assert source == "ds.json: zero_optimization.sub_group_size"


def test_the_allocator_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the user's own decides; without one the profile does."""
    assert read(tmp_path).value(Fact.EXPANDABLE_SEGMENTS) is None
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")
    assert read(tmp_path).value(Fact.EXPANDABLE_SEGMENTS) is False


def test_an_accelerate_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that `accelerate launch` makes of it, which the readers read."""
    path = tmp_path / "accelerate.yaml"
    path.write_text(
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n"
        "  zero_stage: 3\n  gradient_accumulation_steps: 4\n  offload_optimizer_device: cpu\n"
        "  offload_param_device: none\n"
    )
    for name, value in variables(path).items():
        monkeypatch.setenv(name, value)
    workload = read(tmp_path)
    expected = {
        Fact.ENGINE: "deepspeed",
        Setting.ZERO_STAGE: 3,
        Setting.ACCUMULATION: 4,
        Setting.OFFLOAD: "optimizer",
    }
    assert {name: workload.value(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("distributed_type: FSDP\n", ":1: `distributed_type`: FSDP isn't supported"),
        (
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 5\n",
            ":3: `zero_stage`: 5 is no ZeRO stage",
        ),
        ("distributed_type: [\n", "can't be read"),
    ],
)
def test_accelerate_configurations_that_are_refused(
    text: str, problem: str, tmp_path: Path
) -> None:
    """File, line and key."""
    path = tmp_path / "accelerate.yaml"
    path.write_text(text)
    with pytest.raises(LaunchError) as caught:
        variables(path)
    assert problem in caught.value.problem
