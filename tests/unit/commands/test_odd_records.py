"""Records with values of wrong types are reported or skipped, without a traceback."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from safe_launch.commands import run_search
from safe_launch.commands.registry import run as cli
from safe_launch.core.errors import LaunchError
from safe_launch.hangs.report import HangReport
from safe_launch.report import explain_hang, run_metrics
from safe_launch.report.page import document
from safe_launch.report.page.past_attempt import read_attempt
from support import full_run

RECORDS = (
    "launcher-0.json",
    "outcome.json",
    "request.json",
    "attempt-1/failures.json",
    "attempt-1/observed.json",
    "attempt-2/pace.json",
    "attempt-2/plan.json",
    "attempt-2/progress-0.json",
    "attempt-2/standings-1.json",
)


def read(folder: Path) -> None:
    """Reads a run with all commands and returns their output."""
    past = run_search.past(folder)
    assert past.cells()
    assert json.dumps(past.document())
    assert past.status.lines()
    assert run_metrics.openmetrics(past.status)
    for number in (1, 2):
        attempt = read_attempt(folder / f"attempt-{number}", number, 1)
        assert isinstance(attempt.changes, list)
        assert isinstance(attempt.components, dict)
        assert isinstance(attempt.has_trained, bool)
        document.verdict(past, [attempt])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was corrected once and then finished."""
    root = tmp_path_factory.mktemp("odd")
    (root / "train.py").write_text("def main():\n    checkpoint(layer)\n")
    return full_run.write(root / "runs", root / "train.py")


def test_all_of_it_is_read(folder: Path) -> None:
    """An unmodified record is read completely."""
    past = run_search.past(folder)
    assert past.status.notes == ()
    assert past.changes == ("gradient_checkpointing: reentrant -> non_reentrant",)
    assert past.status.failures == {1: "rank 0: zero2-gradient-reduced-twice", 2: ""}
    text = "\n".join(past.status.lines())
    assert "trained 45 steps: 0.5 steps/s, 2.25 samples/s, 22.5 tokens/s at 10 a sample" in text
    first, second = (read_attempt(folder / f"attempt-{number}", number, 1) for number in (1, 2))
    assert first.failures[0].excerpt is not None
    assert len(second.points) == 9
    assert len(second.hangs) == len(second.nodes) == len(second.changes) == 1
    assert second.components


@pytest.mark.parametrize("name", RECORDS)
def test_each_value_as_each_other_type(folder: Path, name: str) -> None:
    """Another version or a manual edit may have written any type."""
    path = folder / name
    right = path.read_text()
    try:
        for where, changed in full_run.other_forms(json.loads(right)):
            path.write_text(json.dumps(changed))
            try:
                read(folder)
            except Exception as error:
                raise AssertionError(f"{name}: {where}") from error
    finally:
        path.write_text(right)


def test_the_command_fix(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output names the other version, or the edit left to the user."""
    path = folder / "outcome.json"
    right = path.read_text()
    try:
        for where, changed in full_run.other_forms(json.loads(right)):
            path.write_text(json.dumps(changed))
            try:
                with suppress(LaunchError):
                    cli(["fix", str(folder)])
            except Exception as error:
                raise AssertionError(where) from error
    finally:
        path.write_text(right)
    assert "Traceback" not in capsys.readouterr().err


def test_where_ranks_stood(folder: Path) -> None:
    """Any report that can be read can be printed."""
    right = (folder / "attempt-2" / "standings-1.json").read_bytes()
    said = 0
    for where, changed in full_run.other_forms(json.loads(right)):
        try:
            report = msgspec.convert(changed, HangReport)
        except msgspec.ValidationError:
            continue
        try:
            said += bool(explain_hang.headline(report)) and bool(list(explain_hang.rows(report)))
        except Exception as error:
            raise AssertionError(where) from error
    assert said
