"""Models that checkpoint their blocks themselves are corrected at that call only.

Also corrections that only lead to another failure.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.stacks import CURRENT, EXAMPLES, OLDER, SCENARIOS, Stack
from support.trainings import TO_OTHER, TRAINER, attempts, launched, reference

SCRIPT = SCENARIOS / "hf_own_checkpoint.py"
ZERO3 = SCENARIOS / "zero3.json"


def arguments(folder: Path, form: str, stage: int) -> list[str]:
    """A training of a model's form at a ZeRO stage; 0 is plain DDP."""
    own = [*TRAINER, "--per_device_train_batch_size=4", f"--form={form}"]
    if stage == 0:
        return own
    config = json.loads((ZERO3 if stage == 3 else EXAMPLES / "zero2.json").read_text())
    config["zero_optimization"]["stage"] = stage
    (folder / "config.json").write_text(json.dumps(config))
    return [*own, "--deepspeed=config.json"]


@pytest.mark.parametrize(
    ("stack", "form", "stage"),
    [
        *((CURRENT, "plain", stage) for stage in range(4)),
        *((CURRENT, form, stage) for form in ("pretrained", "enabled") for stage in (0, 3)),
        *((OLDER, form, 2) for form in ("plain", "pretrained", "enabled")),
    ],
    ids=lambda one: one.name if isinstance(one, Stack) else str(one),
)
def test_is_corrected_where_it_is_called(
    stack: Stack, form: str, stage: int, tmp_path: Path
) -> None:
    """The Trainer's own switch stays off: a model may not support it."""
    single = (*TRAINER, "--per_device_train_batch_size=8", f"--form={form}", "--whole=True")
    expected = reference(stack, SCRIPT, *single)
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", SCRIPT)
    ours, told = launched(stack, tmp_path, *run, *arguments(tmp_path, form, stage))
    assert ours == pytest.approx(expected, rel=1e-4)
    assert attempts(told) == 1
    # Stage 1 tolerates a gradient that is complete twice.
    assert (TO_OTHER in told) == (stage != 1)


def test_a_correction_that_fails_is_taken_back(tmp_path: Path) -> None:
    """The blocks fail under the first remedy: it is suspected, and the next one trains."""
    single = (*TRAINER, "--per_device_train_batch_size=8", "--form=plain", "--whole=True")
    expected = reference(CURRENT, SCRIPT, *single)
    own = [*arguments(tmp_path, "plain", 2), "--picky=7"]
    run = ("safe-launch", "--nproc=2", "--ask=off", "--log-dir=runs", SCRIPT)
    ours, told = launched(CURRENT, tmp_path, *run, *own)
    assert ours == pytest.approx(expected, rel=1e-4)
    plain = " ".join(told.replace("[safe-launch]", "").split())
    assert "suspect the correction of attempt 1" in plain
    assert "zero_stage: 2 -> 1" in plain
    assert attempts(told) == 3


def test_the_first_failure_stands_where_no_remedy_is_left(tmp_path: Path) -> None:
    """Verdict and code are the first failure's, not the correction's, reported once."""
    own = [*arguments(tmp_path, "plain", 2), "--picky=7"]
    run = ("safe-launch", "--nproc=2", "--fix=once", "--ask=off", "--log-dir=runs", SCRIPT)
    done = CURRENT.run(*run, *own, cwd=tmp_path)
    assert done.returncode == 1
    assert "not relaunched: --fix once allows 1" in done.stderr
    assert "the exit code is that of attempt 1" in done.stderr
    assert done.stderr.count("what     AssertionError: The parameter") == 1
    (outcome,) = (tmp_path / "runs").glob("*/outcome.json")
    assert json.loads(outcome.read_text()) == {"exit_code": 1, "attempts": 2}


@pytest.mark.parametrize("form", ["plain", "pretrained"])
def test_nothing_is_switched_on_that_a_model_lacks(form: str, tmp_path: Path) -> None:
    """The plan's switch stays off, with a warning, if it would end the Trainer."""
    single = (*TRAINER, "--per_device_train_batch_size=8", f"--form={form}", "--whole=True")
    expected = reference(CURRENT, SCRIPT, *single)
    own = [*arguments(tmp_path, form, 0), "--whole=True", f"--loss_file={tmp_path / 'losses.json'}"]
    run = ("safe-launch", "--nproc=2", "--set=gradient_checkpointing=non_reentrant", SCRIPT)
    done = CURRENT.run(*run, *own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "losses.json").read_text()) == pytest.approx(expected, rel=1e-4)
    assert "has no gradient checkpointing to switch on: it stays off" in done.stderr
    assert attempts(done.stderr) <= 1


RENAMED = """\
from hf_lora import ScriptArguments, train
from transformers import HfArgumentParser, TrainingArguments

parser = HfArgumentParser((ScriptArguments, TrainingArguments))
script, training = parser.parse_args_into_dataclasses()
training.gradient_checkpointing_kwargs = {"use_reentrant": True}
train(script, training)
"""


def test_what_the_source_sets_without_effect_isnt_corrected(stack: Stack, tmp_path: Path) -> None:
    """Transformers 5.24 ignores the script's name for it, 4.57 doesn't: workers decide."""
    shutil.copy(SCENARIOS / "hf_lora.py", tmp_path)
    (tmp_path / "train.py").write_text(RENAMED)
    own = [*TRAINER, "--use_lora=True", "--gradient_checkpointing", "--max_steps=3"]
    own += ["--ddp_find_unused_parameters=True", "--loss_file=losses.json"]
    run = ("safe-launch", "--nproc=2", "--strict", "--log-dir=runs", "train.py", *own)
    done = stack.run(*run, cwd=tmp_path)
    has_effect = stack is OLDER
    assert done.returncode == (78 if has_effect else 0), done.stderr[-4000:]
    assert (tmp_path / "losses.json").exists() != has_effect
