"""Contradicting settings get a line, and their clean twins don't."""

from __future__ import annotations

import ast
from typing import Any

from safe_launch.workload.contradictions import (
    Stated,
    of_precision,
    of_trainer,
    of_variables,
    of_workers,
)
from safe_launch.workload.script.losses import divided_before
from support.tables import table

ADAM = {"optimizer": {"type": "AdamW", "params": {}}}
FILLED = {"optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "weight_decay": 0.1}}}
CLIPPED = {"gradient_clipping": 0.5}


@table(
    ("name", "value", "config", "clean"),
    [
        ("learning_rate", 3e-4, ADAM, FILLED),
        ("learning_rate", 3e-4, ADAM, {**ADAM, "scheduler": {"type": "WarmupLR"}}),
        ("learning_rate", 3e-4, ADAM, {"optimizer": {"type": "Muon", "params": {}}}),
        ("weight_decay", 0.1, ADAM, FILLED),
        ("weight_decay", 0.1, ADAM, {}),
        ("optim", "adafactor", ADAM, {}),
        ("optim", "adafactor", ADAM, {"optimizer": {"type": "Own", "params": {}}}),
        ("lr_scheduler_type", "cosine", {"scheduler": {"type": "WarmupLR"}}, {}),
        (
            *("lr_scheduler_type", "cosine", {"scheduler": {"type": "WarmupDecayLR"}}),
            {"scheduler": {"type": "WarmupCosineLR"}},
        ),
        ("max_grad_norm", 0.5, {}, CLIPPED),
        ("bf16", True, {"bf16": {}}, {"bf16": {"enabled": True}}),
    ],
)
def test_trainer_against_deepspeed(
    name: str, value: object, config: dict[str, Any], clean: dict[str, Any]
) -> None:
    """The line has the flag, the value in force, and the reason."""
    stated = {name: Stated(value, f"--{name}")}
    (told,) = of_trainer(stated, config, "zero.json", 1.0)
    assert told.startswith(f"--{name} {value} has no effect: zero.json")
    assert "in force" in told
    assert not list(of_trainer(stated, clean, "zero.json", 1.0))


def test_equal_defaults_are_silent() -> None:
    """A flag that differs only from DeepSpeed's default isn't a contradiction."""
    rate = {"learning_rate": Stated(0.001, "--learning_rate")}
    assert not list(of_trainer(rate, ADAM, "zero.json", 1.0))
    norm = {"max_grad_norm": Stated(None, "--max_grad_norm")}
    assert not list(of_trainer(norm, {}, "zero.json", 0.0))
    assert len(list(of_trainer(norm, {}, "zero.json", 1.0))) == 1


BF16 = {"bf16": {"enabled": True}, "fp16": {"enabled": False}}
OFF = {"bf16": {"enabled": False}, "fp16": {"enabled": False}}


@table(
    ("own", "around", "config", "count"),
    [
        ("bf16", "fp16", {}, 1),
        ("bf16", "bf16", {}, 0),
        ("bf16", "no", {}, 0),  # `accelerate launch` sets it by itself
        (None, "bf16", OFF, 1),
        (None, "bf16", BF16, 0),
        ("bf16", None, OFF, 1),
        ("no", None, BF16, 1),
        ("no", None, OFF, 0),
        (None, "no", BF16, 0),
        (None, None, BF16, 0),
    ],
)
def test_precision_of_an_accelerator(
    own: str | None, around: str | None, config: dict[str, Any], count: int
) -> None:
    """An argument overrides the environment, DeepSpeed's configuration both."""
    given = None if own is None else Stated(own, "Accelerator's mixed_precision", "a.py:1")
    variable = None if around is None else Stated(around, "$ACCELERATE_MIXED_PRECISION")
    assert len(list(of_precision(given, variable, config))) == count


def test_accelerates_file() -> None:
    """Its variables and workers, if another source overrides them."""
    own = {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_CPU": "true"}
    set_already = {"ACCELERATE_MIXED_PRECISION": "fp16", "ACCELERATE_USE_CPU": "TRUE"}
    (told,) = of_variables(own, set_already, "a.yaml")
    assert "a.yaml: ACCELERATE_MIXED_PRECISION bf16" in told
    assert "$ACCELERATE_MIXED_PRECISION fp16 is in force" in told
    assert not list(of_variables(own, own, "a.yaml"))
    assert not list(
        of_variables(
            {"ACCELERATE_GRADIENT_CLIPPING": "1"}, {"ACCELERATE_GRADIENT_CLIPPING": "1.0"}, ""
        )
    )
    assert not list(of_variables({**own, "ACCELERATE_MIXED_PRECISION": "no"}, set_already, ""))
    (told,) = of_workers(4, "a.yaml: num_processes", 2, "--nproc 2")
    assert "num_processes 4 has no effect" in told
    assert "(--nproc 2) is in force" in told
    assert not list(of_workers(2, "a.yaml: num_processes", 2, "--nproc 2"))
    assert not list(of_workers(None, "", 2, "--nproc 2"))


@table(
    ("division", "line"),
    [
        ("loss = loss / args.gradient_accumulation_steps", 3),
        ("loss /= accum_steps", 3),
        ("loss = step(batch) / engine.gradient_accumulation_steps()", 3),
        ("loss = loss / len(batch)", None),
        ("other = loss / accum_steps", None),
        ("loss = loss * accum_steps", None),
    ],
)
def test_divisions_before_a_backward_pass(division: str, line: int | None) -> None:
    """The loss is divided by a name for accumulation."""
    source = f"def train(loss):\n    begin()\n    {division}\n    engine.backward(loss)\n"
    assert divided_before(ast.parse(source), 4) == line
    apart = f"def other(loss):\n    {division}\n\ndef train(loss):\n    engine.backward(loss)\n"
    assert divided_before(ast.parse(apart), 5) is None
