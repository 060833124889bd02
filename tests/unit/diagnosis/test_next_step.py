"""What to do next about failures that no entry names: the rule that applies, and what it says."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from safe_launch.diagnosis.next_step.choose import next_step
from safe_launch.diagnosis.next_step.step import Step
from safe_launch.logs.reader import Reader
from safe_launch.logs.verdict import decisive, judge
from support.tables import read_yaml, table

CASES = read_yaml(Path(__file__).parent / "next_steps.yaml")


def step_of(log: str) -> Step:
    """The step by a log, of which nothing is known from the catalogue."""
    reader = Reader(())
    reader.read("a.log", BytesIO(log.encode()))
    root = decisive(judge(reader.attempts, ())).root
    assert root is not None
    return next_step(root.finding.record)


@table("case", CASES, name=lambda case: str(case["source"]))
def test_what_a_failure_of_a_thread_is_told(case: dict[str, Any]) -> None:
    """The rule that applies, the values of the log, and nothing about other devices or loops."""
    step = step_of(case["log"])
    assert step.rule == case["rule"]
    for text in case["says"]:
        assert text in step.do
    for text in case.get("never", ()):
        assert text.lower() not in step.do.lower()
