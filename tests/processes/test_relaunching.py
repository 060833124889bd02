"""The effect of each class of known failure, with a cluster's catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.entries import ENTRY
from support.processes import PROGRAMS, gone, launch


def weather(folder: Path, kind: str, failures: int, *options: str, more: str = "") -> tuple:
    """A launch of a script that fails this often; its exit code and the launcher's output."""
    (folder / "house").mkdir()
    (folder / "house" / "bad-weather.md").write_text(ENTRY.format(kind=kind, more=more))
    (folder / "marks").mkdir()
    script = (PROGRAMS / "weather.py", folder / "marks", failures, "today", "today")
    done = launch(folder, "--nproc=1", "--catalogue=house", *options, *script)
    assert gone(folder)
    return done.returncode, " ".join(done.stderr.replace("[safe-launch]", "").split())


@pytest.mark.parametrize(
    ("kind", "failures", "code", "words"),
    [
        ("transient", 1, 0, "none: the failure is transient relaunching: attempt 2"),
        ("transient", 2, 1, "attempt 2: failed: rank 0 raised RuntimeError (bad-weather)"),
        ("user", 1, 1, "do Take an umbrella."),
        ("hardware", 1, 75, "exit code 75"),
    ],
)
def test_what_a_class_leads_to(
    workshop: Path, kind: str, failures: int, code: int, words: str
) -> None:
    """Transient: one retry. User: the advice. Hardware: the code for another node."""
    found, told = weather(workshop, kind, failures)
    assert found == code
    assert words in told
    assert ("relaunching" in told) == (kind == "transient")


def test_a_dead_end_says_what_contradicts(workshop: Path) -> None:
    """A corrected failure recurs without a further change: code 78, and the reason."""
    more = "forbids:\n  - {micro_batch: 1}"
    found, told = weather(workshop, "preset", 1, more=more)
    assert found == 78
    assert "nothing is left to launch" in told
    assert "attempt 1 failed with it: the weather is bad" in told


@pytest.mark.parametrize(
    ("fix", "code", "words"),
    [
        ("auto", 0, "attempt 3: succeeded"),
        ("once", 1, "not relaunched: --fix once allows 1"),
        ("suggest", 1, "not relaunched: --fix suggest allows 0"),
    ],
)
def test_the_number_of_relaunches_is_bounded(
    workshop: Path, fix: str, code: int, words: str
) -> None:
    """Two different failures in turn, under each `--fix`."""
    (workshop / "house").mkdir()
    first = ENTRY.format(kind="transient", more="")
    (workshop / "house" / "bad-weather.md").write_text(first)
    second = first.replace("id: bad-weather", "id: worse-weather").replace("today", "tomorrow")
    (workshop / "house" / "worse-weather.md").write_text(second)
    (workshop / "marks").mkdir()
    script = (PROGRAMS / "weather.py", workshop / "marks", 2, "today", "tomorrow")
    done = launch(workshop, "--nproc=1", "--catalogue=house", f"--fix={fix}", *script)
    assert done.returncode == code
    assert words in done.stderr


def test_what_was_killed_once_is_restarted(tmp_path: Path) -> None:
    """Exit code 137 means that the same job may be started again."""
    script = (
        "import os, signal\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1':\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "train.py").write_text(script)
    done = launch(tmp_path, "--nproc=2", "--max-restarts=1", "train.py")
    assert done.returncode == 0, done.stderr
    assert "restarting with the same plan, 1 of 1" in done.stderr
