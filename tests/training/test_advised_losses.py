"""A training loop or setting changed as advised trains like a single process.

A row is an entry and one of its ways, by a name in a script of `tests/advised`. On two ranks it
must have the losses and the first update of a single process that sees each global batch at once,
with an accumulation of 1 and of 4. Rows of `WRONG` are the faults that entries warn of: they finish
and train differently, which shows that the comparison detects them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from safe_launch.catalogue.reader import read_catalogue
from support.stacks import CURRENT, OLDER, TESTS, Stack
from support.warm_python import Ended, Training, warm

ENTRIES = {entry.id for entry in read_catalogue()}
RANKS = 2
BOTH = (CURRENT, OLDER)


@dataclass(frozen=True)
class Row:
    """A way that an entry advises.

    Attributes:
        entry: its id.
        script: in tests/advised.
        way: a name in the script.
        stacks: the frameworks that take part; torch is the same in both.
        like: the reference, for another model than the usual one.
        accumulations: the advised accumulations.
    """

    entry: str
    script: str
    way: str
    stacks: tuple[Stack, ...] = (CURRENT,)
    like: str = "reference"
    accumulations: tuple[int, ...] = (1, 4)


def of_torch(entry: str, *ways: str, like: str = "reference") -> tuple[Row, ...]:
    """Rows for torch's own wrappers."""
    return tuple(Row(entry, "of_torch.py", way, like=like) for way in ways)


def of_deepspeed(entry: str, *ways: str, like: str = "reference") -> tuple[Row, ...]:
    """Rows for DeepSpeed's engine, on both stacks."""
    return tuple(Row(entry, "of_deepspeed.py", way, BOTH, like) for way in ways)


def of_trainer(entry: str, *ways: str) -> tuple[Row, ...]:
    """Rows for the Trainer, on both stacks."""
    return tuple(Row(entry, "of_trainer.py", way, BOTH) for way in ways)


TOWERS, BLOCKS, FROZEN = "reference-of-towers", "reference-of-blocks", "reference-of-frozen"
ROWS = (
    *of_trainer(
        "compute-loss-without-item-count",
        "own-loss-refused",
        "own-loss-counted",
        "own-loss-divided",
        "own-loss-handed-on",
    ),
    *of_trainer("forward-without-item-count", "forward-refused", "forward-divides"),
    *of_deepspeed("zero-no-sync", "stepping-1", "stepping-2", "stepping-3"),
    *of_deepspeed("deepspeed-stage0-stale-gradients", "stepping-1"),
    *of_deepspeed("deepspeed-untested-optimizer", "stepping-2"),
    *of_deepspeed("deepspeed-offload-foreign-optimizer", "offloaded-1", "offloaded-3"),
    *of_deepspeed("zero-offload-drops-micro-batches", "offloaded-1", "offloaded-3", "stepping-2"),
    *of_deepspeed("zero-gradients-of-different-parameters", "dummy-1", "dummy-2", like=TOWERS),
    *of_deepspeed("zero3-parameter-outside-forward", "dummy-3", like=TOWERS),
    *of_deepspeed("zero3-ranks-run-different-modules", "dummy-3", like=TOWERS),
    *of_torch("ddp-unused-parameters", "find-unused", like=TOWERS),
    *of_torch("ddp-static-graph-changed", "find-unused", "dummy-in-step", like=TOWERS),
    *of_torch(
        "ddp-parameter-ready-twice",
        "non-reentrant",
        "non-reentrant-find",
        "reentrant-static-in-step",
        "not-checkpointed",
        like=BLOCKS,
    ),
    *of_torch("ddp-gradient-reduced-early", "non-reentrant", "not-checkpointed", like=BLOCKS),
    *of_torch("checkpoint-inputs-without-gradient", "non-reentrant", like=BLOCKS),
    *of_torch("graph-walked-twice", "one-backward"),
    *of_torch("gradients-unscaled-twice", "scaled-once"),
    *of_torch("gradient-scaler-saw-no-gradients", "scaled-once"),
    *of_torch("fsdp2-without-no-sync", "fsdp2-sync", "fsdp2-each"),
    *of_torch("fsdp-partly-frozen", "fsdp-frozen", like=FROZEN),
    *(
        Row("stream-batches-of-other-lengths", "of_accelerate.py", way, BOTH)
        for way in ("each-reads", "first-reads", "split")
    ),
)
WRONG = (
    *of_trainer("compute-loss-without-item-count", "own-loss"),
    *of_trainer("forward-without-item-count", "forward-takes-it"),
    *of_deepspeed("zero-no-sync", "divided-2", "divided-3"),
    *of_torch("graph-walked-twice", "retained"),
    Row("stream-batches-of-other-lengths", "of_accelerate.py", "each-reads-divided", BOTH),
)


@functools.cache
def told(stack: Stack, script: str, way: str, accumulation: int, ranks: int) -> list[Any]:
    """The record of each rank's training."""
    training = Training(
        str(TESTS / "advised" / script), (way, str(accumulation)), ranks, seconds=180
    )
    ended: Ended = warm(stack).run(training)
    lines = [
        next((line for line in output.splitlines() if line.startswith("TOLD ")), None)
        for output in ended.outputs
    ]
    assert all(lines), ended.outputs[0][-3000:]
    return [json.loads(str(line)[len("TOLD ") :]) for line in lines]


def agrees(row: Row, stack: Stack, accumulation: int) -> bool:
    """Whether losses, first update and later weights equal the reference on all ranks."""
    (right,) = told(stack, row.script, row.like, accumulation, 0)
    ranks = told(stack, row.script, row.way, accumulation, RANKS)
    steps = len(right["losses"])
    losses = [
        sum(sum(one["losses"][step * accumulation : (step + 1) * accumulation]) for one in ranks)
        / (accumulation * RANKS)
        for step in range(steps)
    ]
    near: Callable[..., Any] = functools.partial(pytest.approx, rel=1e-4, abs=1e-5)
    return (
        all(len(one["losses"]) == steps * accumulation for one in ranks)
        and losses == near(right["losses"])
        and all(
            one["weights"][step] == near(right["weights"][step])
            for one in ranks
            for step in range(steps)
        )
    )


def cases(rows: tuple[Row, ...]) -> list[Any]:
    """A row on each of its stacks."""
    return [
        pytest.param(stack, row, id=f"{row.entry}-{row.way}-{stack.name}")
        for row in rows
        for stack in row.stacks
    ]


@pytest.mark.parametrize(("stack", "row"), cases(ROWS))
def test_advice_trains_as_one_process_does(stack: Stack, row: Row) -> None:
    """Losses and first update, which is the first gradient, are equal."""
    assert row.entry in ENTRIES
    for accumulation in row.accumulations:
        assert agrees(row, stack, accumulation), (
            accumulation,
            told(stack, row.script, row.way, accumulation, RANKS),
        )


@pytest.mark.parametrize(("stack", "row"), cases(WRONG))
def test_what_an_entry_warns_of_trains_otherwise(stack: Stack, row: Row) -> None:
    """It finishes, with an accumulation of 4, but trains differently."""
    assert row.entry in ENTRIES
    assert not agrees(row, stack, 4)
