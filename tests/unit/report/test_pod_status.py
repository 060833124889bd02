"""The line for a pod's status: its content, file and length."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from safe_launch import cli
from safe_launch.catalogue.entry import Finding, Role
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.commands import hardware
from safe_launch.core.errors import MEANINGS, ExitCode, LaunchError, meaning
from safe_launch.core.script import SourceLocation
from safe_launch.core.settings import Fact, Name, Value
from safe_launch.core.workload import Workload
from safe_launch.evidence.failure_record import FailureRecord, Frame
from safe_launch.report import pod_status
from support.worlds import world

ENTRIES = {entry.id: entry for entry in read_catalogue()}


def found(entry: str | None = None, **more: object) -> Finding:
    """A rank's failure as diagnosed."""
    fields = {"exception": "builtins.ValueError", "message": "a\nb", "exit_code": 1, **more}
    record = FailureRecord(3, 0.0, **fields)  # type: ignore[arg-type]
    return Finding(record, Role.INITIATING, ENTRIES[entry] if entry else None)


def test_an_unknown_failure_is_told_with_the_users_line() -> None:
    """Rank, exception, message, file and line, in one line."""
    frame = Frame("/job/train.py", 18, "step", "raise ValueError(text)")
    finding = found(frames=(frame,), user_files=("/job/train.py",), step=7)
    assert pod_status.failure_line(1, finding, Workload()) == (
        "safe-launch: exit code 1 (the failed worker's own): rank 3 raised ValueError after 7 "
        "steps: a b; /job/train.py:18 in step: raise ValueError(text)"
    )


def test_a_known_failure_is_told_with_its_name_and_what_to_do() -> None:
    """Title and id, the user's line, and the entry's advice."""
    spot = SourceLocation("/job/train.py", 5, "loss = dummy()", "loss = 0.0")
    line = pod_status.failure_line(
        78, found("zero3-parameter-outside-forward"), Workload(), (spot,)
    )
    entry = ENTRIES["zero3-parameter-outside-forward"]
    assert line.startswith(
        "safe-launch: exit code 78 (no settings that are known to work are left): rank 3 "
        f"raised ValueError: {entry.subject} ({entry.id}); "
        "/job/train.py:5: loss = dummy() -> loss = 0.0; do: "
    )
    assert "\n" not in line


def test_every_entry_fits_into_a_line() -> None:
    """No entry's advice is cut off."""
    values: dict[Name, Value] = {Fact.ENGINE: "deepspeed", Fact.ADAPTER: "lora"}
    for entry in ENTRIES:
        line = pod_status.failure_line(1, found(entry), world(values))
        assert not line.endswith("…"), entry
        assert "\n" not in line, entry


def test_what_is_too_long_is_cut_between_letters() -> None:
    """The kubelet would cut within a character."""
    line = pod_status.error_line(LaunchError("ä" * 5000))
    assert pod_status.LIMIT - 1 <= len(line.encode()) <= pod_status.LIMIT
    assert line.endswith("ä…")
    frame = Frame("/job/train.py", 18, "step", "raise ValueError(text)")
    finding = found(message="ä" * 5000, frames=(frame,), user_files=("/job/train.py",))
    line = pod_status.failure_line(1, finding, Workload())
    assert line.endswith("ä…; /job/train.py:18 in step: raise ValueError(text)")


def test_errors_and_stops_have_lines_as_well() -> None:
    """Refused launches and signals are covered."""
    error = LaunchError("no script is given", "name one")
    assert pod_status.error_line(error).endswith("): no script is given; do: name one")
    assert pod_status.error_line(LaunchError("none")).endswith("): none")
    assert pod_status.stop_line(signal.SIGTERM) == (
        "safe-launch: exit code 143 (stopped by SIGTERM): stopped from outside by SIGTERM"
    )


def test_every_exit_code_has_a_meaning() -> None:
    """Own codes by name, signals by theirs, others as the worker's."""
    assert set(MEANINGS) == set(ExitCode)
    assert meaning(130) == "stopped by SIGINT"
    assert meaning(137) == "a worker was ended by SIGKILL"
    assert [meaning(code) for code in (1, 42, 128, 255)] == ["the failed worker's own"] * 4


def test_the_line_goes_to_the_file_of_the_pod(tmp_path: Path) -> None:
    """Named by a variable, or the usual one if it exists; none outside a pod."""
    usual = tmp_path / "usual"
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert pod_status.place(pod, usual) is None
    usual.touch()
    assert pod_status.place(pod, usual) == usual
    assert pod_status.place({}, usual) is None
    assert pod_status.place({pod_status.VARIABLE: ""} | pod, usual) is None
    named = {pod_status.VARIABLE: str(tmp_path / "named")}
    assert pod_status.place(named, usual) == tmp_path / "named"


def test_it_is_written_in_place_and_never_in_the_way(tmp_path: Path) -> None:
    """The mounted file is kept; a missing path is ignored."""
    path = tmp_path / "log"
    path.write_text("something longer from before")
    before = path.stat().st_ino
    pod_status.write("short", {pod_status.VARIABLE: str(path)})
    assert path.read_text() == "short"
    assert path.stat().st_ino == before
    pod_status.write("short", {pod_status.VARIABLE: str(tmp_path / "no" / "log")})
    pod_status.write("bad \udcff", {pod_status.VARIABLE: str(path)})
    assert path.read_text() == "bad ?"
    pod_status.write("short", {})
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_mistake_of_our_own_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Internal errors give one line; the traceback is in the log."""

    def broken(_arguments: Sequence[str]) -> int:
        raise ZeroDivisionError("a bug\nof ours")

    monkeypatch.setattr(hardware, "run", broken)
    monkeypatch.setenv(pod_status.VARIABLE, str(tmp_path / "log"))
    assert cli.guarded(["hardware"]) == ExitCode.INTERNAL
    assert "Traceback" in capsys.readouterr().err
    assert (tmp_path / "log").read_text() == (
        "safe-launch: exit code 70 (a bug in safe-launch): ZeroDivisionError: a bug of ours"
    )
