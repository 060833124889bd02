"""Every remedy of the resolver trains to the reference's losses, on every stack.

A second catalogue, like a cluster admin's, forbids the remedies that come first, so that the next
one in order is applied.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stacks import CURRENT, SCENARIOS, Stack
from support.trainings import OTHER, TRAINER, attempts, launched, reference

HOUSE_RULE = """\
---
id: {id}
title: not on this cluster
role: initiating
class: silent
forbids:
{forbids}
proof: [a rule of the house]
---

## What happens

Nothing; it isn't wanted here.

## What to do

Something else.
"""


def house_rules(folder: Path, *forbids: str) -> str:
    """A catalogue that forbids the given terms; returns its option."""
    catalogue = folder / "catalogue"
    catalogue.mkdir()
    lines = "\n".join(f"  - {{{terms}}}" for terms in forbids)
    text = HOUSE_RULE.format(id="house-rule", forbids=lines)
    (catalogue / "house-rule.md").write_text(text)
    return f"--catalogue={catalogue}"


@pytest.mark.parametrize(
    ("forbids", "change"),
    [
        (("gradient_checkpointing: non_reentrant",), "find_unused_parameters: True -> False"),
        (
            ("gradient_checkpointing: non_reentrant", "find_unused_parameters: false"),
            "static_graph: False -> True",
        ),
        (
            (
                "gradient_checkpointing: non_reentrant",
                "find_unused_parameters: false",
                "static_graph: true",
            ),
            "gradient_checkpointing: reentrant -> off",
        ),
    ],
    ids=["find-unused", "static-graph", "off"],
)
def test_remedies_under_ddp(forbids: tuple[str, ...], change: str, tmp_path: Path) -> None:
    """Adapters under DDP with reentrant checkpointing: remedies after non-reentrant, in order.

    test_five_failures.py has the first one. Both stacks have the same torch, and no other package
    matters here.
    """
    stack = CURRENT
    script = SCENARIOS / "ddp_lora.py"
    expected = reference(stack, script, "--single")
    options = ("--nproc=2", "--log-dir=runs", house_rules(tmp_path, *forbids))
    ours, told = launched(stack, tmp_path, "safe-launch", *options, script)
    assert change in told
    assert attempts(told) == 2
    assert ours == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("stage", "forbids", "changes"),
    [
        (2, ("gradient_checkpointing: non_reentrant",), ("zero_stage: 2 -> 1",)),
        (
            2,
            ("gradient_checkpointing: non_reentrant", "zero_stage: [0, 1]"),
            ("gradient_checkpointing: reentrant -> off",),
        ),
        (3, ("gradient_checkpointing: non_reentrant",), ("zero_stage: 3 -> 1",)),
        (
            3,
            ("zero_stage: 3, gradient_checkpointing: non_reentrant", "zero_stage: 1"),
            ("zero_stage: 3 -> 2", "gradient_checkpointing: reentrant -> non_reentrant"),
        ),
    ],
    ids=["stage-1", "off", "stage-3-to-1", "stage-3-to-2"],
)
def test_remedies_under_deepspeed(
    stack: Stack, stage: int, forbids: tuple[str, ...], changes: tuple[str, ...], tmp_path: Path
) -> None:
    """A block that runs twice under ZeRO-2 or ZeRO-3: remedies after the first choice."""
    script = SCENARIOS / "ds_block_twice.py"
    expected = reference(stack, script, "--single")
    options = ("--nproc=2", "--log-dir=runs", house_rules(tmp_path, *forbids))
    config = ("--deepspeed_config", str(SCENARIOS / f"raw{stage}.json"))
    ours, told = launched(stack, tmp_path, "safe-launch", *options, script, *config)
    for change in changes:
        assert change in told
    assert ours == pytest.approx(expected, rel=1e-4)


def test_stage_2_instead_of_reentrant_for_lora(stack: Stack, tmp_path: Path) -> None:
    """LoRA under ZeRO-3 without reentrant checkpointing: stage 2, partitioning off.

    On the current stack no setting needs to change, so the rule forbids stage 3 there.
    """
    script = SCENARIOS / "hf_lora.py"
    lora = "--use_lora=True"
    expected = reference(stack, script, *TRAINER, lora, "--per_device_train_batch_size=8")
    rules = ("gradient_checkpointing: reentrant", "zero_stage: 3")
    options = ("--nproc=2", "--log-dir=runs", house_rules(tmp_path, *rules))
    config = f"--deepspeed={SCENARIOS / 'zero3_lora.json'}"
    own = (*TRAINER, lora, "--per_device_train_batch_size=4", config, *OTHER)
    ours, told = launched(stack, tmp_path, "safe-launch", *options, script, *own)
    assert "zero_stage: 3 -> 2" in told
    assert ours == pytest.approx(expected, rel=1e-4)


def test_micro_batch_and_accumulation_change_together(stack: Stack, tmp_path: Path) -> None:
    """A smaller micro batch with more accumulation has the same global batch and losses."""
    script = SCENARIOS / "hf_lora.py"
    expected = reference(stack, script, *TRAINER, "--per_device_train_batch_size=8")
    options = ("--nproc=2", "--log-dir=runs", house_rules(tmp_path, "micro_batch: [3, 4]"))
    config = f"--deepspeed={SCENARIOS / 'zero3_lora.json'}"
    own = (*TRAINER, "--per_device_train_batch_size=4", config)
    ours, told = launched(stack, tmp_path, "safe-launch", *options, script, *own)
    assert "micro_batch: 4 -> 2" in told
    assert "accumulation: 1 -> 2" in told
    assert "global batch 8" in told
    assert ours == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        (("zero_stage=2", "offload=optimizer"), ("zero_stage: 3 -> 2", "offload: none -> ")),
        (("offload=optimizer",), ("offload: none -> optimizer",)),
        (("offload=optimizer_and_parameters",), ("offload: none -> optimizer_and_parameters",)),
    ],
    ids=["stage-2", "stage-3", "stage-3-with-parameters"],
)
def test_offload(
    stack: Stack, settings: tuple[str, ...], changes: tuple[str, ...], tmp_path: Path
) -> None:
    """Offloaded states train as before and are seen in host memory."""
    script = SCENARIOS / "hf_lora.py"
    expected = reference(stack, script, *TRAINER, "--per_device_train_batch_size=8")
    options = ("--nproc=2", "--log-dir=runs", *(f"--set={one}" for one in settings))
    config = f"--deepspeed={SCENARIOS / 'zero3_lora.json'}"
    own = (*TRAINER, "--per_device_train_batch_size=4", config)
    ours, told = launched(stack, tmp_path, "safe-launch", *options, script, *own)
    for change in changes:
        assert change in told
    assert "was in force" not in told
    assert ours == pytest.approx(expected, rel=1e-4)


def test_a_preset_for_a_script_without_deepspeed(stack: Stack, tmp_path: Path) -> None:
    """A Trainer's script without DeepSpeed trains with it, to the same losses."""
    script = SCENARIOS / "hf_lora.py"
    expected = reference(stack, script, *TRAINER, "--per_device_train_batch_size=8")
    options = ("--nproc=2", "--log-dir=runs", "--preset=zero2")
    own = (*TRAINER, "--per_device_train_batch_size=4")
    ours, told = launched(stack, tmp_path, "safe-launch", *options, script, *own)
    assert "zero_stage: 2 (not set by the script)" in told
    assert ours == pytest.approx(expected, rel=1e-4)


def test_no_static_graph_where_the_first_pass_is_not_synchronized(tmp_path: Path) -> None:
    """The Trainer's accumulation begins under `no_sync`: the request is reverted."""
    stack, script = CURRENT, SCENARIOS / "hf_lora.py"
    own = (*TRAINER, "--use_lora=True", "--gradient_accumulation_steps=2")
    expected = reference(stack, script, *own, "--per_device_train_batch_size=8")
    asked = (*own, "--per_device_train_batch_size=4", "--ddp_static_graph=True")
    options = ("--nproc=2", "--log-dir=runs")
    ours, told = launched(stack, tmp_path, "safe-launch", *options, script, *asked)
    assert "attempt 1: stopped before a failure" in told
    assert "static_graph: True -> False" in told
    assert attempts(told) == 2
    assert ours == pytest.approx(expected, rel=1e-4)
