"""The end of a run for other nodes and for a pod's status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Finding, Role
from safe_launch.core.output_routing import ERR, EVERY, SHARED_CONSOLE, Streams
from safe_launch.diagnosis.attempt import Attempt, Failed, Interrupted, Succeeded
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.nodes.messages import RunEnded
from safe_launch.planning.search import as_asked
from safe_launch.report import pod_status, summary
from support.worlds import HARDWARE, REQUEST, ZERO2, world

ATTEMPT = Attempt(0, as_asked(REQUEST, world(ZERO2), HARDWARE), Path())
RECORD = FailureRecord(0, 1.0, "builtins.KeyError", "'label'", exit_code=1)


def test_the_other_nodes_are_told_the_end() -> None:
    """One line, and the diagnosis for a pod's status."""
    finding = Finding(RECORD, Role.INITIATING, None)
    end = summary.farewell(1, Failed(ATTEMPT, (RECORD,)), {0: finding})
    assert end.line.startswith("failed: ")
    assert "'label'" in end.diagnosis
    stopped = summary.farewell(143, Interrupted(ATTEMPT, 15), {})
    assert (stopped.code, stopped.line) == (143, "stopped by SIGTERM")
    assert "SIGTERM" in stopped.diagnosis
    done = summary.farewell(0, Succeeded(ATTEMPT, ("it died later",)), {})
    assert done == RunEnded(0, "succeeded; it died later")


def test_a_pods_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure's diagnosis, else its line; a success has none."""
    path = tmp_path / "termination-log"
    monkeypatch.setenv(pod_status.VARIABLE, str(path))
    summary.write_pod_status(RunEnded(0, "succeeded"))
    assert not path.exists()
    summary.write_pod_status(RunEnded(3, "failed", "the diagnosis"))
    assert path.read_text() == "the diagnosis"
    summary.write_pod_status(RunEnded(3, "failed: rank 0"))
    assert "exit code 3" in path.read_text()
    assert "failed: rank 0" in path.read_text()


def test_a_script_that_exits_by_itself_has_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """After `sys.exit(3)` the last output is shown."""
    record = FailureRecord(
        0, 1.0, "builtins.SystemExit", "3", traceback="Traceback", log_tail=("bye",)
    )
    finding = Finding(record, Role.INITIATING, None)
    hidden = Streams(redirected=((EVERY, 3),))
    request = replace(REQUEST, worker_options=replace(REQUEST.worker_options, streams=hidden))
    attempt = replace(ATTEMPT, plan=replace(ATTEMPT.plan, request=request))
    summary.show_hidden_output(Failed(attempt, (record,)), {0: finding})
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert told.endswith("bye\n")
    summary.show_hidden_output(Succeeded(ATTEMPT), {})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("host", "tail", "streams", "shared", "is_printed"),
    [
        ("", "Traceback: the label", Streams(), "", False),
        ("", "stopped before", Streams(), "", True),
        ("", "Traceback: the label", Streams(redirected=((EVERY, ERR),)), "", True),
        (*("", "Traceback: the label"), Streams(((EVERY, ERR),), ((EVERY, ERR),)), "", False),
        ("", "Traceback: the label", Streams(shown=frozenset({1})), "", True),
        ("beta", "Traceback: the label", Streams(), "", True),
        ("beta", "Traceback: the label", Streams(), "1", False),
        ("beta", "stopped before", Streams(), "1", True),
    ],
)
def test_a_traceback_is_printed_once(
    host: str,
    tail: str,
    streams: Streams,
    shared: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_printed: bool,
) -> None:
    """By the worker, unless it was stopped earlier or isn't on this console."""
    if shared:
        monkeypatch.setenv(SHARED_CONSOLE, shared)
    record = replace(RECORD, host=host, traceback="Traceback: the label\n", log_tail=(tail,))
    request = replace(REQUEST, worker_options=replace(REQUEST.worker_options, streams=streams))
    attempt = replace(ATTEMPT, plan=replace(ATTEMPT.plan, request=request))
    finding = Finding(record, Role.INITIATING, None)
    summary.show_hidden_output(Failed(attempt, (record,)), {0: finding})
    assert ("Traceback: the label" in capsys.readouterr().err) == is_printed


def test_a_full_disk_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the very end, too, without another attempt."""
    summary.write_or_warn(tmp_path / "nowhere" / "plan.json", {})
    assert "the training doesn't depend on it" in capsys.readouterr().err
    summary.write_or_warn(tmp_path / "plan.json", {"a": 1})
    assert (tmp_path / "plan.json").read_text() == '{\n"a": 1\n}\n'
    assert capsys.readouterr().err == ""
