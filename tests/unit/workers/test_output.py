"""Workers' output to logs and console, with prefixes and filters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safe_launch.core.output_routing import ERR, EVERY, OUT, Streams
from safe_launch.system import private_files
from safe_launch.workers import output
from safe_launch.workers.output import Output


@contextmanager
def passing(
    folder: Path, asked: Streams, ranks: range = range(2), role: str = "trainer"
) -> Iterator[tuple[dict[tuple[int, int], int], Output, list[str]]]:
    """Workers' pipes by rank and stream, closed at the end, and the warnings."""
    warnings: list[str] = []
    passed = Output(folder, warnings.append, asked, role)
    passed.open(ranks)
    ends = {(stream.rank, stream.console): os.dup(stream.writer) for stream in passed.streams}
    passed.start()
    yield ends, passed, warnings
    for end in ends.values():
        os.close(end)
    passed.finish(lambda: False)


def test_all_is_shown_and_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each stream goes to its console stream and the rank's log; the last lines are kept."""
    with passing(tmp_path, Streams()) as (ends, passed, warnings):
        os.write(ends[0, OUT], b"to stdout\n")
        os.write(ends[1, ERR], b"50%\r100%\nlast words")
    assert capfd.readouterr() == ("to stdout\n", "50%\r100%\nlast words")
    assert (tmp_path / "rank-0.log").read_text() == "to stdout\n"
    assert (tmp_path / "rank-1.log").read_bytes() == b"50%\r100%\nlast words"
    assert passed.tail(1) == ("50%", "100%", "last words")
    assert not warnings


def test_what_is_redirected_or_headed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Redirected streams get separate files; teed ones have a rank prefix."""
    asked = Streams(redirected=((0, OUT),), teed=((1, OUT),))
    with passing(tmp_path, asked) as (ends, _, _):
        os.write(ends[0, OUT], b"hidden\n")
        os.write(ends[1, OUT], b"a\nb\n")
    assert capfd.readouterr().out == "[trainer1]:a\n[trainer1]:b\n"
    assert (tmp_path / "rank-0.stdout.log").read_text() == "hidden\n"
    assert (tmp_path / "rank-1.stdout.log").read_text() == "a\nb\n"


def test_chosen_lines_have_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Matching lines with their rank, including an unfinished last line."""
    asked = Streams(words=((OUT, ("loss",)),), shown=frozenset())
    with passing(tmp_path, asked, range(4, 5)) as (ends, _, _):
        os.write(ends[4, OUT], b"begin\nlo")
        os.write(ends[4, OUT], b"ss 1\nloss 2")
    assert capfd.readouterr().out == ""
    chosen = (tmp_path / "filtered_stdout.log").read_text()
    assert chosen == "[trainer0]:loss 1\n[trainer0]:loss 2\n"


def test_a_folder_in_place_of_the_console(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each rank gets a file, as in deepspeed."""
    (folder := tmp_path / "asked").mkdir()
    with passing(tmp_path, Streams(folder=folder), range(1)) as (ends, _, _):
        os.write(ends[0, OUT], b"line\n")
    assert capfd.readouterr().out == ""
    (path,) = folder.iterdir()
    assert path.name.endswith("_rank0.log")
    assert path.read_text() == "line\n"


def test_logs_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One message for each log; the output is still shown."""
    with passing(tmp_path / "nowhere", Streams(teed=((EVERY, OUT),)), range(1)) as (ends, _, said):
        os.write(ends[0, OUT], b"line\n")
    assert capfd.readouterr().out == "[trainer0]:line\n"
    assert len(said) == 2
    assert said[0].startswith("rank 0's log isn't written (")


def test_a_full_disk(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is closed; the message doesn't claim that the training continues."""
    monkeypatch.setattr(private_files, "_opened", lambda *_: os.open("/dev/full", os.O_WRONLY))
    with passing(tmp_path, Streams(), range(1)) as (ends, _, said):
        os.write(ends[0, OUT], b"one\n")
        os.write(ends[0, ERR], b"two\n")
    assert sorted(capfd.readouterr()) == ["one\n", "two\n"]
    (warning,) = said
    assert f"isn't written any further ({tmp_path}/rank-0.log: No space left" in warning
    assert warning.endswith("the training doesn't depend on it")


def test_a_pipe_that_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's leftover child may hold it; it isn't waited for."""
    monkeypatch.setattr(output, "PATIENCE", 0.01)
    passed = Output(tmp_path, print)
    passed.open(range(1))
    held = [os.dup(stream.writer) for stream in passed.streams]
    passed.start()
    passed.finish(lambda: False)
    for end in held:
        os.close(end)


def test_the_tail_has_no_binary_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The tail has text only; the log itself is complete."""
    garbage = bytes(range(128, 256)) + b"\0\1\2\n"
    with passing(tmp_path, Streams(shown=frozenset()), range(1)) as (ends, passed, _):
        os.write(ends[0, OUT], b"one\n" + garbage + b"two\n" + garbage)
    assert capfd.readouterr().out == ""
    assert passed.tail(0) == ("one", "two")
    assert garbage in (tmp_path / "rank-0.log").read_bytes()


def test_the_tail_has_an_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Only the last lines are kept, however much was printed."""
    with passing(tmp_path, Streams(shown=frozenset()), range(1)) as (ends, passed, _):
        for number in range(50):
            os.write(ends[0, OUT], b"%d %s\n" % (number, b"x" * 4000))
    assert capfd.readouterr().out == ""
    assert passed.tail(0)[-1].startswith("49 ")
    assert sum(map(len, passed.tails[0])) <= output.TAIL + (64 << 10)
    assert (tmp_path / "rank-0.log").stat().st_size > 200_000
