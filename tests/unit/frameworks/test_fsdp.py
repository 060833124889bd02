"""FSDP readers: the Trainer's flags, accelerate's variables, a script's own calls."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Origin, Workload
from safe_launch.frameworks.installed import installed
from safe_launch.workload.read_workload import read_workload

TRAINER = "from transformers import HfArgumentParser, TrainingArguments\n"
VERSION, UNITS, MASTERS = Fact.FSDP_VERSION, Fact.FSDP_UNITS, Fact.MASTER_PRECISION
RESHARD, OFFLOAD = Setting.RESHARD_AFTER_FORWARD, Setting.OFFLOAD
MODE = Setting.GRADIENT_CHECKPOINTING
SHARD = "--fsdp=full_shard auto_wrap"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a script that takes TrainingArguments."""
    (tmp_path / "train.py").write_text(TRAINER)
    for name in [one for one in os.environ if one.startswith(("ACCELERATE_", "FSDP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*arguments: str, script: str = "train.py") -> Workload:
    """The readers' statements for a command line."""
    return read_workload(LaunchRequest(script, False, arguments, 2, ""))


def with_transformers(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Simulates another installed version of transformers."""
    found = {**installed(("torch", "accelerate")), "transformers": version}
    monkeypatch.setattr("safe_launch.workload.script.read_script.installed", lambda _names: found)


@pytest.mark.parametrize(
    ("config", "items", "expected"),
    [
        ({}, "full_shard", {VERSION: 2, UNITS: "layers", RESHARD: True, OFFLOAD: "none"}),
        ({"fsdp_version": 2}, "shard_grad_op", {VERSION: 2, RESHARD: False}),
        ({"version": 2, "reshard_after_forward": "false"}, "full_shard", {RESHARD: False}),
        ({"version": 1, "reshard_after_forward": "full_shard"}, "full_shard", {RESHARD: None}),
        ({"version": 2}, "full_shard offload", {OFFLOAD: "optimizer_and_parameters"}),
        ({"version": 2, "cpu_offload": True}, "True", {OFFLOAD: "optimizer_and_parameters"}),
        ({"version": 2, "auto_wrap_policy": "NO_WRAP"}, "True", {UNITS: "whole"}),
        ({"version": 2, "auto_wrap_policy": "SIZE_BASED_WRAP"}, "True", {UNITS: None}),
        ({"version": 2, "activation_checkpointing": True}, "True", {MODE: "non_reentrant"}),
        ({"version": 2, "activation_checkpointing": False}, "True", {MODE: "off"}),
    ],
)
def test_the_trainers_flags(
    config: dict[str, Value], items: str, expected: dict[Name, Value | None]
) -> None:
    """As passed on by transformers 5 to accelerate."""
    workload = read(f"--fsdp={items}", f"--fsdp_config={json.dumps(config)}")
    assert workload.value(Fact.ENGINE) == "fsdp"
    assert {name: workload.value(name) for name in expected} == expected
    stated = "version" in config or "fsdp_version" in config
    assert workload.is_certain(VERSION) is stated


def test_a_file_of_them(tmp_path: Path) -> None:
    """It is read like the flag; errors get a note."""
    (tmp_path / "fsdp.json").write_text('{"version": 2, "reshard_after_forward": false}')
    assert read(SHARD, "--fsdp_config", "fsdp.json").value(RESHARD) is False
    (tmp_path / "fsdp.json").write_text("{")
    broken = read(SHARD, "--fsdp_config", "fsdp.json")
    assert broken.value(RESHARD) is True
    assert any("--fsdp_config" in note for note in broken.notes)


def test_transformers_4_sets_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate chooses the version; without `auto_wrap` the model is one unit."""
    with_transformers(monkeypatch, "4.57.1")
    first = read("--fsdp=full_shard")
    assert [first.value(name) for name in (VERSION, UNITS, RESHARD)] == [1, "whole", None]
    monkeypatch.setenv("FSDP_VERSION", "2")
    second = read(SHARD)
    assert [second.value(name) for name in (VERSION, UNITS, RESHARD)] == [2, "layers", True]


def test_mixed_precision_keeps_masters() -> None:
    """Accelerate casts trained weights to fp32, as certainly as the precision is known."""
    assert read(SHARD, "--bf16").value(MASTERS) == "fp32"
    assert read(SHARD).value(MASTERS) is None


def test_accelerates_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of its launcher; a Trainer's flag overrides them."""
    for name, value in {
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_RESHARD_AFTER_FORWARD": "false",
        "FSDP_OFFLOAD_PARAMS": "true",
        "FSDP_ACTIVATION_CHECKPOINTING": "true",
    }.items():
        monkeypatch.setenv(name, value)
    workload = read()
    expected: dict[Name, Value] = {
        Fact.ENGINE: "fsdp",
        VERSION: 2,
        UNITS: "layers",
        RESHARD: False,
        OFFLOAD: "optimizer_and_parameters",
        MODE: "non_reentrant",
        MASTERS: "fp32",
    }
    assert {name: workload.value(name) for name in expected} == expected
    assert workload.known[VERSION].origin is Origin.CONFIG
    assert read("--fsdp=full_shard", '--fsdp_config={"version": 2}').value(RESHARD) is True


def test_a_cpu_is_asked_for() -> None:
    """Accelerate uses FSDP on accelerators only."""
    workload = read(SHARD, "--use_cpu")
    assert workload.value(Fact.ENGINE) == "ddp"
    assert any("fsdp-trains-ddp-on-cpu" in note for note in workload.notes)
    assert workload.value(RESHARD) is None
