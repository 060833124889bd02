"""Workers whose output alone shows their failure, with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.entries import ENTRY
from support.ports import free_port
from support.processes import FAST, PROGRAMS, begin, launch

SCRIPT = PROGRAMS / "last_words.py"


def entries(folder: Path, kind: str = "user", more: str = "") -> str:
    """The option for a catalogue with an entry on bad weather."""
    (folder / "own").mkdir()
    (folder / "own" / "bad-weather.md").write_text(ENTRY.format(kind=kind, more=more))
    return f"--catalogue={folder / 'own'}"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("traceback", "exit code 5; its output shows RuntimeError"),
        ("logger", "exit code 5; its output shows RuntimeError"),
        ("message", "exit code 5; its last output says why"),
        ("child", "exit code 1; its output shows RuntimeError"),
        ("checked-child", "exit code 1; its output shows RuntimeError"),
        ("thread", "exit code 1; its output shows RuntimeError"),
    ],
)
def test_the_output_tells(workshop: Path, how: str, words: str) -> None:
    """The failure in the output is reported with the worker's exit code."""
    done = launch(workshop, "--nproc=2", entries(workshop), SCRIPT, how)
    assert f"attempt 1: failed: rank 1 left with {words} (bad-weather)\n" in done.stderr
    assert "Take an umbrella." in done.stderr
    assert done.returncode == (5 if "code 5" in words else 1)
    (path,) = (workshop / "runs").glob("*/attempt-1/failures.json")
    record = json.loads(path.read_text())["findings"][0]["record"]
    assert record["told_by"] == ("last line" if how == "message" else "output")
    assert record["message"] == "the weather is bad today"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("survived", "rank 1 left with exit code 5 (not known)"),
        ("long-ago", "rank 1 left with exit code 5 (not known)"),
        ("killed", "rank 1 was ended by SIGKILL (from outside"),
        ("killed-child", "rank 1 left with exit code 247, as after SIGKILL (from outside"),
    ],
)
def test_what_was_survived_is_no_cause(workshop: Path, how: str, words: str) -> None:
    """An exception before further steps, lines or an external signal doesn't count."""
    done = launch(workshop, "--nproc=2", entries(workshop), SCRIPT, how)
    assert f"attempt 1: failed: {words}" in done.stderr
    assert "umbrella" not in done.stderr


def test_programs_that_are_no_python(workshop: Path) -> None:
    """Under `--no-python` only the output is available."""
    own = entries(workshop)
    program = ("--no-python", "python", SCRIPT, "traceback")
    done = launch(workshop, "--nproc=2", *FAST, own, *program)
    assert "its output shows RuntimeError (bad-weather)" in done.stderr
    assert done.returncode == 5


def test_no_correction_by_the_output_alone(workshop: Path) -> None:
    """A correctable failure: advice and the worker's exit code, no relaunch."""
    own = entries(workshop, "preset", "forbids:\n  - {zero_stage: 0}")
    done = launch(workshop, "--nproc=2", own, SCRIPT, "traceback")
    assert "(bad-weather)" in done.stderr
    assert "Take an umbrella." in done.stderr
    assert "not relaunched: only the worker's output shows the failure" in done.stderr
    assert done.returncode == 5


def test_the_output_of_another_node(workshop: Path) -> None:
    """Node 0 names the other node's failure, and both end with its code."""
    shared = ("--nnodes=2", "--nproc=1", "--master-addr=127.0.0.1", f"--master-port={free_port()}")
    own = entries(workshop)
    launchers = [
        begin(workshop, *shared, f"--node-rank={rank}", own, SCRIPT, "traceback") for rank in (0, 1)
    ]
    told = [launcher.communicate()[1] for launcher in launchers]
    assert "its output shows RuntimeError (bad-weather)" in told[0]
    assert "Take an umbrella." in told[0]
    assert [launcher.returncode for launcher in launchers] == [5, 5]
