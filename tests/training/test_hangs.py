"""Frameworks that stall: DeepSpeed's stage 3 and transformers' Trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.hangs import Case, Ended, begun, line_of

Await = Callable[[str], Ended]
CASES = {
    "modules": Case("zero3.py", ("modules",), 3, goes_on=False),
    "save": Case("zero3.py", ("save",), goes_on=False),
    "callback": Case("hf_trainer.py", ("callback", "out")),
    "slow": Case("hf_trainer.py", ("slow", "out")),
    "well": Case("zero3.py", ("well",)),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Await]:
    """All runs, in parallel."""
    with begun(CASES, tmp_path_factory.mktemp("runs")) as started:
        yield started


def test_modules_that_differ_by_rank(runs: Await) -> None:
    """The rank with the different sample is named, with the entry's remedies."""
    run = runs("modules")
    assert run.blamed() == {1: line_of("zero3.py", "waits: modules")}, run.output
    assert run.reports[0]["kind"] == "divergent"
    assert "zero3-ranks-run-different-modules" in run.words()


def test_a_checkpoint_by_rank_0_alone(runs: Await) -> None:
    """Its line is named: it waits in a collective that only it has entered."""
    run = runs("save")
    assert run.blamed().get(0) == line_of("zero3.py", "stuck: save"), run.output
    assert run.code not in (0, 143)


def test_a_callback(runs: Await) -> None:
    """The user's own line, below all frames of the Trainer."""
    run = runs("callback")
    assert run.blamed() == {0: line_of("hf_trainer.py", "stuck: callback")}, run.output
    assert run.code == 143


@pytest.mark.parametrize("name", ["slow", "well"])
def test_no_false_alarm(name: str, runs: Await) -> None:
    """A metric on rank 0 alone, checkpoints, evaluation."""
    run = runs(name)
    assert (run.code, run.reports) == (0, []), run.output
