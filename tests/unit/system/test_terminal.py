"""Output to terminals, and to readers that are gone."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safe_launch.core.errors import ExitCode
from safe_launch.system import terminal


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    """Resets quiet mode before and after."""
    terminal.be_quiet(wanted=False)
    yield
    terminal.be_quiet(wanted=False)


def test_every_line_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line of a text has the prefix, on stderr."""
    terminal.say("one\ntwo", "")
    captured = capsys.readouterr()
    assert captured.err == "[safe-launch] one\n[safe-launch] two\n[safe-launch]\n"
    assert captured.out == ""


EVIL = "name\x1b]0;title\x07 \x1b[2Jof\x1bPdevice\x1b\\ a\r \x9b31mfile\u202e\x85.py"


@pytest.mark.parametrize("printing", [terminal.say, terminal.show, terminal.verbatim])
def test_nothing_drives_the_terminal(
    printing: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """C0, C1, OSC and bidi characters in any text are neutralized."""
    printing(f"first\n{EVIL}\tlast")
    captured = capsys.readouterr()
    text = (captured.out + captured.err).replace(terminal.MARK, "")
    assert text == "first\nname of a 31mfile.py\tlast\n"


def test_quiet_leaves_out_what_nobody_misses(capsys: pytest.CaptureFixture[str]) -> None:
    """Quiet mode omits routine lines only."""
    terminal.be_quiet(wanted=True)
    assert terminal.is_quiet()
    terminal.tell("left out")
    terminal.say("kept")
    assert capsys.readouterr().err == "[safe-launch] kept\n"


def test_documents_and_tracebacks_are_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Documents go to stdout; a missing final newline is added."""
    terminal.show("{}")
    terminal.verbatim("Traceback\n")
    assert capsys.readouterr() == ("{}\n", "Traceback\n")


class Gone(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, _text: str, /) -> int:
        """Fails."""
        raise BrokenPipeError


def test_a_console_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages raise no error; an unread document ends the command like SIGPIPE."""
    monkeypatch.setattr(sys, "stderr", Gone())
    terminal.say("to nobody")
    terminal.verbatim("to nobody")
    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(SystemExit) as caught:
        terminal.show("to nobody")
    assert caught.value.code == 141


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["catalogue"]])
def test_a_document_that_cannot_be_written(words: list[str]) -> None:
    """The reason and its exit code, without the interpreter's own message."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "safe_launch.cli", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == ExitCode.CANNOT_WRITE
    assert done.stderr == (
        "[safe-launch] error: the output can't be written: No space left on device\n"
        "[safe-launch] hint: make room there, or send it elsewhere\n"
    )


def test_a_reader_that_has_gone() -> None:
    """`| head` on a document longer than a pipe: no message, and SIGPIPE's code."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "safe_launch.cli", "explain"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_table_is_aligned_and_wrapped() -> None:
    """Paragraphs align with the text; a label without one is on its own line."""
    rows = [("plan", "word " * 30 + "\nnext"), ("empty", "")]
    first, second, paragraph, last = terminal.table(rows)
    assert first.startswith("  plan     word")
    assert second.startswith("           word")
    assert paragraph == "           next"
    assert last.rstrip() == "  empty"
    assert max(map(len, (first, second))) <= terminal.WIDTH - len(terminal.MARK)


@pytest.mark.parametrize(
    ("passed_on", "expected"),
    [
        ([(2, b"\r 50%|###   |")], "\n[safe-launch] one\n[safe-launch] two\n"),
        ([(2, b"\r 50%|###   |\r")], "\n[safe-launch] one\n[safe-launch] two\n"),
        ([(2, b" 50%"), (2, b"\n")], "[safe-launch] one\n[safe-launch] two\n"),
        ([(2, b"loss 1.0\n"), (2, b"")], "[safe-launch] one\n[safe-launch] two\n"),
    ],
)
def test_a_line_begins_on_a_line_of_its_own(
    passed_on: list[tuple[int, bytes]], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a progress bar, too, without extra blank lines."""
    for descriptor, text in passed_on:
        terminal.note_passed_on(descriptor, text)
    terminal.say("one")
    terminal.say("two")
    assert capsys.readouterr().err == expected


BEHIND_STDOUT = """
from safe_launch.system import terminal
terminal.note_passed_on(1, b"step 1")
terminal.say("one")
terminal.note_passed_on(1, b"step 2")
terminal.verbatim("two")
"""


def test_stdout_counts_where_it_is_the_same_terminal() -> None:
    """On another terminal, its unfinished line doesn't matter."""
    command = [sys.executable, "-c", BEHIND_STDOUT]
    pipe, same = subprocess.PIPE, subprocess.STDOUT
    apart = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=pipe, text=True, check=True)
    assert apart.stderr == "[safe-launch] one\ntwo\n"
    together = subprocess.run(command, stdout=pipe, stderr=same, text=True, check=True)
    assert together.stdout == "\n[safe-launch] one\n\ntwo\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminal_cannot_show_is_escaped(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters outside its encoding, and non-UTF-8 bytes of names."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    text = "100 \u20ac in caf\udce9"
    terminal.show(text)
    terminal.say(text)
    for stream in (sys.stdout, sys.stderr):
        said = stream.buffer.getvalue().decode(encoding)
        euro = "\u20ac" if encoding == "utf-8" else "\\u20ac"
        assert f"100 {euro} in caf\\udce9" in said
