"""Named presets and `--set`: settings and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.core.choices import Engine, Framework
from safe_launch.core.errors import LaunchError
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Origin, Workload
from safe_launch.planning.named_presets import check, names, on_device, wanted, with_wanted
from support.worlds import HARDWARE, world

STAGE, OFFLOAD = Setting.ZERO_STAGE, Setting.OFFLOAD
DDP: dict[Name, Value] = {Fact.ENGINE: "ddp", Setting.STATIC_GRAPH: True}
SHARDED: dict[Name, Value] = {
    Fact.ENGINE: "fsdp",
    Setting.RESHARD_AFTER_FORWARD: True,
    Setting.OFFLOAD: "none",
}
ON_NPU = replace(HARDWARE, accelerator=replace(HARDWARE.accelerator, kind="npu", memory=2**36))


def on_ddp(framework: Framework = Framework.TRANSFORMERS) -> Workload:
    """A script that trains with DDP, with DeepSpeed installed."""
    return replace(world(DDP, framework), versions={"deepspeed": "0.19.8"})


def test_pairs_are_merged_over_the_preset() -> None:
    """Each keeps its source; `${...}` refers to the merged preset."""
    asked = wanted("zero3-offload", ["zero_stage=2", "accumulation=${zero_stage}"])
    found = {name.value: (known.value, known.source) for name, known in asked.items()}
    assert found.pop("gradient_checkpointing") == ("non_reentrant", "--preset zero3-offload")
    assert found == {
        "zero_stage": (2, "--set zero_stage"),
        "offload": ("optimizer", "--preset zero3-offload"),
        "accumulation": (2, "--set accumulation"),
    }


@pytest.mark.parametrize("name", names())
def test_every_shipped_preset_can_be_read(name: str) -> None:
    """Every preset has settings."""
    assert wanted(name, ())


def test_a_file_with_another_ending(tmp_path: Path) -> None:
    """The file exists, so the message isn't that there is no such preset."""
    file = tmp_path / "mine"
    file.write_text("zero_stage: 2\n")
    with pytest.raises(LaunchError) as caught:
        wanted(str(file), ())
    assert caught.value.problem.endswith("the name of a preset file ends in .yaml")
    assert caught.value.hint == f"if it is YAML, rename it: {file}.yaml"


@pytest.mark.parametrize("name", ["n" * 300, "n" * 300 + ".yaml", ".", "a/../zero2"])
def test_names_of_no_file(name: str) -> None:
    """Any name is refused in words."""
    with pytest.raises(LaunchError, match=r"no preset|no such file"):
        wanted(name, ())


@pytest.mark.parametrize(
    ("name", "pairs", "problem", "hint"),
    [
        ("zero22", (), "there is no preset `zero22`", "zero2"),
        ("mine.yaml", (), "--preset `mine.yaml`: no such file", ""),
        (None, ("zero_stag=2",), "--set: no setting `zero_stag`", "zero_stage"),
        (None, ("zero_stage=7",), "--set zero_stage: zero_stage can't be 7", ""),
        (None, ("precision=int8",), "precision is one of fp32, fp16, bf16", ""),
        (None, ("zero_stage=${nothing}",), "--set: ", ""),
    ],
)
def test_refusals(name: str | None, pairs: tuple[str, ...], problem: str, hint: str) -> None:
    """Each suggests the likely name."""
    with pytest.raises(LaunchError) as caught:
        wanted(name, pairs)
    assert problem in caught.value.problem
    assert hint in caught.value.hint


def test_a_users_preset_is_refused_with_its_line(tmp_path: Path) -> None:
    """Errors have a line, as in any document."""
    path = tmp_path / "mine.yaml"
    path.write_text("# a comment\nzero_stage: two\n")
    with pytest.raises(LaunchError, match=r"mine\.yaml:2: zero_stage is a whole number"):
        wanted(str(path), ())


def test_a_trainer_on_ddp_is_given_deepspeed() -> None:
    """DDP's settings are dropped; stage 0 adds none."""
    switched = with_wanted(on_ddp(), wanted("zero2", ()))
    assert switched.engine is Engine.DEEPSPEED
    assert Setting.STATIC_GRAPH not in switched.known
    kept = with_wanted(on_ddp(), wanted(None, ["zero_stage=0", "micro_batch=2"]))
    assert kept.engine is Engine.DDP
    assert set(kept.wanted) == {Setting.MICRO_BATCH}


@pytest.mark.parametrize(
    ("workload", "problem"),
    [
        (on_ddp(Framework.NONE), "the script trains with ddp, not DeepSpeed"),
        (replace(on_ddp(), versions={}), "deepspeed isn't installed"),
    ],
)
def test_where_deepspeed_cannot_be_given(workload: Workload, problem: str) -> None:
    """A plain loop, or DeepSpeed isn't installed."""
    with pytest.raises(LaunchError, match=problem):
        with_wanted(workload, wanted("zero2", ()))


NEWER = {"accelerate": "1.15.0", "torch": "2.13.0"}


def test_a_trainer_on_ddp_is_given_fsdp() -> None:
    """Layer by layer; accelerate keeps fp32 masters for 16-bit compute."""
    mixed: dict[Name, Value] = {**DDP, Setting.PRECISION: "bf16"}
    workload = replace(world(mixed), versions=NEWER)
    switched = with_wanted(workload, wanted("fsdp2", ()))
    assert switched.engine is Engine.FSDP
    assert Setting.STATIC_GRAPH not in switched.known
    assert switched.requested[Setting.RESHARD_AFTER_FORWARD] is True
    facts = (Fact.FSDP_VERSION, Fact.FSDP_UNITS, Fact.MASTER_PRECISION)
    assert [switched.value(fact) for fact in facts] == [2, "layers", "fp32"]
    plain = with_wanted(replace(world(DDP), versions=NEWER), wanted("fsdp2", ()))
    assert plain.value(Fact.MASTER_PRECISION) is None
    own = replace(world({Fact.ENGINE: "fsdp"}), versions=NEWER)
    assert with_wanted(own, wanted("fsdp2", ())).known == own.known


@pytest.mark.parametrize(
    ("workload", "problem"),
    [
        (on_ddp(Framework.NONE), "the script trains with ddp, not FSDP"),
        (world({Fact.ENGINE: "deepspeed"}), "the script trains with deepspeed, not FSDP"),
        (replace(on_ddp(), versions={**NEWER, "torch": "2.5.1"}), r"FSDP2 needs torch 2\.6 or"),
        (replace(on_ddp(), versions={}), r"FSDP2 needs accelerate 1\.6, torch 2\.6 or newer"),
    ],
)
def test_where_fsdp_cannot_be_given(workload: Workload, problem: str) -> None:
    """Another engine, a plain loop, or a version without FSDP."""
    with pytest.raises(LaunchError, match=problem):
        with_wanted(workload, wanted("fsdp2", ()))


@pytest.mark.parametrize(
    "value",
    ["${oc.env:TOKEN}", "${oc.select:a,${oc.env:TOKEN}}", "${${name}:TOKEN}", "[1, '${oc.env:X}']"],
)
def test_a_preset_has_nothing_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Variables aren't expanded: somebody else may have written the file."""
    monkeypatch.setenv("TOKEN", "planted")
    file = tmp_path / "own.yaml"
    file.write_text(f"name: oc.env\nmicro_batch: {value}\n")
    for name, overrides in ((str(file), []), (None, [f"micro_batch={value}", "name=oc.env"])):
        with pytest.raises(LaunchError, match="isn't evaluated") as told:
            wanted(name, overrides)
        assert "planted" not in told.value.problem


def test_accelerate_takes_ddp_on_a_cpu() -> None:
    """DDP is as certain as the request was; FSDP's settings are dropped."""
    found = on_device(world(SHARDED), HARDWARE)
    assert found.known.keys() == {Fact.ENGINE}
    assert found.known[Fact.ENGINE].value == "ddp"
    assert found.known[Fact.ENGINE].origin is Origin.FLAG
    assert "fsdp-trains-ddp-on-cpu" in found.notes[0]


@pytest.mark.parametrize(
    ("workload", "hardware"),
    [
        (world(SHARDED), ON_NPU),
        (world(SHARDED, Framework.NONE), HARDWARE),
        (world({Fact.ENGINE: "deepspeed"}), HARDWARE),
        (world({}), HARDWARE),
    ],
    ids=["accelerator", "own loop", "deepspeed", "unknown"],
)
def test_all_else_stays(workload: object, hardware: object) -> None:
    """A plain loop shards on CPUs as well."""
    assert on_device(workload, hardware) is workload  # type: ignore[arg-type]


def test_a_preset_that_would_have_no_effect() -> None:
    """It is refused with alternatives."""
    with pytest.raises(LaunchError, match="on accelerators alone") as refused:
        check(wanted("fsdp2", ()), HARDWARE)
    assert "zero3" in refused.value.hint
    check(wanted("fsdp2", ()), ON_NPU)
    check(wanted("zero2", ()), HARDWARE)
