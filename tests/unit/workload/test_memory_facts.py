"""Facts that matter only for memory: kernels, outputs, packing, other models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Value
from safe_launch.core.workload import Workload
from safe_launch.workload.read_workload import read_workload
from support.models import QWEN2_7B, model_of, write_model

PARSER = "from transformers import HfArgumentParser\n"
PLAIN = "from transformers import Trainer, TrainingArguments, HfArgumentParser\n"
MINICPM_V = {
    **QWEN2_7B,
    "model_type": "minicpmv",
    "version": 2.6,
    "query_num": 64,
    "vision_config": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "image_size": 980,
        "patch_size": 14,
    },
}
ARGUMENTS = "--output_dir out --per_device_train_batch_size 1"


def read(folder: Path, line: str, *, source: str = PLAIN, module: str = "") -> Workload:
    """The workload of a script or module with these arguments."""
    script = folder / "train.py"
    script.write_text(source)
    arguments = tuple(line.split())
    return read_workload(
        LaunchRequest(module or str(script), bool(module), arguments, 8, "--nproc 8")
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {Fact.FUSED_STEP: None, Fact.CACHE_EMPTIED: None, Fact.PACKED: None}),
        ("--optim adamw_torch", {Fact.FUSED_STEP: False}),
        ("--optim adamw_torch_fused", {Fact.FUSED_STEP: True}),
        ("--optim paged_adamw_8bit", {Fact.FUSED_STEP: None}),
        ("--torch_empty_cache_steps 10", {Fact.CACHE_EMPTIED: True}),
        ("--packing true", {Fact.PACKED: True}),
        ("--use_liger_kernel true", {Fact.FUSED_LAYERS: True, Fact.LOSS: "fused"}),
        ("--torch_compile true", {Fact.FUSED_LAYERS: True, Fact.LOSS: None}),
    ],
)
def test_flags(tmp_path: Path, line: str, expected: dict[Name, Value | None]) -> None:
    """Flags of TrainingArguments and of trl."""
    workload = read(tmp_path, f"{ARGUMENTS} {line}")
    assert {name: workload.value(name) for name in expected} == expected


@pytest.mark.parametrize(("section", "is_fused"), [({}, True), ({"torch_adam": True}, False)])
def test_deepspeeds_own_optimizer_is_fused(
    tmp_path: Path, section: dict[str, bool], *, is_fused: bool
) -> None:
    """Unless its configuration requests torch's."""
    config = {"optimizer": {"type": "AdamW", "params": section}, "zero_optimization": {"stage": 2}}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    workload = read(tmp_path, f"{ARGUMENTS} --deepspeed {tmp_path}/ds.json")
    assert workload.value(Fact.FUSED_STEP) is is_fused


def test_weights_quantized_beforehand(tmp_path: Path) -> None:
    """A script that names GPTQ's configuration."""
    line = f"{ARGUMENTS} --use_lora --q_lora"
    gptq = PLAIN + "from transformers import GPTQConfig\n"
    assert read(tmp_path, line, source=gptq).value(Fact.CALIBRATED) is True
    assert read(tmp_path, line).value(Fact.CALIBRATED) is False


@pytest.mark.parametrize(
    ("module", "line", "output"),
    [
        ("swift.cli.sft", "--task_type seq_cls --num_labels 2", "scores"),
        ("swift.cli.sft", "--task_type causal_lm", None),
        ("swift.cli.rlhf", "--rlhf_type rm", "scores"),
        ("swift.cli.rlhf", "--rlhf_type dpo", None),
    ],
)
def test_outputs_of_ms_swift(tmp_path: Path, module: str, line: str, output: str | None) -> None:
    """Classes and rewards instead of logits."""
    workload = read(tmp_path, f"--model some/model --tuner_type lora {line}", module=module)
    assert workload.value(Fact.OUTPUT) == output


def test_a_reward_trainer_scores(tmp_path: Path) -> None:
    """Trl's RewardTrainer."""
    workload = read(tmp_path, ARGUMENTS, source=f"{PARSER}from trl import RewardTrainer\n")
    assert workload.value(Fact.OUTPUT) == "scores"


@pytest.mark.parametrize(
    ("line", "frozen", "trained", "reference"),
    [
        ("--rlhf_type gkd --teacher_model {} --tuner_type full", 1, None, None),
        ("--rlhf_type ppo --reward_model {} --tuner_type full", 1, 1, True),
        ("--rlhf_type ppo --reward_model {} --tuner_type lora", 2, None, False),
        ("--rlhf_type gkd --teacher_model nobody/knows --tuner_type full", None, None, None),
    ],
)
def test_other_models_of_ms_swift(
    tmp_path: Path, line: str, frozen: int | None, trained: int | None, *, reference: bool | None
) -> None:
    """A teacher, a reward model, and the critic, which is frozen under adapters."""
    other = tmp_path / "other"
    write_model(other, QWEN2_7B)
    parameters = model_of(QWEN2_7B).parameters
    workload = read(tmp_path, f"--model some/model {line.format(other)}", module="swift.cli.rlhf")
    found = workload.value(Fact.FROZEN_BESIDE), workload.value(Fact.TRAINED_BESIDE)
    assert found == (frozen and frozen * parameters, trained and trained * parameters)
    assert workload.value(Fact.REFERENCE_MODEL) is reference
    if frozen is None:
        assert any("isn't counted" in note for note in workload.unmodelled)


def test_trls_critic_is_trained_beside_adapters(tmp_path: Path) -> None:
    """It is trained in full; only the reference is omitted."""
    other = tmp_path / "other"
    write_model(other, QWEN2_7B)
    source = f"{PARSER}from trl import PPOTrainer\n"
    workload = read(tmp_path, f"{ARGUMENTS} --use_peft --reward_model_path {other}", source=source)
    parameters = model_of(QWEN2_7B).parameters
    assert workload.value(Fact.FROZEN_BESIDE) == parameters
    assert workload.value(Fact.TRAINED_BESIDE) == parameters
    assert workload.value(Fact.REFERENCE_MODEL) is False


def test_slices_of_minicpm_v(tmp_path: Path) -> None:
    """The requested number plus the whole image, of 1024 patches each."""
    config = {**MINICPM_V, "slice_config": {"max_slice_nums": 6}}
    write_model(tmp_path, config)
    workload = read(tmp_path, f"{ARGUMENTS} --model_name_or_path {tmp_path} --max_slice_nums 4")
    assert workload.value(Fact.IMAGE_PATCHES) == 5 * 1024
    assert workload.model is not None
    assert workload.model.vision is not None
    assert workload.model.vision.slices == 7


def test_a_group_of_passages_is_a_limit_and_part_of_the_loss(tmp_path: Path) -> None:
    """Each passage is padded separately and compared with the batch's others."""
    line = f"{ARGUMENTS} --train_group_size 4 --passage_max_len 300 --query_max_len 30"
    workload = read(tmp_path, line)
    assert workload.value(Fact.SEQUENCE_LENGTH) == 4 * 300 + 30
    assert not workload.is_length_stated
    assert workload.value(Fact.LOSS_SPANS_BATCH) is True
    assert read(tmp_path, f"{ARGUMENTS} --max_seq_length 300").is_length_stated
