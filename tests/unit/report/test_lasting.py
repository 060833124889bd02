"""The advice of a corrected run on making its corrections permanent."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.core.choices import Framework
from safe_launch.core.constraint import Cause, CauseKind, Constraint
from safe_launch.core.settings import Setting, Value
from safe_launch.planning.plan import Change, Plan
from safe_launch.planning.search import as_asked
from safe_launch.report.lasting import edits
from support.worlds import HARDWARE, REQUEST, ZERO2, world

CAUSE = Constraint((), Cause(CauseKind.ATTEMPT, "1", "it failed"))
TRAINER, OWN = Framework.TRANSFORMERS, Framework.NONE
ARGUMENTS = "the script's arguments"
CHECKPOINTING = "--gradient_checkpointing true --gradient_checkpointing_kwargs"
NEWER = CHECKPOINTING.replace("gradient", "activation")
SET = (
    "{script}:4: gradient_checkpointing=True, "
    "gradient_checkpointing_kwargs={{'use_reentrant': False}}"
)
LOOP = """\
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


def train(model, x):
    fully_shard(model)
    model = DDP(model)
    return checkpoint(model, x, use_reentrant=True)
"""


def plan_with(
    script: Path, framework: Framework, setting: Setting, new: Value, source: str
) -> Plan:
    """A plan with one change."""
    request = replace(REQUEST, script=str(script))
    plan = as_asked(request, world(ZERO2, framework), HARDWARE)
    return replace(plan, changes=(Change(setting, "old", source, new, CAUSE),))


@pytest.mark.parametrize(
    ("framework", "setting", "new", "source", "expected"),
    [
        (TRAINER, "micro_batch", 2, "a flag", f"{ARGUMENTS}: --per_device_train_batch_size 2"),
        (TRAINER, "accumulation", 8, "a flag", f"{ARGUMENTS}: --gradient_accumulation_steps 8"),
        (
            *(TRAINER, "gradient_checkpointing", "non_reentrant", "a flag"),
            f"{ARGUMENTS}: {CHECKPOINTING} '{{\"use_reentrant\": false}}'",
        ),
        (
            *(
                TRAINER,
                "gradient_checkpointing",
                "non_reentrant",
                "--activation_checkpointing_kwargs",
            ),
            f"{ARGUMENTS}: {NEWER} '{{\"use_reentrant\": false}}'",
        ),
        (
            *(TRAINER, "gradient_checkpointing", "off", "a flag"),
            f"{ARGUMENTS}: --gradient_checkpointing false",
        ),
        (
            *(TRAINER, "find_unused_parameters", True, "a flag"),
            f"{ARGUMENTS}: --ddp_find_unused_parameters true",
        ),
        (TRAINER, "precision", "bf16", "a flag", f"{ARGUMENTS}: --bf16 true"),
        (TRAINER, "zero_stage", 2, "z.json: zero_optimization.stage", "z.json: zero_optimiz"),
        (TRAINER, "micro_batch", 2, "--per_device_train_batch_size", f"{ARGUMENTS}: --per_dev"),
        (TRAINER, "micro_batch", 2, "--bs", f"{ARGUMENTS}: --bs 2"),
        (
            *(TRAINER, "gradient_checkpointing", "non_reentrant", "--gc"),
            f"{ARGUMENTS}: {CHECKPOINTING} '{{\"use_reentrant\": false}}'",
        ),
        (
            TRAINER,
            "zero_stage",
            2,
            "--set",
            "DeepSpeed's configuration: zero_optimization.stage: 2",
        ),
        (TRAINER, "micro_batch", 2, "a.yaml: per_device_train_batch_size", "a.yaml: per_device"),
        (OWN, "micro_batch", 2, "seen", "DeepSpeed's configuration: train_micro_batch_size_per"),
        (OWN, "reshard_after_forward", True, "$FSDP_RESHARD", "the environment: FSDP_RESHARD=true"),
        (TRAINER, "reshard_after_forward", True, "--fsdp", "FSDP's configuration: reshard_after"),
        (OWN, "offload", "optimizer", "z.json: zero_optimization", None),
        (OWN, "gradient_checkpointing", "reentrant", "seen", None),
    ],
)
def test_where_it_is_written(
    framework: Framework,
    setting: str,
    new: Value,
    source: str,
    expected: str | None,
    tmp_path: Path,
) -> None:
    """On the command line or in the file with the old value; no place is invented."""
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    found = edits(plan_with(script, framework, Setting(setting), new, source))
    assert [str(edit).startswith(expected or "?") for edit in found] == [True] * (
        expected is not None
    )


@pytest.mark.parametrize(
    ("setting", "new", "expected"),
    [
        ("find_unused_parameters", True, "8: DDP(..., find_unused_parameters=True)"),
        ("static_graph", True, "8: DDP(..., static_graph=True)"),
        ("reshard_after_forward", True, "7: fully_shard(..., reshard_after_forward=True)"),
        ("gradient_checkpointing", "non_reentrant", "9: checkpoint(..., use_reentrant=False)"),
    ],
)
@pytest.mark.parametrize("framework", [OWN, TRAINER])
def test_lines_of_the_users_own(
    framework: Framework, setting: str, new: Value, expected: str, tmp_path: Path
) -> None:
    """In the script and its imported files, also under the Trainer."""
    script = tmp_path / "train.py"
    script.write_text("from loop import train\n")
    loop = tmp_path / "loop.py"
    loop.write_text(LOOP)
    found = edits(plan_with(script, framework, Setting(setting), new, "seen in attempt 1"))
    assert [str(edit) for edit in found] == [f"{loop}:{expected}"]


@pytest.mark.parametrize(
    ("setting", "new", "source", "expected"),
    [
        ("micro_batch", 2, "seen in attempt 1", "{script}:3: per_device_train_batch_size=2"),
        (
            *("accumulation", 4, "transformers' default of gradient_accumulation_steps"),
            "{script}:2: TrainingArguments(..., gradient_accumulation_steps=4)",
        ),
        (
            *("gradient_checkpointing", "off", "seen in attempt 1"),
            "{script}:2: TrainingArguments(..., gradient_checkpointing=False)",
        ),
        ("gradient_checkpointing", "non_reentrant", "seen in attempt 1", SET),
        ("gradient_checkpointing", "non_reentrant", "--gc", SET),
    ],
)
def test_arguments_that_the_script_makes_itself(
    setting: str, new: Value, source: str, expected: str, tmp_path: Path
) -> None:
    """Such a script has no flags of these names, so its line is the place."""
    script = tmp_path / "train.py"
    script.write_text(
        "from transformers import TrainingArguments\nargs = TrainingArguments(\n"
        "    per_device_train_batch_size=8,\n    gradient_checkpointing_kwargs={},\n)\n"
    )
    found = edits(plan_with(script, TRAINER, Setting(setting), new, source))
    assert [str(edit) for edit in found] == [expected.format(script=script)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("args.gradient_checkpointing_kwargs = {}", "gradient_checkpointing_kwargs={}"),
        ("args.a, args.gradient_checkpointing_kwargs = 1, {}", "gradient_checkpointing_kwargs={}"),
        ("args.gradient_checkpointing = True", "gradient_checkpointing=True, ...{}"),
        ("words = {'gradient_checkpointing': True}", "gradient_checkpointing=True, ...{}"),
        ("args = replace(args, gradient_checkpointing=True)", "gradient_checkpointing=True, ...{}"),
    ],
)
def test_what_is_set_after_the_call(line: str, expected: str, tmp_path: Path) -> None:
    """The later assignment decides, not the call or the command line."""
    script = tmp_path / "train.py"
    head = "from transformers import HfArgumentParser, TrainingArguments\nTrainingArguments()\n"
    script.write_text(f"{head}{line}\n")
    change = Setting.GRADIENT_CHECKPOINTING, "non_reentrant", "seen in attempt 1"
    (edit,) = edits(plan_with(script, TRAINER, *change))
    told = expected.replace("...", "gradient_checkpointing_kwargs=")
    assert str(edit) == f"{script}:3: {told.format({'use_reentrant': False})}"


@pytest.mark.parametrize(
    ("imported", "call", "is_torchs"),
    [
        ("import torch", "torch.utils.checkpoint.checkpoint", True),
        ("import torch.utils.checkpoint as cp", "cp.checkpoint", True),
        ("from torch.utils import checkpoint", "checkpoint.checkpoint_sequential", True),
        ("from torch.utils.checkpoint import checkpoint as again", "again", True),
        ("from saving import checkpoint", "checkpoint", False),
        ("import torch", "checkpoint", False),
        ("import torch", "self.checkpoint", False),
        ("import torch", "torch.save", False),
    ],
)
def test_only_torchs_own_functions(
    imported: str, call: str, is_torchs: bool, tmp_path: Path
) -> None:
    """A user's function may be called `checkpoint`, too."""
    script = tmp_path / "train.py"
    script.write_text(f"{imported}\n\n\ndef step(self, model):\n    return {call}(model)\n")
    change = Setting.GRADIENT_CHECKPOINTING, "non_reentrant", "seen in attempt 1"
    found = edits(plan_with(script, OWN, *change))
    expected = [f"{script}:5: {call}(..., use_reentrant=False)"]
    assert [str(edit) for edit in found] == expected * is_torchs


def test_two_calls_in_a_line_are_one_edit(tmp_path: Path) -> None:
    """The text can't say which of them is meant: it stands for both."""
    script = tmp_path / "train.py"
    script.write_text(
        "from torch.utils.checkpoint import checkpoint\n\n\n"
        "def step(a, x):\n    return checkpoint(a, x) + checkpoint(a, -x)\n"
    )
    change = Setting.GRADIENT_CHECKPOINTING, "non_reentrant", "seen in attempt 1"
    found = edits(plan_with(script, OWN, *change))
    assert [str(edit) for edit in found] == [f"{script}:5: checkpoint(..., use_reentrant=False)"]


CALLS = """\
from dataclasses import replace
from transformers import TrainingArguments as Arguments
import wandb


class Own(Arguments):
    pass


wandb.init(per_device_train_batch_size=8)
args = Arguments(per_device_train_batch_size=8)
eval_args = Own(
    per_device_train_batch_size=8,
)
made = wandb.made(
    out="out", per_device_train_batch_size=8)
"""


@pytest.mark.parametrize(
    ("source", "last", "lines"),
    [
        ("seen in attempt 1", "", [11, 13]),
        ("TrainingArguments, {script}:11", "", [11]),
        ("TrainingArguments, {script}:12, in a later training", "", [13]),
        ("TrainingArguments, {script}:15", "", [16]),
        ("TrainingArguments, {script}:99", "", [11, 13]),
        ("TrainingArguments, other.py:11", "", [11, 13]),
        (
            *("TrainingArguments, {script}:11", "b = replace(args, per_device_train_batch_size=1)"),
            [11, 17],
        ),
    ],
)
def test_no_keyword_of_an_unrelated_call(
    source: str, last: str, lines: list[int], tmp_path: Path
) -> None:
    """The call that asked, or if unknown, calls that make the Trainer's arguments."""
    script = tmp_path / "train.py"
    script.write_text(f"{CALLS}{last}\n")
    change = Setting.MICRO_BATCH, 2, source.format(script=script)
    found = edits(plan_with(script, TRAINER, *change))
    assert [edit.line for edit in found] == lines
    assert all("per_device_train_batch_size=2" in edit.text for edit in found)


def test_a_call_that_asked_and_sets_nothing_yet(tmp_path: Path) -> None:
    """The argument is added to this call alone."""
    script = tmp_path / "train.py"
    script.write_text(
        "from transformers import TrainingArguments\nlog(gradient_accumulation_steps=3)\n"
        "args = TrainingArguments()\nother = TrainingArguments()\n"
    )
    change = Setting.ACCUMULATION, 2, f"TrainingArguments, {script}:4"
    (edit,) = edits(plan_with(script, TRAINER, *change))
    assert str(edit) == f"{script}:4: TrainingArguments(..., gradient_accumulation_steps=2)"


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("TrainingArguments", "5: gradient_checkpointing=False"),
        ("Module", "6: TrainingArguments(..., gradient_checkpointing=False)"),
    ],
)
def test_what_an_object_sets_in_itself(base: str, expected: str, tmp_path: Path) -> None:
    """The Trainer's arguments count; a model's switch of the same name doesn't."""
    script = tmp_path / "train.py"
    script.write_text(
        "from torch.nn import Module\nfrom transformers import TrainingArguments\n"
        f"class Own({base}):\n    def set(self):\n        self.gradient_checkpointing = True\n"
        "TrainingArguments(output_dir='out')\n"
    )
    change = Setting.GRADIENT_CHECKPOINTING, "off", "seen in attempt 1"
    (edit,) = edits(plan_with(script, TRAINER, *change))
    assert str(edit) == f"{script}:{expected}"


DICTS = """\
import wandb
from transformers import HfArgumentParser, Trainer, TrainingArguments


def arguments(settings):
    return TrainingArguments("out", **settings)


"""


@pytest.mark.parametrize(
    ("line", "is_it"),
    [
        ("wandb.init(config={'per_device_train_batch_size': 8})", False),
        ("wandb.init(config=dict(per_device_train_batch_size=8))", False),
        ("run.log({'settings': {'per_device_train_batch_size': 8}})", False),
        ("print(json.dumps({'per_device_train_batch_size': 8}))", False),
        ("settings = {'per_device_train_batch_size': 8}", True),
        ("settings = dict(per_device_train_batch_size=8)", True),
        ("settings.update({'per_device_train_batch_size': 8})", True),
        ("arguments({'per_device_train_batch_size': 8})", True),
        ("(args,) = HfArgumentParser(Own).parse_dict({'per_device_train_batch_size': 8})", True),
        ("Trainer(m, TrainingArguments(**{'per_device_train_batch_size': 8}))", True),
        ("Trainer(m, TrainingArguments(**dict(per_device_train_batch_size=8)))", True),
    ],
)
def test_no_dict_of_an_unrelated_call(line: str, is_it: bool, tmp_path: Path) -> None:
    """A package's function keeps its dict unless it builds such arguments."""
    script = tmp_path / "train.py"
    script.write_text(f"{DICTS}{line}\n")
    change = Setting.MICRO_BATCH, 2, "seen in attempt 1"
    found = edits(plan_with(script, TRAINER, *change))
    assert (9 in [edit.line for edit in found if "TrainingArguments(" not in edit.text]) is is_it


def test_a_file_of_many_calls_is_read_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It isn't reread for each call: a framework on PYTHONPATH is large."""
    script = tmp_path / "train.py"
    script.write_text("import deepspeed\n\n" + "deepspeed.log(1)\n" * 200)
    walks = 0

    def counted(tree: ast.AST) -> Iterator[ast.AST]:
        nonlocal walks
        walks += isinstance(tree, ast.Module)
        return walk(tree)

    walk = ast.walk
    monkeypatch.setattr(ast, "walk", counted)
    plan = plan_with(script, OWN, Setting.ZERO_STAGE, 1, "deepspeed.initialize")
    assert list(map(str, edits(plan))) == ["DeepSpeed's configuration: zero_optimization.stage: 1"]
    assert 0 < walks < 20
