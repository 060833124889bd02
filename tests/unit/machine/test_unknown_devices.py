"""Settings for unknown devices aren't judged by memory."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from safe_launch.commands.training import training_of
from safe_launch.core.settings import Setting
from safe_launch.frameworks.config_files import accelerate
from safe_launch.machine import detect
from safe_launch.machine.named_hardware import contradictions, hardware_of
from safe_launch.options.parser import parsed
from safe_launch.planning.budget import hardware_constraints
from safe_launch.planning.plan import NoPlan, Plan
from safe_launch.planning.planner import planned
from support.models import write_model

SCRIPT = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("large")
Trainer(model=model, args=args).train()
"""
CONFIG = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "vocab_size": 32000,
}
"""The configuration of a model that fits nowhere."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory with a script and its model, on a host without a device."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    write_model(tmp_path / "large", CONFIG)
    monkeypatch.setattr(detect, "PROBES", ())
    return tmp_path


def planned_for(*options: str) -> Plan | NoPlan:
    """The plan for the script with these options."""
    words = (*options, "train.py", "--model_name_or_path", "large", "--output_dir", "out")
    with mock.patch.object(accelerate, "_by_accelerate", return_value={}):
        training = training_of(parsed(words), is_launch=False)
    workload = training.workload(training.request)
    return planned(training.request, workload, training.hardware, ())


@pytest.mark.parametrize("kind", ["MULTI_XPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA"])
def test_devices_that_accelerate_names(kind: str, folder: Path) -> None:
    """They aren't this host's CPUs, so its memory and environment don't apply."""
    (folder / "accelerate.yaml").write_text(f"distributed_type: {kind}\nnum_processes: 2\n")
    found = planned_for("--accelerate-config", "accelerate.yaml")
    assert isinstance(found, Plan)
    assert (found.changes, found.chosen.estimate, found.doubt) == ((), None, None)
    assert dict(found.hardware.accelerator.environment) == {}
    assert f"{kind}: such devices are unknown" in found.hardware.notes[-1]
    assert isinstance(planned_for("--nproc", "2"), NoPlan)  # the same is refused on CPUs


@pytest.mark.usefixtures("folder")
def test_naming_them() -> None:
    """`--hardware unknown` is for any other device and contradicts no host."""
    found = planned_for("--hardware", "unknown", "--nproc", "2")
    assert isinstance(found, Plan)
    assert found.chosen.estimate is None
    here = detect.detect()
    assert contradictions(hardware_of("unknown", here), here, 2) == []


def test_devices_whose_size_no_tool_tells(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest size is a guess, so it changes no setting."""
    for number in range(2):
        (folder / f"davinci{number}").touch()
    guessed = detect.detect({}, folder)
    monkeypatch.setattr(detect, "detect", lambda: guessed)
    found = planned_for()
    assert isinstance(found, Plan)
    assert found.changes == ()
    assert found.doubt is not None
    assert "the memory of npu (not known)" in found.doubt.missing
    assert hardware_constraints(guessed) == ()
    known = hardware_of("ascend-910a", guessed)
    assert known.accelerator.measured
    assert hardware_constraints(known)[0].terms[0].name is Setting.PRECISION
