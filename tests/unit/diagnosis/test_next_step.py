"""Advice for failures without an entry: the matching rule and its text."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from safe_launch.diagnosis.next_step.choose import next_step
from safe_launch.diagnosis.next_step.step import Step
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.logs.reader import Reader
from safe_launch.logs.verdict import decisive, judge
from support.tables import read_yaml, table

CASES = read_yaml(Path(__file__).parent / "next_steps.yaml")


def step_of(log: str) -> Step:
    """The next step for a log without a catalogue entry."""
    reader = Reader(())
    reader.read("a.log", BytesIO(log.encode()))
    root = decisive(judge(reader.attempts, ())).root
    assert root is not None
    return next_step(root.finding.record)


@table("case", CASES, name=lambda case: str(case["source"]))
def test_what_a_failure_of_a_thread_is_told(case: dict[str, Any]) -> None:
    """The advice has the log's values and nothing about other devices or loops."""
    step = step_of(case["log"])
    assert step.rule == case["rule"]
    for text in case["says"]:
        assert text in step.do
    for text in case.get("never", ()):
        assert text.lower() not in step.do.lower()


WAITED = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=24) ran for 600021 ms"
)


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (["INFO: Saving checkpoint. This may take some time."], "a rank was saving (“INFO: Sav"),
        (["rank0 | eval [28/30] wine", "step 9 | eval loss 0.2"], "evaluating (“rank0 | eval [28"),
        (["INFO rank 2: data list exhausted after 11 batches"], "the same number of batches"),
        (["Saving the cache", "Running tokenizer on dataset: 41%"], "(“Running tokenizer on"),
        (["train: Scanning /mnt/labels... 90%"], "by one process"),
        ([f"Saving to {'x' * 60} hf_{'a1B2' * 9}"], "***”) while"),
    ],
)
def test_what_a_rank_was_busy_with(before: list[str], says: str) -> None:
    """The last lines before the timeout, without later lines and training output."""
    record = FailureRecord(1, 1.0, message=WAITED, log_tail=(*before, WAITED, "Saving traces"))
    step = next_step(record)
    assert (step.rule, says in step.do) == ("busy-rank", True)
    for other in (replace(record, log_tail=(WAITED, *before)), replace(record, message="died")):
        assert next_step(other).rule != "busy-rank"
