"""In a stalled run the culprit rank is named with the user's line.

Runs that only seem stalled get no report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hangs import SCRIPTS, Case, Ended, begun, ended, line_of
from support.slow_disk import needs_slow_disk, slow_disk

Await = Callable[[str], Ended]
STUCK = {
    "sleep": (Case("loop.py", ("--fault=sleep",), 3), "absent", {1: "stuck: sleep"}),
    "held interpreter": (
        Case("loop.py", ("--fault=gil", "--rank=0", "--phase=evaluation")),
        "absent",
        {0: "stuck: gil"},
    ),
    "stopped": (
        Case("loop.py", ("--fault=stop", "--phase=saving"), 3, goes_on=False),
        "stopped",
        {1: "stuck: stop"},
    ),
    "out of data": (
        Case("loop.py", ("--fault=data",), 3, goes_on=False),
        "ended",
        {1: "waits: end"},
    ),
    "branch": (
        Case("loop.py", ("--fault=branch", "--rank=2"), 3, goes_on=False),
        "divergent",
        {2: "stuck: branch"},
    ),
    "skipped": (
        Case("loop.py", ("--fault=skip",), 3, goes_on=False),
        "divergent",
        {1: "waits: saving"},
    ),
    "inherited lock": (Case("loaders.py", ("fork", 1)), "loader", {1: "waits: loader"}),
    "collate": (Case("loaders.py", ("own", 1)), "absent", {1: "stuck: collate"}),
    "pool": (Case("loaders.py", ("pool", 1)), "absent", {1: "stuck: pool"}),
    "cache": (Case("rank_0_alone.py", ("locked", ".")), "absent", {0: "stuck: locked"}),
    "FSDP's state dict": (
        Case("fsdp.py", ("first",), 3, goes_on=False),
        "divergent",
        {0: "stuck: first"},
    ),
    "FSDP2's state dict": (
        Case("fsdp.py", ("second",), 3, goes_on=False),
        "divergent",
        {0: "stuck: second"},
    ),
}
"""By name: the case, the kind of hang, and the marks of the culprits' lines."""
LINES = {"inherited lock": "stuck: fork"}
"""Another line in the report, of a loader's processes."""
WELL = {
    "loader": Case("loaders.py", ("slow", 1)),
    "first step": Case("first_step.py", (8,)),
    "compilation": Case("first_step.py", (0, "compile"), options=("--hang-report=20",)),
    "rank 0 alone": Case("rank_0_alone.py", ("well", ".")),
    "whole state dict": Case("fsdp.py", ("well",), 3),
    "shorter than the limit": Case(
        "loop.py", ("--fault=nap", "--seconds=4"), options=("--hang-report=20",)
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Await]:
    """All runs, in parallel."""
    cases = {**{name: case for name, (case, _, _) in STUCK.items()}, **WELL}
    with begun(cases, tmp_path_factory.mktemp("runs")) as started:
        yield started


@pytest.mark.parametrize("name", STUCK)
def test_who_is_waited_for(name: str, runs: Await) -> None:
    """Exactly that rank with its position; the run ends only on proof."""
    case, kind, marks = STUCK[name]
    run = runs(name)
    lines = {rank: line_of(case.script, mark) for rank, mark in marks.items()}
    assert (run.blamed(), run.reports[0]["kind"]) == (lines, kind), run.output
    named = [*lines.values(), *([line_of(case.script, LINES[name])] if name in LINES else [])]
    assert [line for line in named if line not in run.words()] == []
    assert (run.code == 143) == case.goes_on, run.output


@pytest.mark.parametrize("name", ["FSDP's state dict", "FSDP2's state dict"])
def test_a_state_dict_by_rank_0_alone(name: str, runs: Await) -> None:
    """The entry is named, with FSDP's requirement."""
    words = runs(name).words()
    assert "(checkpoint-saved-by-one-rank)" in words
    assert "do Make FSDP's state dict on every rank" in words


@pytest.mark.parametrize("name", WELL)
def test_no_false_alarm(name: str, runs: Await) -> None:
    """Slow but moving runs are left alone."""
    run = runs(name)
    assert (run.code, run.reports) == (0, []), run.output


@needs_slow_disk
def test_a_checkpoint_to_a_slow_disk(tmp_path: Path) -> None:
    """One system call writes for seconds: only the file grows."""
    (tmp_path / "disk").mkdir()
    with slow_disk(tmp_path / "disk", seconds=0.25):
        run = ended(Case("rank_0_alone.py", ("saves", tmp_path / "disk")), tmp_path / "run")
    assert (run.code, run.reports) == (0, []), run.output


def test_the_end_of_patience(tmp_path: Path) -> None:
    """--hang-timeout ends a run without proof, as a failure that names the rank."""
    options = ("--hang-timeout=6",)
    run = ended(
        Case("loop.py", ("--fault=lock",), options=options, goes_on=False), tmp_path / "run"
    )
    assert run.blamed() == {1: line_of("loop.py", "stuck: lock")}
    assert run.code not in (0, 143)
    assert "rank 1" in run.words().partition("attempt 1: failed")[2]


def test_what_a_watchdog_has_left(tmp_path: Path) -> None:
    """NCCL's watchdog names waiting ranks; its dumps show whom they wait for."""
    run = ended(Case("watchdog.py", ranks=3, goes_on=False), tmp_path / "run")
    assert (run.code, [*run.blamed()], run.reports[0]["kind"]) == (1, [1], "absent"), run.output
    assert f"last seen at {SCRIPTS}/{line_of('watchdog.py', 'last seen')}" in run.words()
    assert "attempt 1: failed: rank 1 stood still (rank-absent-from-collective)" in run.words()
