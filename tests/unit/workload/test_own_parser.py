"""The script's own source: what its parser declares, and what its calls decide."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.core.certainty import Origin
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Known, Workload
from safe_launch.workload.read_workload import read_workload

CLASSES = """
import transformers
from dataclasses import dataclass, field
from typing import List, Optional
from transformers import HfArgumentParser, Trainer
from peft import LoraConfig, get_peft_model

@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="adafactor")
    per_device_train_batch_size: int = 1
    model_max_length: int = field(default=512, metadata={"help": "tokens"})
    use_lora: bool = False

@dataclass
class LoraArguments:
    lora_r: int = 64
    lora_target_modules: List[str] = field(default_factory=lambda: ["c_attn", "w1"])
    q_lora: bool = False

def train():
    parser = HfArgumentParser((TrainingArguments, LoraArguments))
    training_args, lora_args = parser.parse_args_into_dataclasses()
    if training_args.use_lora:
        if lora_args.q_lora:
            whole = None
        else:
            whole = ["wte"]
            whole.append("lm_head")
        config = LoraConfig(
            r=lora_args.lora_r, target_modules=lora_args.lora_target_modules, modules_to_save=whole
        )
        model = get_peft_model(model, config)
    training_args.gradient_checkpointing_kwargs = {"use_reentrant": True}
    Trainer(args=training_args).train()

if __name__ == "__main__":
    train()
"""
"""A script of the usual kind: dataclasses, a parser of them, and adapters behind a flag."""
LOOP = """
import argparse
import deepspeed
from torch.utils.data import DataLoader
from configuration import configuration_of

def parse_args():
    parser = argparse.ArgumentParser()
    group = parser.add_argument_group("training")
    group.add_argument("--train-batch-size", "--bs", type=int, default=4, dest="train_batch_size")
    group.add_argument("--zero_stage", type=int, default=2)
    group.add_argument("--offload", action="store_true")
    parser.add_argument("--lora_dim", type=int, default=0)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()

def main():
    args = parse_args()
    loader = DataLoader(train_set, batch_size=args.train_batch_size)
    settings = configuration_of(args.offload, stage=args.zero_stage)
    settings["gradient_accumulation_steps"] = 2 * 3
    deepspeed.initialize(model=model, config=settings)

main()
"""
"""A loop of its own, with a configuration of DeepSpeed's that another file makes."""
CONFIGURATION = """
def configuration_of(offload, stage=3, size=5e8):
    device = "cpu" if offload else "none"
    zero = {"stage": stage, "offload_optimizer": {"device": device}, "reduce_bucket_size": size}
    return {"zero_optimization": zero, "bf16": {"enabled": True}, "steps": unknown()}

if __name__ == "__main__":
    import argparse
    argparse.ArgumentParser().add_argument("--zero_stage", default=0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the script, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(folder: Path, source: str, *arguments: str, **files: str) -> Workload:
    """What is read of a script; other files by their stems."""
    for name, text in {"train": source, **files}.items():
        (folder / f"{name}.py").write_text(text)
    return read_workload(LaunchRequest("train.py", False, arguments, 2, "--nproc"))


def read_values(workload: Workload, *names: Name) -> list[Value | None]:
    """Some of what is known."""
    return [workload.value(name) for name in names]


LORA = (Fact.ADAPTER, Fact.LORA_RANK, Fact.LORA_TARGETS, Fact.LORA_SAVED)


def test_fields_of_dataclasses(folder: Path) -> None:
    """Their defaults hold against the framework's, and each says where it stands."""
    workload = read(folder, CLASSES)
    known = workload.known[Setting.MICRO_BATCH]
    assert (known.value, known.origin) == (1, Origin.SCRIPT)
    assert known.source == "train.py:11: per_device_train_batch_size"
    facts = (Fact.SEQUENCE_LENGTH, Fact.OPTIMIZER, Setting.ACCUMULATION, Fact.ADAPTER)
    assert read_values(workload, *facts) == [512, "adafactor", 1, "none"]
    assert workload.known[Setting.ACCUMULATION].origin is Origin.DEFAULT


def test_only_what_is_stated_is_certain(folder: Path) -> None:
    """What the source sets may have no effect, as an argument's old name: a worker tells."""
    workload = read(folder, CLASSES, "--gradient_checkpointing", "--learning_rate", "0.1")
    assert workload.value(Setting.GRADIENT_CHECKPOINTING) == "reentrant"
    assert not [name for name in workload.known if workload.is_certain(name)]
    stated = read(folder, CLASSES, "--per_device_train_batch_size", "3")
    assert [name for name in stated.known if stated.is_certain(name)] == [Setting.MICRO_BATCH]


def test_flags_hold_against_defaults(folder: Path) -> None:
    """Both on the command line and in what the source makes of them."""
    arguments = ("--use_lora", "True", "--lora_r", "8", "--per_device_train_batch_size=3")
    workload = read(folder, CLASSES, *arguments, "--gradient_checkpointing")
    assert read_values(workload, *LORA) == ["lora", 8, "c_attn,w1", "wte,lm_head"]
    assert workload.known[Fact.LORA_RANK].origin is Origin.SCRIPT
    assert workload.known[Fact.LORA_TARGETS].origin is Origin.SCRIPT
    assert workload.known[Setting.MICRO_BATCH].origin is Origin.FLAG
    assert workload.value(Setting.GRADIENT_CHECKPOINTING) == "reentrant"
    assert read(folder, CLASSES, "--use_lora", "yes", "--q_lora").value(Fact.LORA_SAVED) is None


def test_argparse_and_a_configuration_in_the_source(folder: Path) -> None:
    """Options of a group, a function of another file, what is added to its result."""
    workload = read(folder, LOOP, configuration=CONFIGURATION)
    settings = (Setting.MICRO_BATCH, Setting.ACCUMULATION, Setting.ZERO_STAGE, Setting.OFFLOAD)
    assert read_values(workload, *settings) == [4, 6, 2, "none"]
    assert read_values(workload, Setting.PRECISION, Fact.ENGINE, Fact.ADAPTER) == [
        *("bf16", "deepspeed", "none")
    ]
    assert workload.known[Setting.ZERO_STAGE].origin is Origin.SCRIPT
    given = ("--deepspeed", "--bs", "8", "--zero_stage", "3", "--offload", "--lora_dim", "16")
    workload = read(folder, LOOP, *given, configuration=CONFIGURATION)
    assert read_values(workload, *settings[:3], Fact.LORA_RANK) == [8, 6, 3, 16]
    assert workload.value(Setting.OFFLOAD) == "optimizer_and_parameters"
    assert workload.known[Setting.ZERO_STAGE].origin is Origin.FLAG


MAKE = "def make(size):\n    return TrainingArguments(per_device_train_batch_size=size)\n"
TRAINER = "from transformers import Trainer, TrainingArguments\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("TrainingArguments('out', per_device_train_batch_size=2 * 3)", 6),
        ("SIZE = 5\nTrainingArguments('out', per_device_train_batch_size=SIZE)", 5),
        ("TrainingArguments('out')", 8),
        ("TrainingArguments(**open('x'))", None),
        ("TrainingArguments(per_device_train_batch_size=pick())", None),
        ("if pick():\n    TrainingArguments(per_device_train_batch_size=2)", None),
        ("if False:\n    TrainingArguments(per_device_train_batch_size=2)", 8),
        (f"{MAKE}make(7)", 7),
        (f"{MAKE}make(7)\nmake(9)", None),
        (f"{MAKE}TrainingArguments()", 8),
        ("S = 5\nif pick():\n    S = 6\nTrainingArguments(per_device_train_batch_size=S)", None),
        ("words = dict(per_device_train_batch_size=4)\nTrainingArguments(**words)", 4),
    ],
)
def test_arguments_made_by_a_call(folder: Path, body: str, expected: int | None) -> None:
    """Literals, names bound once, parameters of one call; what depends on the run is unknown."""
    assert read(folder, TRAINER + body).value(Setting.MICRO_BATCH) == expected


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("from peft import LoraConfig\nLoraConfig(r=4)", (), "lora"),
        (
            "from peft import LoraConfig\nif args.use_lora:\n    LoraConfig()",
            ("--use_lora",),
            "lora",
        ),
        (
            "from peft import LoraConfig\nif args.adapt == 'no':\n    LoraConfig()",
            ("--adapt", "x"),
            "none",
        ),
        ("from peft import LoraConfig\nif pick():\n    LoraConfig()", (), None),
        ("from peft import BOFTConfig\nBOFTConfig()", ("--use_boft",), None),
        ("from peft import get_peft_model\nget_peft_model(model, pick())", (), None),
    ],
)
def test_adapters(
    folder: Path, body: str, arguments: tuple[str, ...], expected: str | None
) -> None:
    """Made for certain, never, or unknown: another method than LoRA never counts as none."""
    workload = read(folder, TRAINER + body, *arguments)
    assert workload.value(Fact.ADAPTER) == expected
    assert bool(workload.value(Fact.ADAPTER_HINTED)) is (expected is None)


@pytest.mark.parametrize("method", ["--use_badam", "--lisa_activated_layers=2"])
def test_a_part_of_a_full_training(folder: Path, method: str) -> None:
    """Where a method trains some layers at a time, all of them don't count as trained."""
    line = ("--finetuning_type", "full")
    assert read(folder, TRAINER, *line).value(Fact.ADAPTER) == "none"
    workload = read(folder, TRAINER, *line, method)
    assert read_values(workload, Fact.ADAPTER, Fact.ADAPTER_HINTED) == [None, True]


def test_how_a_model_is_loaded(folder: Path) -> None:
    """Type, attention and bits, behind conditions on the arguments."""
    source = (
        "import argparse, torch, transformers\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--half', type=bool, default=True)\n"
        "config = parser.parse_args()\n"
        "words = {'attn_implementation': 'sdpa'}\n"
        "transformers.AutoModel.from_pretrained(\n"
        "    'x', torch_dtype=torch.bfloat16 if config.half else None, **words,\n"
        "    quantization_config=BitsAndBytesConfig(load_in_4bit=True) if config.half else None)\n"
    )
    names = (Fact.LOADED_PRECISION, Fact.ATTENTION, Fact.QUANTIZATION_BITS)
    assert read_values(read(folder, source), *names) == ["bf16", "sdpa", 4]
    assert read_values(read(folder, source, "--half", "false"), *names) == [None, "sdpa", None]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("model.gradient_checkpointing_enable()", "non_reentrant"),
        ("model.activation_checkpointing_enable()", "non_reentrant"),
        ("model.activation_checkpointing_enable({'use_reentrant': True})", "reentrant"),
        (
            "model.gradient_checkpointing_enable({'use_reentrant': True})",
            "reentrant",
        ),
        ("model.vision.gradient_checkpointing = True", None),
        ("x = checkpoint(block, x, use_reentrant=False)", "non_reentrant"),
        ("if pick():\n    model.gradient_checkpointing_enable()", None),
        ("def later():\n    model.gradient_checkpointing_enable()", "off"),
        ("def maybe():\n    model.gradient_checkpointing_enable()\nif False:\n    maybe()", "off"),
    ],
)
def test_checkpointing_in_the_source(folder: Path, body: str, expected: str | None) -> None:
    """Where the source itself asks for it, the Trainer's default of off says nothing."""
    workload = read(folder, f"{TRAINER}TrainingArguments()\n{body}\n")
    assert workload.value(Setting.GRADIENT_CHECKPOINTING) == expected


def test_what_the_source_changes(folder: Path) -> None:
    """A flag that it contradicts isn't known; one that it repeats is."""
    source = (
        "import argparse\nfrom torch.utils.data import DataLoader\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--micro_batch_size', type=int, default=2)\n"
        "args = parser.parse_args()\n"
    )
    changed = f"{source}args.micro_batch_size = args.micro_batch_size // 2\n"
    assert read(folder, source).value(Setting.MICRO_BATCH) == 2
    assert read(folder, changed).value(Setting.MICRO_BATCH) == 1
    assert read(folder, changed, "--micro_batch_size", "8").value(Setting.MICRO_BATCH) is None
    same = f"{source}args.micro_batch_size = args.micro_batch_size\n"
    assert read(folder, same, "--micro_batch_size", "8").value(Setting.MICRO_BATCH) == 8


def test_a_loop_decides_by_itself(folder: Path) -> None:
    """An accumulation that isn't the configuration's is refused by the Trainer alone."""
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
    """Flags whose names say that they matter, unless they are off or were read."""
    source = "from transformers import HfArgumentParser\n"
    assert read(folder, source, *line.split()).not_understood == expected


def test_a_parser_of_other_arguments(folder: Path) -> None:
    """Where all its classes are found and none is the Trainer's, nothing is its default."""
    source = (
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n"
        "@dataclass\nclass Own:\n    micro_batch_size: int = 2\n"
        "CLASSES = (Own,)\nHfArgumentParser(CLASSES)\n"
    )
    settings = (Setting.MICRO_BATCH, Setting.ACCUMULATION, Setting.GRADIENT_CHECKPOINTING)
    assert read_values(read(folder, source), *settings) == [2, None, None]


def test_files_above_the_script(folder: Path) -> None:
    """Modules of the project that the script lies in are its own, libraries beside it aren't."""
    scripts = folder / "scripts"
    scripts.mkdir()
    (folder / "setup.py").touch()
    (folder / "options.py").write_text(
        "def add(parser):\n    parser.add_argument('--micro_batch_size', default=3, type=int)\n"
    )
    (scripts / "run.py").write_text(
        "import argparse\nimport options\noptions.add(argparse.ArgumentParser())\n"
    )
    workload = read_workload(LaunchRequest("scripts/run.py", False, (), 2, ""))
    assert workload.known[Setting.MICRO_BATCH].source == "options.py:2: micro_batch_size"


def test_a_class_that_shares_its_name_with_its_base(folder: Path) -> None:
    """And classes that inherit from each other: neither is followed for ever."""
    source = (
        "from transformers import HfArgumentParser, TrainingArguments\n"
        "class TrainingArguments(TrainingArguments):\n    bf16: bool = True\n"
        "class A(B):\n    x: int = 1\nclass B(A):\n    y: int = 1\n"
        "HfArgumentParser((TrainingArguments, A))\n"
        "def f():\n    return g()\ndef g():\n    return f()\n"
        "a = b\nb = a\nmodel.from_pretrained(torch_dtype=f(), attn_implementation=a)\n"
    )
    assert read(folder, source).value(Setting.PRECISION) == "bf16"


OWN = """
from dataclasses import dataclass
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import HfArgumentParser

@dataclass
class TrainingArguments:
    train_batch_size: int = 2
    gradient_accumulation_steps: int = 16
    use_lora: bool = False
    quantized: bool = False
    load_in_4bit: bool = True

    def __post_init__(self):
        if self.quantized:
            self.use_lora = True

args = HfArgumentParser(TrainingArguments).parse_args()
accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
train_loader = DataLoader(train_set, batch_size=args.train_batch_size)
"""
"""Arguments of a loop of its own, in a class that has the name of transformers'."""
CALLED = """
import os
import fire
from typing import List
from peft import LoraConfig, get_peft_model
from transformers import Trainer, TrainingArguments

def train(
    batch: int = 128, micro: int = 4, epochs: int = 3, rank: int = 8,
    names: List[str] = ["q_proj"],
):
    steps = batch // micro
    world = int(os.environ.get("WORLD_SIZE", 1))
    if world != 1:
        steps = steps // world
    model = get_peft_model(base, LoraConfig(r=rank, target_modules=names))
    args = TrainingArguments(
        per_device_train_batch_size=micro, gradient_accumulation_steps=steps, deepspeed=None
    )
    trainer = Trainer(model=model, args=args)
    trainer.train()

fire.Fire(train)
"""
"""A function whose parameters are the options, with a method of its own name called in it."""


def test_a_class_of_the_librarys_name(folder: Path) -> None:
    """It isn't the library's: what the Trainer defaults to says nothing of it."""
    read_ = read(folder, OWN, "--train_batch_size", "12")
    names = (Setting.MICRO_BATCH, Setting.ACCUMULATION, Setting.PRECISION, Fact.ENGINE)
    assert read_values(read_, *names) == [12, 16, None, None]


def test_the_beginning_of_an_options_name(folder: Path) -> None:
    """It is taken for the option that it fits alone, as argparse does."""
    read_ = read(folder, OWN, "--gradient_acc", "3")
    assert read_.known[Setting.ACCUMULATION] == Known(3, Origin.FLAG, "--gradient_acc")
    assert read(folder, OWN, "--t", "3").value(Setting.MICRO_BATCH) == 3


def test_what_a_class_sets_itself(folder: Path) -> None:
    """In `__post_init__`, where `self` stands for the arguments."""
    assert read(folder, OWN).value(Fact.ADAPTER) == "none"
    assert read(folder, OWN, "--quantized").value(Fact.ADAPTER) == "lora"


def test_bits_that_no_call_is_given(folder: Path) -> None:
    """The default of an option for them says nothing; the user's flag does."""
    assert read(folder, OWN).value(Fact.QUANTIZATION_BITS) is None
    assert read(folder, OWN, "--load_in_4bit").value(Fact.QUANTIZATION_BITS) == 4


def test_a_function_whose_parameters_are_options(folder: Path) -> None:
    """With their defaults, or as they are given; the worker count comes from the environment."""
    names = (Setting.MICRO_BATCH, Setting.ACCUMULATION, Fact.LORA_RANK, Fact.LORA_TARGETS)
    assert read_values(read(folder, CALLED), *names) == [4, 16, 8, "q_proj"]
    given = ("--micro", "8", "--names", "[q_proj, k_proj]")
    read_ = read(folder, CALLED, *given)
    assert read_values(read_, *names) == [8, 8, 8, "q_proj,k_proj"]
    assert read_.known[Setting.MICRO_BATCH] == Known(8, Origin.SCRIPT, "--micro")
    assert read_.value(Fact.ENGINE) == "ddp"


INHERITED = """
from dataclasses import dataclass
from peft import LoraConfig, get_peft_model, PeftModel
from transformers import HfArgumentParser, Trainer, TrainingArguments

@dataclass
class ModelArguments:
    use_adapters: bool = False
    saved: str = ""

class Base:
    def __init__(self, args):
        if args.use_adapters:
            self.model = get_peft_model(base, LoraConfig(r=4))
        if args.saved:
            self.model = PeftModel.from_pretrained(base, args.saved)

class Wrapped(Base):
    def __init__(self, args):
        super().__init__(args)

    def gradient_checkpointing_enable(self):
        self.model.gradient_checkpointing_enable()

class Unused(Base):
    def never(self):
        super().__init__(None)

parser = HfArgumentParser((ModelArguments, TrainingArguments))
model_args, training_args = parser.parse_args_into_dataclasses()
Trainer(Wrapped(model_args), training_args).train()
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [("", "none"), ("--use_adapters", "lora"), ("--saved adapters", None)],
)
def test_adapters_made_with_an_object(folder: Path, line: str, expected: str | None) -> None:
    """Python calls `__init__`; adapters that are loaded may be of any kind."""
    read_ = read(folder, INHERITED, *line.split())
    assert read_values(read_, Fact.ADAPTER, Setting.GRADIENT_CHECKPOINTING) == [expected, "off"]


def test_several_words_of_an_undeclared_flag(folder: Path) -> None:
    """They are a list, also where a call is given them."""
    source = (
        "from unknown import parse\nfrom peft import LoraConfig, get_peft_model\n"
        "args = parse()\n"
        "model = get_peft_model(base, LoraConfig(target_modules=args.names))\n"
    )
    read_ = read(folder, source, "--names", "q_proj", "k_proj")
    assert read_.value(Fact.LORA_TARGETS) == "q_proj,k_proj"


def test_a_tower_that_is_loaded_on_its_own(folder: Path) -> None:
    """How it is loaded says nothing of the language model."""
    source = (
        "import torch\nfrom transformers import AutoModelForCausalLM, SiglipVisionModel\n"
        "tower = SiglipVisionModel.from_pretrained('tower', attn_implementation='eager')\n"
        "model = AutoModelForCausalLM.from_pretrained('model', torch_dtype=torch.float16)\n"
    )
    names = (Fact.ATTENTION, Fact.LOADED_PRECISION)
    assert read_values(read(folder, source), *names) == [None, "fp16"]


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
    """Where the script does, no size that is stated tells the global batch."""
    monkeypatch.chdir(tmp_path)
    assert read(tmp_path, line).makes_batches is expected
