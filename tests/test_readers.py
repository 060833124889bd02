"""Readers: what a command line, a file or the environment says, and what they leave unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safe_launch.exit_code import LaunchError
from safe_launch.readers import read_workload
from safe_launch.readers.training_arguments import default_mode
from safe_launch.request import LaunchRequest
from safe_launch.settings import Checkpointing, Fact, Framework, Origin, Setting
from safe_launch.workload import Workload

SCRIPT = "from transformers import HfArgumentParser, TrainingArguments\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a script that takes TrainingArguments."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "loop.py").write_text("import deepspeed\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*arguments: str, script: str = "train.py", nproc: int = 2) -> Workload:
    """What the readers find for a command line."""
    return read_workload(LaunchRequest(script, False, arguments, nproc, ""))


MODE = Setting.GRADIENT_CHECKPOINTING


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--gradient_checkpointing",), "non_reentrant"),
        (("--gradient-checkpointing",), "non_reentrant"),
        (("--gradient_checkpointing", "True"), "non_reentrant"),
        (("--gradient_checkpointing=yes",), "non_reentrant"),
        (("--gradient_checkpointing", "t"), "non_reentrant"),
        (("--gradient_checkpointing", "1"), "non_reentrant"),
        (("--gradient_checkpointing", "no"), "off"),
        (("--gradient_checkpointing=FALSE",), "off"),
        (("--gradient_checkpointing", "0"), "off"),
        (("--gradient_checkpointing", "--gradient_checkpointing", "false"), "off"),
        (("--activation_checkpointing",), "non_reentrant"),
        (
            (
                "--gradient_checkpointing",
                "--gradient_checkpointing_kwargs",
                '{"use_reentrant": true}',
            ),
            "reentrant",
        ),
        (
            ("--gradient-checkpointing", '--gradient-checkpointing-kwargs={"use_reentrant":false}'),
            "non_reentrant",
        ),
        (
            (
                "--activation_checkpointing",
                '--activation_checkpointing_kwargs={"use_reentrant":true}',
            ),
            "reentrant",
        ),
        ((), "off"),
    ],
)
def test_every_form_of_a_flag_means_what_transformers_takes_it_for(
    arguments: tuple[str, ...], expected: str
) -> None:
    """Compared with the installed HfArgumentParser itself."""
    from transformers import HfArgumentParser, TrainingArguments

    workload = read(*arguments)
    assert workload.value(MODE) == expected
    (theirs,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
        ["--output_dir=out", "--use_cpu", *arguments]
    )
    assert bool(theirs.gradient_checkpointing) == (expected != "off")
    kwargs = theirs.gradient_checkpointing_kwargs or {}
    if "use_reentrant" in kwargs:
        assert kwargs["use_reentrant"] == (expected == "reentrant")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("4.57.1", Checkpointing.REENTRANT),
        ("5.0.0", Checkpointing.NON_REENTRANT),
        ("5.23.0", Checkpointing.NON_REENTRANT),
    ],
)
def test_the_default_moved_with_transformers_5(version: str, expected: Checkpointing) -> None:
    """Without `use_reentrant` the installed version decides."""
    default = default_mode({"transformers": version})
    assert default == (expected, f"transformers {version}'s default of use_reentrant")
    assert default_mode({}) is None


def test_values_carry_where_they_were_read() -> None:
    """Flags name themselves, defaults the framework."""
    known = read("--per_device_train_batch_size", "4", "--bf16").known
    batch, steps = known[Setting.MICRO_BATCH], known[Setting.ACCUMULATION]
    assert (batch.value, batch.origin, batch.source) == (
        4,
        Origin.FLAG,
        "--per_device_train_batch_size",
    )
    assert (steps.value, steps.origin) == (1, Origin.DEFAULT)
    assert known[Setting.PRECISION].value == "bf16"


def test_a_single_file_of_arguments(folder: Path) -> None:
    """A .json or .yaml file instead of flags, as the examples of transformers take it."""
    content = {"per_device_train_batch_size": 3, "gradient_checkpointing": True, "use_lora": True}
    (folder / "args.json").write_text(json.dumps(content))
    (folder / "args.yaml").write_text(
        "per_device_train_batch_size: 3\ngradient_checkpointing: yes\n"
    )
    for name in ("args.json", "args.yaml"):
        workload = read(name)
        assert workload.value(Setting.MICRO_BATCH) == 3
        assert workload.known[Setting.MICRO_BATCH].origin is Origin.CONFIG
        assert workload.value(MODE) == "non_reentrant"
    assert read("args.json").value(Fact.FROZEN_PARAMETERS) is True


def test_a_single_flag_that_ends_like_a_file_is_a_flag() -> None:
    """`--loss_file=x.json` alone is no file of arguments."""
    assert read("--loss_file=x.json").value(Setting.MICRO_BATCH) == 8


def test_a_file_beside_the_script_comes_first(folder: Path) -> None:
    """HfArgumentParser reads SCRIPT.args; the command line wins over it."""
    (folder / "train.args").write_text("--per_device_train_batch_size 3\n--bf16\n")
    assert read().value(Setting.MICRO_BATCH) == 3
    assert read("--per_device_train_batch_size=5").value(Setting.MICRO_BATCH) == 5


def test_trls_configuration_yields_to_flags(folder: Path) -> None:
    """`--config FILE` gives defaults to trl's scripts, and means nothing to others."""
    (folder / "tune.py").write_text("from trl import TrlParser, SFTConfig\n")
    (folder / "c.yaml").write_text(
        "per_device_train_batch_size: 3\ngradient_accumulation_steps: 7\n"
    )
    workload = read("--config", "c.yaml", "--per_device_train_batch_size=5", script="tune.py")
    assert workload.value(Setting.MICRO_BATCH) == 5
    assert workload.value(Setting.ACCUMULATION) == 7
    assert read("--config", "c.yaml").value(Setting.ACCUMULATION) == 1


@pytest.mark.parametrize("text", ["four", "0", "-2", "1.5", ""])
def test_a_value_of_the_wrong_type_is_noted_not_guessed(text: str) -> None:
    """It is left to the script, which has its own message for it."""
    workload = read(f"--per_device_train_batch_size={text}")
    assert workload.value(Setting.MICRO_BATCH) is None
    assert workload.notes == (
        f"--per_device_train_batch_size: {text!r} is no positive whole number",
    )


def test_a_script_of_its_own_has_no_defaults() -> None:
    """Without TrainingArguments nothing is known that no argument says."""
    workload = read(script="loop.py")
    assert workload.framework is Framework.NONE
    assert dict(workload.known) == {}


def test_a_deepspeed_json(folder: Path) -> None:
    """Stage, offload, batch and precision; "auto" is whoever fills it in."""
    config = {
        "train_batch_size": 32,
        "train_micro_batch_size_per_gpu": 4,
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "cpu"},
            "offload_param": {"device": "none"},
        },
        "data_types": {"grad_accum_dtype": "fp32"},
    }
    (folder / "ds.json").write_text(json.dumps(config))
    found = read("--deepspeed_config", "ds.json", script="loop.py")
    values = {name.value: known.value for name, known in found.known.items()}
    assert values == {
        "engine": "deepspeed",
        "zero_stage": 3,
        "offload": "optimizer",
        "micro_batch": 4,
        "accumulation": 4,
        "fp32_accumulation": True,
        "precision": "bf16",
    }
    assert found.known[Setting.ZERO_STAGE].source == "ds.json: zero_optimization.stage"


def test_auto_values_come_from_the_arguments(folder: Path) -> None:
    """A Trainer's JSON with "auto" leaves batch and precision to the flags."""
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 2},
    }
    (folder / "ds.json").write_text(json.dumps(config))
    found = read("--deepspeed=ds.json", "--per_device_train_batch_size=2", "--bf16", "true")
    assert found.value(Setting.MICRO_BATCH) == 2
    assert found.value(Setting.PRECISION) == "bf16"
    assert found.value(Setting.ZERO_STAGE) == 2
    assert found.engine is not None
    assert found.engine.value == "deepspeed"
    assert read(f"--deepspeed={json.dumps(config)}").value(Setting.ZERO_STAGE) == 2


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({"zero_optimization": {"stage": 7}}, "zero_optimization.stage: 7 is no ZeRO stage"),
        ({"train_micro_batch_size_per_gpu": "4"}, "'4' is no positive whole number"),
    ],
)
def test_values_that_deepspeed_would_refuse_are_noted(
    folder: Path, config: dict[str, object], note: str
) -> None:
    """They stay unknown here, and DeepSpeed's own message follows."""
    (folder / "ds.json").write_text(json.dumps(config))
    (found,) = read("--deepspeed_config=ds.json", script="loop.py").notes
    assert note in found


def test_trl_has_defaults_of_its_own(folder: Path) -> None:
    """Under trl an absent flag says nothing, for its defaults depend on version and situation."""
    (folder / "tune.py").write_text("from trl import TrlParser, SFTConfig\n")
    workload = read("--per_device_train_batch_size=5", script="tune.py")
    assert workload.value(MODE) is None
    assert workload.value(Setting.PRECISION) is None


def test_a_file_of_arguments_may_be_indented_with_tabs(folder: Path) -> None:
    """JSON is read as JSON, not as YAML."""
    (folder / "args.json").write_text('{\n\t"per_device_train_batch_size": 3\n}\n')
    assert read("args.json").value(Setting.MICRO_BATCH) == 3


def test_names_that_are_no_files_are_left_to_the_framework() -> None:
    """`--deepspeed zero2` of another framework tells the engine, and nothing else."""
    found = read("--deepspeed", "zero2", script="loop.py")
    assert found.value(Fact.ENGINE) == "deepspeed"
    assert found.value(Setting.ZERO_STAGE) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1,\n "b": }', "ds.json:2: not JSON"),
        ("[]", "a JSON object is expected, not list"),
        ('{"a": 1, "a": 2}', "the key `a` stands twice"),
    ],
)
def test_a_broken_deepspeed_json_is_an_error(folder: Path, text: str, problem: str) -> None:
    """The message names the flag, the file and the line."""
    (folder / "ds.json").write_text(text)
    with pytest.raises(LaunchError, match=r"--deepspeed: ds\.json") as caught:
        read("--deepspeed", "ds.json")
    assert problem in caught.value.problem


def test_accelerates_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `accelerate launch` hands on, with the variable as the source."""
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "auto")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    found = read(script="loop.py")
    assert found.value(Fact.ENGINE) == "deepspeed"
    assert found.value(Setting.ZERO_STAGE) == 3
    assert found.value(Setting.ACCUMULATION) is None
    assert found.value(Setting.PRECISION) == "bf16"
    assert found.known[Setting.ZERO_STAGE].source == "$ACCELERATE_DEEPSPEED_ZERO_STAGE"
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 1}}')
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", "ds.json")
    assert read(script="loop.py").value(Setting.ZERO_STAGE) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--use_lora", "True"), True),
        (("--use_lora", "False"), None),
        (("--use_peft",), True),
        (("--finetuning_type", "lora"), True),
        (("--sft_type", "full"), None),
        (("--lora_r", "8"), None),
        ((), None),
    ],
)
def test_flags_for_adapters(arguments: tuple[str, ...], expected: bool | None) -> None:
    """Frozen parameters are known where a flag says so, and unknown otherwise."""
    assert read(*arguments).value(Fact.FROZEN_PARAMETERS) is expected


def test_peft_makes_the_trainer_look_for_unused_parameters() -> None:
    """Unless it is told otherwise."""
    unused = Setting.FIND_UNUSED_PARAMETERS
    assert read("--use_lora", "true").value(unused) is True
    assert read("--use_lora", "true", "--ddp_find_unused_parameters", "no").value(unused) is False
    assert read().value(unused) is None
