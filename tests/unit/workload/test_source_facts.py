"""What a script's source says beside its parser's defaults: the model's class, files, freezing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safe_launch.core.certainty import Certainty
from safe_launch.core.choices import Adapter, Output
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
    """What is read of a script."""
    (folder / "train.py").write_text(source)
    return read_workload(LaunchRequest("train.py", False, arguments, workers, "--nproc"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, on a host that shows all of its devices."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("made", "expected", "certainty"),
    [
        ("AutoModelForSequenceClassification", Output.SCORES, Certainty.DERIVED),
        ("AutoModelForCausalLM", Output.VOCABULARY, Certainty.DERIVED),
        ("AutoModel", None, None),
    ],
)
def test_what_the_class_of_the_model_puts_out(
    made: str, expected: Output | None, certainty: Certainty | None, folder: Path
) -> None:
    """It decides whether there are logits of the whole vocabulary."""
    workload = read(folder, f'{HEAD}model = {made}.from_pretrained("x", num_labels=1){END}')
    known = workload.known.get(Fact.OUTPUT)
    assert (known and known.value, known and known.origin.certainty) == (expected, certainty)


def test_two_classes_of_models(folder: Path) -> None:
    """Which of them is trained isn't known, so that logits are only assumed."""
    both = """
reward = AutoModelForSequenceClassification.from_pretrained("y")
model = AutoModelForCausalLM.from_pretrained("x")
"""
    assert not read(folder, HEAD + both + END).is_certain(Fact.OUTPUT)


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
    """A single process that sees several may spread its model over them."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    model = f'model = AutoModelForCausalLM.from_pretrained("x", device_map={devices})'
    workload = read(folder, HEAD + model + END, workers=workers)
    assert workload.value(Fact.DEVICE_MAP) is expected


PARTLY = """
from peft import LoraConfig, get_peft_model
model = AutoModelForCausalLM.from_pretrained("x")
if args.do_eval:
    model = get_peft_model(model, LoraConfig())
if not args.do_predict:
    for name, parameter in model.named_parameters():
        if "memory" not in name:
            parameter.requires_grad_(False)
"""


def test_frozen_parameters(folder: Path) -> None:
    """A script without adapters that freezes parameters doesn't train all of them."""
    assert read(folder, HEAD + PARTLY + END).value(Fact.ADAPTER) is None
    workload = read(folder, HEAD + PARTLY + END, "--do_predict", "True")
    assert workload.value(Fact.ADAPTER) == Adapter.NONE


FILED = """
import argparse
from dataclasses import dataclass
from transformers import HfArgumentParser, Trainer, TrainingArguments
own = argparse.ArgumentParser()
own.add_argument("--settings", default="settings.json")
options = own.parse_args()
@dataclass
class Own(TrainingArguments):
    lora_rank: int = 64
(args,) = HfArgumentParser((Own,)).parse_json_file(json_file=options.settings)
Trainer(args=args).train()
"""


def test_arguments_in_a_file_that_the_source_names(folder: Path) -> None:
    """They are as good as on the command line; without the file, no default holds."""
    (folder / "mine.json").write_text(json.dumps({"per_device_train_batch_size": 3, "bf16": True}))
    known = read(folder, FILED, "--settings", "mine.json").known
    assert (known[Setting.MICRO_BATCH].value, known[Setting.PRECISION].value) == (3, "bf16")
    assert known[Setting.MICRO_BATCH].source == "mine.json: per_device_train_batch_size"
    unknown = read(folder, FILED)
    names = (Setting.MICRO_BATCH, Setting.PRECISION, Setting.GRADIENT_CHECKPOINTING)
    assert not {*names, Fact.ENGINE, Fact.LORA_RANK} & unknown.known.keys()


def test_defaults_that_are_set_from_elsewhere(folder: Path) -> None:
    """Any of them may be replaced."""
    source = """
import argparse, json
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
{}
args = parser.parse_args()
loader = DataLoader(train_data, batch_size=args.batch)
"""
    assert read(folder, source.format("")).value(Setting.MICRO_BATCH) == 4
    replaced = source.format('parser.set_defaults(**json.load(open("defaults.json")))')
    assert read(folder, replaced).value(Setting.MICRO_BATCH) is None
    assert read(folder, replaced, "--batch", "2").value(Setting.MICRO_BATCH) == 2


def test_tensor_parallelism_in_a_configuration(folder: Path) -> None:
    """DeepSpeed's AutoTP divides the model among ranks, which isn't modelled."""
    config = {"tensor_parallel": {"autotp_size": 4}, "zero_optimization": {"stage": 1}}
    (folder / "tp.json").write_text(json.dumps(config))
    workload = read(folder, HEAD + END, "--deepspeed", "tp.json")
    assert workload.value(Fact.MODEL_PARALLEL) == 4


def test_a_configuration_in_hjson(folder: Path) -> None:
    """DeepSpeed reads comments, and commas at an end."""
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 2,}, // the second\n}')
    workload = read(folder, "import deepspeed\n", "--deepspeed", "--deepspeed_config", "ds.json")
    assert workload.value(Setting.ZERO_STAGE) == 2


@pytest.mark.parametrize("trainer", ["KTOTrainer", "GRPOTrainer"])
def test_losses_that_span_the_batch(trainer: str, folder: Path) -> None:
    """The micro batch isn't only a matter of memory there."""
    workload = read(folder, f"from trl import {trainer}\n{HEAD}")
    assert workload.value(Fact.LOSS_SPANS_BATCH) is True


BOTH = """
from dataclasses import dataclass
from transformers import HfArgumentParser, Trainer, TrainingArguments
from trl import DPOTrainer
class Pairs(DPOTrainer):
    pass
@dataclass
class Own(TrainingArguments):
    task: str = "sft"
(args,) = HfArgumentParser((Own,)).parse_args_into_dataclasses()
if args.task == "sft":
    trainer = Trainer(args=args)
else:
    trainer = Pairs(args=args)
"""


def test_the_trainer_that_is_made(folder: Path) -> None:
    """A script may import several: the arguments decide which of them trains."""
    assert read(folder, BOTH).value(Fact.OBJECTIVE) is None
    assert read(folder, BOTH, "--task", "dpo").value(Fact.OBJECTIVE) == "preference"
    undecided = BOTH.replace("args.task ==", "task() ==")
    assert read(folder, undecided).value(Fact.OBJECTIVE) is None


def test_parts_that_take_precedence_over_switches(folder: Path) -> None:
    """LLaVA-NeXT's list says all of it, whatever the older switches default to."""
    parts = "mm_vision_tower,mm_mlp_adapter,mm_language_model"
    flags = ("--mm_tunable_parts", parts, "--unfreeze_mm_vision_tower", "False")
    workload = read(folder, HEAD + END, *flags)
    assert workload.value(Fact.VISION_TRAINED) is True
    assert Fact.FROZEN_PARAMETERS not in workload.known
