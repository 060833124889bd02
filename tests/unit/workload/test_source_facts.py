"""Facts from names in a script's source: the model's class, the trainer, devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safe_launch.core.choices import Output
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Setting
from safe_launch.core.workload import Workload
from safe_launch.workload.read_workload import read_workload

HEAD = """
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers import HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
"""
END = "\nTrainer(model=model, args=args).train()\n"


def read(folder: Path, source: str, *arguments: str, workers: int = 2) -> Workload:
    """The workload of a script."""
    (folder / "train.py").write_text(source)
    return read_workload(LaunchRequest("train.py", False, arguments, workers, "--nproc"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, on a host with all devices visible."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("AutoModelForSequenceClassification", Output.VOCABULARY),
        ("AutoModelForCausalLM", None),
        ("AutoModel", None),
    ],
)
def test_a_model_that_may_put_out_scores(made: str, expected: Output | None, folder: Path) -> None:
    """Logits of the whole vocabulary are then only assumed."""
    source = f"from transformers import {made}, HfArgumentParser, TrainingArguments, Trainer\n"
    workload = read(folder, source)
    assert workload.value(Fact.OUTPUT) == expected
    assert not workload.is_certain(Fact.OUTPUT)


@pytest.mark.parametrize(
    ("devices", "workers", "visible", "expected"),
    [
        ('"auto"', 1, None, True),
        ('{"": 0} if is_distributed() else "auto"', 1, None, True),
        ('"auto"', 1, "0", None),
        ('"auto"', 2, None, None),
        ("None", 1, None, None),
    ],
)
def test_a_model_on_several_devices(
    devices: str,
    workers: int,
    visible: str | None,
    expected: bool | None,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single process with several devices may spread its model."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    model = f'model = AutoModelForCausalLM.from_pretrained("x", device_map={devices})'
    workload = read(folder, HEAD + model + END, workers=workers)
    assert workload.value(Fact.DEVICE_MAP) is expected


def test_tensor_parallelism_in_a_configuration(folder: Path) -> None:
    """DeepSpeed's AutoTP shards the model, which isn't modelled."""
    config = {"tensor_parallel": {"autotp_size": 4}, "zero_optimization": {"stage": 1}}
    (folder / "tp.json").write_text(json.dumps(config))
    workload = read(folder, HEAD + END, "--deepspeed", "tp.json")
    assert workload.value(Fact.MODEL_PARALLEL) == 4


def test_a_configuration_in_hjson(folder: Path) -> None:
    """DeepSpeed accepts comments and trailing commas."""
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 2,}, // the second\n}')
    workload = read(folder, "import deepspeed\n", "--deepspeed", "--deepspeed_config", "ds.json")
    assert workload.value(Setting.ZERO_STAGE) == 2


@pytest.mark.parametrize("trainer", ["KTOTrainer", "GRPOTrainer"])
def test_losses_that_span_the_batch(trainer: str, folder: Path) -> None:
    """The micro batch affects more than memory there."""
    workload = read(folder, f"from trl import {trainer}\n{HEAD}")
    assert workload.value(Fact.LOSS_SPANS_BATCH) is True


@pytest.mark.parametrize(
    ("imported", "objective"),
    [("DPOTrainer", "preference"), ("SFTTrainer", None), ("SFTTrainer, DPOTrainer", None)],
)
def test_the_trainer_that_is_imported(imported: str, objective: str | None, folder: Path) -> None:
    """With several imports, the launch decides which one trains."""
    workload = read(folder, f"from trl import TrlParser, {imported}\n")
    assert workload.value(Fact.OBJECTIVE) == objective


def test_parts_that_take_precedence_over_switches(folder: Path) -> None:
    """LLaVA-NeXT's list overrides the older switches' defaults."""
    parts = "mm_vision_tower,mm_mlp_adapter,mm_language_model"
    flags = ("--mm_tunable_parts", parts, "--unfreeze_mm_vision_tower", "False")
    workload = read(folder, HEAD + END, *flags)
    assert workload.value(Fact.VISION_TRAINED) is True
    assert Fact.FROZEN_PARAMETERS not in workload.known
