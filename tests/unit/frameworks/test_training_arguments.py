"""Readers: command lines, files and the environment, and unknown values."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
from safe_launch.core.choices import Checkpointing, Framework
from safe_launch.core.errors import LaunchError
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Setting
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.frameworks.config_files.vocabulary import default_mode
from safe_launch.workload.read_workload import read_workload
from support.tables import table

SCRIPT = "from transformers import HfArgumentParser, TrainingArguments\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a script that takes TrainingArguments."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "loop.py").write_text("import deepspeed\n")
    (tmp_path / "tune.py").write_text("from trl import TrlParser, SFTConfig\n")
    for name in [one for one in os.environ if one.startswith("ACCELERATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*arguments: str, script: str = "train.py", nproc: int = 2) -> Workload:
    """The readers' statements for a command line."""
    return read_workload(LaunchRequest(script, False, arguments, nproc, ""))


MODE = Setting.GRADIENT_CHECKPOINTING


@table(
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
        (("--gradient_checkpointing", "Y"), "non_reentrant"),
        (("--gradient_checkpointing", "n"), "off"),
        (("--gradient_checkpointing=F",), "off"),
        (("--gradient_checkpointing", "--bf16"), "non_reentrant"),
        (("--activation_checkpointing=false", "--gradient_checkpointing"), "off"),
        (("--gradient_checkpointing=false", "--activation_checkpointing"), "non_reentrant"),
        (
            (
                "--gradient_checkpointing",
                '--activation_checkpointing_kwargs={"use_reentrant":true}',
            ),
            "reentrant",
        ),
        (
            (
                "--gradient_checkpointing",
                '--gradient_checkpointing_kwargs={"use_reentrant":"true"}',
            ),
            "reentrant",
        ),
        (
            (
                "--gradient_checkpointing",
                '--gradient_checkpointing_kwargs={"use_reentrant":"False"}',
            ),
            "non_reentrant",
        ),
        (
            ("--gradient_checkpointing", '--gradient_checkpointing_kwargs={"use_reentrant":1}'),
            "reentrant",
        ),
        (
            ("--gradient_checkpointing", '--gradient_checkpointing_kwargs={"use_reentrant":"0"}'),
            "non_reentrant",
        ),
        (("--gradient_checkpointing", "--gradient_checkpointing_kwargs={}"), "non_reentrant"),
        (('--gradient_checkpointing_kwargs={"use_reentrant":true}',), "off"),
        ((), "off"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_every_form_of_a_flag_means_what_transformers_takes_it_for(
    arguments: tuple[str, ...], expected: str
) -> None:
    """Compared with the installed HfArgumentParser."""
    from transformers import HfArgumentParser, TrainingArguments

    workload = read(*arguments)
    assert workload.value(MODE) == expected
    (theirs,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
        ["--output_dir=out", "--use_cpu", *arguments]
    )
    assert bool(theirs.gradient_checkpointing) == (expected != "off")
    kwargs = theirs.gradient_checkpointing_kwargs or {}
    if "use_reentrant" in kwargs:
        assert expected == "off" or bool(kwargs["use_reentrant"]) == (expected == "reentrant")
    else:
        assert expected != "reentrant"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--per_device_train_batch_size", "4"),
        ("--per-device-train-batch-size=4", "--gradient-accumulation-steps", "2"),
        ("--per_device_train_batch_size", "4", "--per_device_train_batch_size", "6"),
        ("--per_device_train_batch_size", "+4"),
        ("--per_device_train_batch_size=1_0",),
        ("--per_device_train_batch_size", " 4"),
        ("--bf16",),
        ("--bf16", "yes", "--learning_rate", "-1"),
        ("--fp16=True",),
        ("--ddp_find_unused_parameters", "FALSE"),
        ("--ddp_find_unused_parameters=1", "--ddp-static-graph", "true"),
    ],
    ids=" ".join,
)
def test_what_is_read_is_what_transformers_reads(arguments: tuple[str, ...]) -> None:
    """Batch, precision and DDP's flags, compared with the installed HfArgumentParser."""
    from transformers import HfArgumentParser, TrainingArguments

    (theirs,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
        ["--output_dir=out", "--use_cpu", *arguments]
    )
    precision = "bf16" if theirs.bf16 else "fp16" if theirs.fp16 else "fp32"
    values = {
        Setting.MICRO_BATCH: theirs.per_device_train_batch_size,
        Setting.ACCUMULATION: theirs.gradient_accumulation_steps,
        Setting.PRECISION: precision,
        Setting.FIND_UNUSED_PARAMETERS: theirs.ddp_find_unused_parameters,
        Setting.STATIC_GRAPH: bool(theirs.ddp_static_graph),
    }
    asked = read(*arguments).requested
    assert {name: asked.get(name) for name in values} == values


@pytest.mark.parametrize(
    ("arguments", "engine"),
    [
        ((), "ddp"),
        (("--deepspeed", ""), "ddp"),
        (("--fsdp=",), "ddp"),
        (("--fsdp", "full_shard auto_wrap"), "fsdp"),
        (("--fsdp", "--bf16"), "fsdp"),
        (('--deepspeed={"zero_optimization": {"stage": 1}}',), "deepspeed"),
    ],
)
def test_who_reduces_the_gradients(arguments: tuple[str, ...], engine: str) -> None:
    """An empty flag, as from an unset shell variable, requests no engine."""
    workload = read(*arguments)
    assert workload.value(Fact.ENGINE) == engine
    assert (workload.value(Setting.STATIC_GRAPH) is not None) == (engine == "ddp")
    assert workload.value(Fact.UNSYNCED_PASSES) is (True if engine == "ddp" else None)
    assert workload.notes == ()


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
    """Flags name themselves; defaults name the framework."""
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
    """A .json or .yaml file instead of flags, as in transformers' examples."""
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
    """`--loss_file=x.json` alone isn't a file of arguments."""
    assert read("--loss_file=x.json").value(Setting.MICRO_BATCH) == 8


def test_a_file_beside_the_script_comes_first(folder: Path) -> None:
    """HfArgumentParser reads SCRIPT.args; the command line overrides it."""
    (folder / "train.args").write_text("--per_device_train_batch_size 3\n--bf16\n")
    assert read().value(Setting.MICRO_BATCH) == 3
    assert read("--per_device_train_batch_size=5").value(Setting.MICRO_BATCH) == 5


def test_trls_configuration_yields_to_flags(folder: Path) -> None:
    """`--config FILE` sets defaults in trl's scripts, and has no meaning in others."""
    (folder / "c.yaml").write_text(
        "per_device_train_batch_size: 3\ngradient_accumulation_steps: 7\n"
    )
    workload = read("--config", "c.yaml", "--per_device_train_batch_size=5", script="tune.py")
    assert workload.value(Setting.MICRO_BATCH) == 5
    assert workload.value(Setting.ACCUMULATION) == 7
    assert read("--config", "c.yaml").value(Setting.ACCUMULATION) == 1


def test_trls_own_defaults_stay_unknown() -> None:
    """They differ from transformers' and between versions, if trl isn't installed.

    Requested settings take transformers' default; with ZeRO, trl may choose another.
    """
    assert read(script="tune.py").value(MODE) is None
    assert read(script="tune.py").value(Setting.PRECISION) is None
    assert read("--gradient_checkpointing", script="tune.py").value(MODE) == "non_reentrant"
    zero = ("--gradient_checkpointing", "--deepspeed", '{"zero_optimization": {"stage": 3}}')
    assert read(*zero, script="tune.py").value(MODE) is None
    assert read("--gradient_checkpointing=no", script="tune.py").value(MODE) == "off"
    kwargs = '--gradient_checkpointing_kwargs={"use_reentrant": true}'
    assert read("--gradient_checkpointing", kwargs, script="tune.py").value(MODE) == "reentrant"
    assert read("--bf16", script="tune.py").value(Setting.PRECISION) == "bf16"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", '{"a": 1,\n "b": }', "a.json:2: not JSON: Expecting value"),
        ("a.json", "[1]", "a.json:1: a mapping of arguments is expected"),
        ("a.json", b"\xff\xfe", "a.json can't be read: it isn't UTF-8"),
        ("a.yaml", "a: 1\nb: [2\nc: 3\n", "a.yaml:3: can't be read: expected ',' or ']'"),
        ("a.yaml", "", "a.yaml:1: a mapping of arguments is expected"),
        ("a.yml", None, "there is no file of arguments `a.yml`"),
    ],
)
def test_a_broken_file_of_arguments_is_an_error(
    folder: Path, name: str, text: str | bytes | None, problem: str
) -> None:
    """The message names the file, and the line if known."""
    if text is not None:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(LaunchError) as caught:
        read(name)
    assert caught.value.problem.startswith(problem)


def test_json_may_be_indented_with_tabs(folder: Path) -> None:
    """YAML doesn't include all of JSON."""
    content = {"gradient_checkpointing": True, "deepspeed": {"zero_optimization": {"stage": 3}}}
    (folder / "args.json").write_text(json.dumps(content, indent="\t"))
    workload = read("args.json")
    assert workload.value(MODE) == "non_reentrant"
    assert workload.value(Setting.ZERO_STAGE) == 3


@pytest.mark.parametrize(
    ("argument", "note"),
    [
        ("use_reentrant=False", "not JSON: Expecting value: use_reentrant=False"),
        ("[1]", "a JSON object is expected: [1]"),
    ],
)
def test_kwargs_that_are_no_mapping_are_noted(argument: str, note: str) -> None:
    """The version's default is used, as without them."""
    flag = "--gradient_checkpointing_kwargs"
    workload = read("--gradient_checkpointing", flag, argument)
    assert workload.notes == (f"{flag}: {note}",)
    assert workload.value(MODE) == "non_reentrant"


@pytest.mark.parametrize("flag", ["gradient_checkpointing", "bf16", "ddp_static_graph"])
def test_a_switch_that_is_neither_on_nor_off_is_noted(flag: str) -> None:
    """The default isn't assumed either."""
    setting = {
        "gradient_checkpointing": MODE,
        "bf16": Setting.PRECISION,
        "ddp_static_graph": Setting.FIND_UNUSED_PARAMETERS,
    }[flag]
    workload = read(f"--{flag}", "on")
    assert workload.notes == (f"--{flag}: 'on' is neither true nor false",)
    assert workload.value(setting) is None


@pytest.mark.parametrize("text", ["0", "-2"])
def test_a_batch_that_no_framework_takes_is_refused(text: str) -> None:
    """The error has the flag and the value."""
    with pytest.raises(LaunchError) as caught:
        read("--per_device_train_batch_size", text)
    assert caught.value.problem == (
        f"--per_device_train_batch_size: {text} isn't a batch size: at least 1 is needed"
    )


@pytest.mark.parametrize("text", ["four", "1.5", ""])
def test_a_value_of_the_wrong_type_is_noted_not_guessed(text: str) -> None:
    """The script reports it itself."""
    workload = read(f"--per_device_train_batch_size={text}")
    assert workload.value(Setting.MICRO_BATCH) is None
    assert workload.notes == (
        f"--per_device_train_batch_size: {text!r} isn't a positive whole number",
    )


def test_a_script_of_its_own_has_no_defaults() -> None:
    """Without TrainingArguments only stated values are known."""
    workload = read(script="loop.py")
    assert workload.framework is Framework.NONE
    assert dict(workload.known) == {}


def test_a_deepspeed_json(folder: Path) -> None:
    """Stage, offload, batch and precision; the framework fills in "auto"."""
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
        "clips_by_default": True,
        "overflow_by_default": True,
        "precision": "bf16",
    }
    assert found.known[Setting.ZERO_STAGE].source == "ds.json: zero_optimization.stage"


@pytest.mark.parametrize(
    ("config", "known", "notes"),
    [
        ({}, {"zero_stage": 0, "offload": "none"}, ()),
        ({"zero_optimization": True}, {"zero_stage": 1, "offload": "none"}, ()),
        ({"zero_optimization": {"stage": "auto"}}, {}, ()),
        (
            {"zero_optimization": {"stage": 4}},
            {},
            ("ds.json: zero_optimization.stage: 4 isn't a ZeRO stage",),
        ),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
            {"zero_stage": 3, "offload": "optimizer_and_parameters"},
            (),
        ),
        (
            {"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2},
            {"zero_stage": 0, "offload": "none", "micro_batch": 2, "accumulation": 3},
            (),
        ),
        (
            {"train_batch_size": 13, "train_micro_batch_size_per_gpu": 2},
            {"zero_stage": 0, "offload": "none", "micro_batch": 2},
            (),
        ),
        (
            {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 0},
            {"zero_stage": 0, "offload": "none"},
            ("ds.json: train_micro_batch_size_per_gpu: 0 isn't a positive whole number",),
        ),
        (
            {"train_micro_batch_size_per_gpu": "4"},
            {"zero_stage": 0, "offload": "none"},
            ("ds.json: train_micro_batch_size_per_gpu: '4' isn't a positive whole number",),
        ),
        (
            {"gradient_accumulation_steps": True, "train_micro_batch_size_per_gpu": 2},
            {"zero_stage": 0, "offload": "none", "micro_batch": 2},
            ("ds.json: gradient_accumulation_steps: True isn't a positive whole number",),
        ),
    ],
)
def test_parts_of_a_deepspeed_json(
    folder: Path, config: dict[str, object], known: dict[str, object], notes: tuple[str, ...]
) -> None:
    """Missing keys are defaults or unknown; invalid ones get a note."""
    (folder / "ds.json").write_text(json.dumps(config))
    found = read("--ds_config", "ds.json", script="loop.py")
    always = {
        "engine": "deepspeed",
        "fp32_accumulation": False,
        "clips_by_default": True,
        "overflow_by_default": True,
        "precision": "fp32",
    }
    values = {name.value: one.value for name, one in found.known.items()}
    assert values == {**always, **known}
    assert found.notes == notes


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"bf16": {"enabled": True}}, "bf16"),
        ({"bfloat16": {"enabled": True}}, "bf16"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": False}}, "fp16"),
        ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": False}}, None),
        ({"fp16": {"enabled": False}}, "fp32"),
    ],
)
def test_precision_of_a_deepspeed_json(
    folder: Path, config: dict[str, object], precision: str | None
) -> None:
    """Known if the configuration alone decides it."""
    (folder / "ds.json").write_text(json.dumps(config))
    found = read("--deepspeed_config=ds.json", script="loop.py")
    assert found.value(Setting.PRECISION) == precision


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


def test_names_that_are_no_files_are_left_to_the_framework() -> None:
    """Another framework's `--deepspeed zero2` shows the engine only."""
    found = read("--deepspeed", "zero2", script="loop.py")
    assert found.value(Fact.ENGINE) == "deepspeed"
    assert found.value(Setting.ZERO_STAGE) is None


def test_a_deepspeed_json_that_isnt_there() -> None:
    """The error has flag and file, before the launch."""
    with pytest.raises(LaunchError) as caught:
        read("--deepspeed", "absent.json")
    assert caught.value.problem == (
        "--deepspeed: absent.json: no such DeepSpeed configuration file"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1,\n "b": }', "ds.json:2: not JSON"),
        ("[]", "a JSON object is expected, not list"),
        ('{"a": 1, "a": 2}', "the key `a` is given twice"),
    ],
)
def test_a_broken_deepspeed_json_is_an_error(folder: Path, text: str, problem: str) -> None:
    """The error has flag, file and line."""
    (folder / "ds.json").write_text(text)
    with pytest.raises(LaunchError, match=r"--deepspeed: ds\.json") as caught:
        read("--deepspeed", "ds.json")
    assert problem in caught.value.problem


def test_accelerates_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of `accelerate launch` are named as the source."""
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
    text = base64.urlsafe_b64encode(b'{"zero_optimization": {"stage": 2}}').decode()
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", text)
    assert read(script="loop.py").value(Setting.ZERO_STAGE) == 2
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", "absent.json")
    with pytest.raises(LaunchError, match=r"\$ACCELERATE_DEEPSPEED_CONFIG_FILE: absent\.json: no"):
        read(script="loop.py")


ON_A_CPU = (
    "$ACCELERATE_USE_DEEPSPEED without effect: on a CPU ($ACCELERATE_USE_CPU or "
    "Accelerator(cpu=True)) accelerate uses DDP"
)


@pytest.mark.parametrize(
    ("script", "variable", "engine", "stage", "note"),
    [
        ("from accelerate import Accelerator\na = Accelerator()\n", "false", "deepspeed", 2, ""),
        (
            "from accelerate import Accelerator\na = Accelerator()\n",
            "true",
            None,
            None,
            ON_A_CPU,
        ),
        (
            "import accelerate\na = accelerate.Accelerator(cpu=True)\n",
            "false",
            None,
            None,
            ON_A_CPU,
        ),
        ("import accelerate\na = accelerate.Accelerator(cpu=here)\n", "", None, None, ""),
        ("import accelerate\na = accelerate.Accelerator(cpu=False)\n", "", "deepspeed", 2, ""),
        (
            "import accelerate\na = accelerate.Accelerator(deepspeed_plugin=mine)\n",
            "",
            "deepspeed",
            None,
            "",
        ),
        ("from torch.nn.parallel import DistributedDataParallel\n", "", None, None, ""),
        ("import lightning as L\nfrom transformers import AutoModel\n", "", "deepspeed", 2, ""),
        ("import own_package\n", "", "deepspeed", 2, ""),
    ],
)
def test_what_accelerates_variables_really_do(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    variable: str,
    engine: str | None,
    stage: int | None,
    note: str,
) -> None:
    """On CPUs only a note; the script's arguments override them; none beside DDP."""
    (folder / "own.py").write_text(script)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
    monkeypatch.setenv("ACCELERATE_USE_CPU", variable)
    found = read(script="own.py")
    assert (found.value(Fact.ENGINE), found.value(Setting.ZERO_STAGE)) == (engine, stage)
    assert found.notes == ((note,) if note else ())


def test_the_scripts_own_json_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate's variables count if the script has no configuration."""
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
    assert read().value(Setting.ZERO_STAGE) == 2
    assert read("--deepspeed=ds.json").value(Setting.ZERO_STAGE) == 3


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "7", "'7' isn't a value of zero_stage"),
        ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "two", "'two' isn't a value of zero_stage"),
        ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "0", "'0' isn't a value of accumulation"),
    ],
)
def test_variables_of_the_wrong_type_are_noted(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, note: str
) -> None:
    """Accelerate reports them itself."""
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv(name, text)
    found = read(script="loop.py")
    assert found.notes == (f"${name}: {note}",)
    assert found.requested == {}


def test_accelerates_fsdp_and_a_flag_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag overrides a variable, which overrides a default."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    assert read().value(Fact.ENGINE) == "fsdp"
    assert read().value(Setting.PRECISION) == "fp16"
    assert read("--bf16").value(Setting.PRECISION) == "bf16"


def test_origins_have_an_order() -> None:
    """The higher origin wins in any order; between equals the later one."""
    setting = Setting.ZERO_STAGE
    values = [Known(number, origin, "here") for number, origin in enumerate(Origin)]
    for order in (values, values[::-1]):
        informed = Workload().informed((setting, one) for one in order)
        assert informed.known[setting].origin is Origin.LESSON
    again = Known(9, Origin.LESSON, "there")
    assert informed.informed([(setting, again)]).known[setting] is again
    assert list(Origin) == [
        Origin.DEFAULT,
        Origin.SCRIPT,
        Origin.PRESET,
        Origin.CONFIG,
        Origin.FLAG,
        Origin.LEARNT,
        Origin.OBSERVED,
        Origin.LESSON,
    ]


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
    """A flag determines whether parameters are frozen; without one it is unknown."""
    assert read(*arguments).value(Fact.FROZEN_PARAMETERS) is expected


def test_peft_makes_the_trainer_look_for_unused_parameters() -> None:
    """This is the default."""
    unused = Setting.FIND_UNUSED_PARAMETERS
    assert read("--use_lora", "true").value(unused) is True
    assert read("--use_lora", "true", "--ddp_find_unused_parameters", "no").value(unused) is False
    assert read().value(unused) is None
