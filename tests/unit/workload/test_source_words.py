"""Facts about arguments from names in a script's source, and the flags' meaning then."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Workload
from safe_launch.workload.read_workload import read_workload

PARSED = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
SETTINGS = (Setting.MICRO_BATCH, Setting.ACCUMULATION, Setting.GRADIENT_CHECKPOINTING)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script's folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(folder: Path, source: str, *arguments: str, **files: str) -> Workload:
    """The facts read from a script; other files by their stems."""
    for name, text in {"train": source, **files}.items():
        (folder / f"{name}.py").write_text(text)
    return read_workload(LaunchRequest("train.py", False, arguments, 2, "--nproc"))


def read_values(workload: Workload, *names: Name) -> list[Value | None]:
    """Some of the known values."""
    return [workload.value(name) for name in names]


def test_absent_flags_have_defaults(folder: Path) -> None:
    """Only if the script parses the Trainer's arguments."""
    assert read_values(read(folder, PARSED), *SETTINGS) == [8, 1, "off"]
    made = "from transformers import Trainer, TrainingArguments\nTrainingArguments('out')\n"
    assert read_values(read(folder, made), *SETTINGS) == [None, None, None]
    other = "from transformers import HfArgumentParser\nHfArgumentParser(Own)\n"
    assert read_values(read(folder, other), *SETTINGS) == [None, None, None]


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("class Own(TrainingArguments):\n    per_device_train_batch_size: int = 1", 0),
        ("made = replace(args, per_device_train_batch_size=pick())", 0),
        ("words = {'gradient_accumulation_steps': 4}", 1),
        ("args.gradient_accumulation_steps = 4", 1),
        ("setattr(args, 'gradient_checkpointing', True)", 2),
        ("model.gradient_checkpointing_enable()", 2),
        ("from torch.utils.checkpoint import checkpoint", 2),
        ("import helpers", 1),
    ],
)
def test_what_the_source_decides_is_asked_at_launch(folder: Path, line: str, unknown: int) -> None:
    """A default is void if any file of the script may set the argument."""
    helper = "def lower(args):\n    args.gradient_accumulation_steps //= 2\n"
    found = read_values(read(folder, f"{PARSED}{line}\n", helpers=helper), *SETTINGS)
    assert [place for place, value in enumerate(found) if value is None] == [unknown]


def test_arguments_from_elsewhere(folder: Path) -> None:
    """If a parser reads a file or a dict, absent flags have no default."""
    for method in ("parse_json_file", "parse_yaml_file", "parse_dict"):
        source = f"{PARSED}HfArgumentParser(TrainingArguments).{method}(settings())\n"
        assert read_values(read(folder, source), *SETTINGS) == [None, None, None]


def test_flags_hold_unless_the_source_replaces_them(folder: Path) -> None:
    """A class's default doesn't override a flag; assigning to parsed arguments does."""
    flags = ("--per_device_train_batch_size=3", "--gradient_checkpointing")
    field = "class Own(TrainingArguments):\n    per_device_train_batch_size: int = 1\n"
    assert read(folder, PARSED + field, *flags).value(Setting.MICRO_BATCH) == 3
    changed = f"{PARSED}training_args.per_device_train_batch_size //= 2\n"
    workload = read(folder, changed, *flags)
    assert read_values(workload, *SETTINGS[::2]) == [None, "non_reentrant"]
    kwargs = f"{PARSED}args.gradient_checkpointing_kwargs = pick()\n"
    workload = read(folder, kwargs, *flags)
    assert read_values(workload, SETTINGS[2], Fact.CHECKPOINTED) == [None, True]


def test_a_parser_of_the_scripts_own(folder: Path) -> None:
    """A self-declared flag with a Trainer's name is the loop's; there are no defaults."""
    source = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--per-device-train-batch-size', type=int)\n"
    )
    line = ("--per_device_train_batch_size", "2")
    assert read_values(read(folder, source, *line), *SETTINGS) == [2, None, None]
    assert read_values(read(folder, "from own import parse", *line), *SETTINGS) == [2, 1, "off"]
    called = "import fire\ndef train(per_device_train_batch_size=0): ...\nfire.Fire(train)\n"
    assert read_values(read(folder, called, *line), *SETTINGS) == [2, None, None]
    odd = read(folder, called, "--per_device_train_batch_size=-1")
    assert read_values(odd, *SETTINGS) == [None, None, None]


@pytest.mark.parametrize("method", ["--use_badam", "--lisa_activated_layers=2"])
def test_a_part_of_a_full_training(folder: Path, method: str) -> None:
    """If a method trains a few layers at a time, not all count as trained."""
    line = ("--finetuning_type", "full")
    assert read(folder, PARSED, *line).value(Fact.ADAPTER) == "none"
    workload = read(folder, PARSED, *line, method)
    assert read_values(workload, Fact.ADAPTER, Fact.ADAPTER_HINTED) == [None, True]


def test_a_loop_decides_by_itself(folder: Path) -> None:
    """Only the Trainer refuses an accumulation other than the configuration's."""
    (folder / "ds.json").write_text('{"gradient_accumulation_steps": 4}')
    arguments = ("--deepspeed_config", "ds.json", "--gradient_accumulation_steps", "1")
    source = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--deepspeed_config')\n"
        "parser.add_argument('--gradient_accumulation_steps', type=int)\nparser.parse_args()\n"
    )
    assert read(folder, source, *arguments).value(Setting.ACCUMULATION) == 4


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--use_oft --learning_rate 1e-4", ("--use_oft",)),
        ("--reward_model x --use_vllm true --bf16 true", ("--reward_model", "--use_vllm")),
        ("--use_vllm false --lora_alpha 16 --save_steps 5 --per_device_eval_batch_size 2", ()),
        ("--gradient_checkpointing --per_device_train_batch_size 2", ()),
    ],
)
def test_what_no_reader_understood(folder: Path, line: str, expected: tuple[str, ...]) -> None:
    """Flags with relevant names, unless they are off or were read."""
    source = "from transformers import HfArgumentParser\n"
    assert read(folder, source, *line.split()).not_understood == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("loader = DataLoader(data, batch_sampler=sampler)", True),
        ("sampler = torch.utils.data.BatchSampler(order, 4, False)", True),
        ("accelerator = Accelerator(split_batches=True)", True),
        ("class Own(Trainer):\n    def get_train_dataloader(self): ...", True),
        ("loader = DataLoader(data, batch_size=4, sampler=sampler)", False),
    ],
)
def test_who_says_which_samples_make_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: bool
) -> None:
    """If the script does, no stated size determines the global batch."""
    monkeypatch.chdir(tmp_path)
    assert read(tmp_path, line).makes_batches is expected


@pytest.mark.parametrize(
    ("line", "flags", "expected"),
    [
        ("model = AutoModelForCausalLM.from_pretrained(folder())", "", True),
        ("model.requires_grad_(False)", "", False),
        ("setattr(weight, 'requires_grad', False)", "", False),
        ("from peft import get_peft_model", "", False),
        ("model.freeze_feature_encoder()", "", False),
        ("teacher = AutoModelForCausalLM.from_pretrained(folder())", "", False),
        ("trainer = Trainer(model, ref_model=other)", "", False),
        ("import own_framework", "", False),
        ("import helpers", "", False),
        ("", "--freeze_tower=True", False),
        ("", "--learning_rate=1e-4", True),
    ],
)
def test_who_trains_all_of_the_model_that_it_loads(
    folder: Path, line: str, flags: str, *, expected: bool
) -> None:
    """Not with adapters, frozen weights or another model; unknown code may."""
    helper = "from peft import LoraConfig\n"
    workload = read(folder, f"{PARSED}{line}\n", *flags.split(), helpers=helper)
    assert workload.trains_all is expected


def test_a_precision_by_a_flag_of_its_own(folder: Path) -> None:
    """It may mean something else, so it forbids no plan before a worker confirms it."""
    own = "import argparse\nargparse.ArgumentParser().add_argument('--bf16')\n"
    for source, is_certain in ((own, False), (PARSED, True), ("import deepspeed\n", True)):
        workload = read(folder, source, "--bf16", "true")
        assert workload.value(Setting.PRECISION) == "bf16"
        assert workload.is_certain(Setting.PRECISION) is is_certain
