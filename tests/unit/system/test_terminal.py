"""What is printed, and where nobody reads it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest
from safe_launch.system import terminal


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    """Nobody wants quiet, before and after."""
    terminal.be_quiet(wanted=False)
    yield
    terminal.be_quiet(wanted=False)


def test_every_line_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """Also those within one text; on stderr."""
    terminal.say("one\ntwo", "")
    captured = capsys.readouterr()
    assert captured.err == "[safe-launch] one\n[safe-launch] two\n[safe-launch]\n"
    assert captured.out == ""


def test_quiet_leaves_out_what_nobody_misses(capsys: pytest.CaptureFixture[str]) -> None:
    """And no more."""
    terminal.be_quiet(wanted=True)
    assert terminal.is_quiet()
    terminal.tell("left out")
    terminal.say("kept")
    assert capsys.readouterr().err == "[safe-launch] kept\n"


def test_documents_and_tracebacks_are_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """The former on stdout; a line's end is added where it's missing."""
    terminal.show("{}")
    terminal.verbatim("Traceback\n")
    assert capsys.readouterr() == ("{}\n", "Traceback\n")


class Gone(io.StringIO):
    """A stream that nobody reads any more."""

    def write(self, _text: str, /) -> int:
        """Fails."""
        raise BrokenPipeError


def test_a_console_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No error for what is said; a document that nobody reads ends the command well."""
    monkeypatch.setattr(sys, "stderr", Gone())
    terminal.say("to nobody")
    terminal.verbatim("to nobody")
    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(SystemExit) as caught:
        terminal.show("to nobody")
    assert caught.value.code == 0


def test_a_table_is_aligned_and_wrapped() -> None:
    """Paragraphs begin under the text, a label without one stands alone."""
    rows = [("plan", "word " * 30 + "\nnext"), ("empty", "")]
    first, second, paragraph, last = terminal.table(rows)
    assert first.startswith("  plan     word")
    assert second.startswith("           word")
    assert paragraph == "           next"
    assert last.rstrip() == "  empty"
    assert max(map(len, (first, second))) <= terminal.WIDTH - len(terminal.MARK)
