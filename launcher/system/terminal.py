"""The only module that prints: the launcher's messages go to stderr, with its mark.

Control characters other than line breaks and tabs are removed: names of files, messages of
exceptions and texts from other hosts can't control the terminal.
"""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from ..core.errors import ExitCode, LaunchError
from ..core.quotation import cleaned
from .redaction import redacted

MARK = "[safe-launch] "
WIDTH = 100
Row = tuple[str, str]
"""A row of a table: a label and its text, of one or more lines."""
_quiet = False
_verbose = False
_begun: set[int] = set()
"""Descriptors of stdout and stderr on which another program has begun a line."""


def note_passed_on(descriptor: int, text: bytes) -> None:
    """Notes another program's output that was written to stdout or stderr."""
    if text.endswith(b"\n"):
        _begun.discard(descriptor)
    elif text:
        _begun.add(descriptor)


def _new_line() -> str:
    """The characters that end a line begun on stderr by another program, such as a progress bar."""
    here = {2}
    with suppress(OSError):  # one of them is closed
        if os.path.sameopenfile(1, 2):
            here.add(1)
    is_begun = bool(_begun & here)
    _begun.difference_update(here)
    return "\n" if is_begun else ""


def open_missing() -> None:
    """Opens the null device for each standard stream that is closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def say(*lines: str) -> None:
    """Prints separate lines with the launcher's mark; a closed console isn't an error."""
    parts = [line for text in lines for line in text.split("\n")]
    _complain("".join(f"{MARK}{line}".rstrip() + "\n" for line in parts))


UNBROKEN = "\u00a0"
"""A space at which `table` doesn't break a line; it is printed as an ordinary one."""


def tell(*lines: str) -> None:
    """Like `say`, but silent under `--quiet`."""
    if not _quiet:
        say(*lines)


def detail(*lines: str) -> None:
    """Like `say`, but only under `--verbose`: for explanations without a need to act."""
    if _verbose:
        say(*lines)


def reassure(sentence: str) -> None:
    """Explains a wait, if stderr is a terminal."""
    with suppress(OSError, ValueError):  # it is closed
        if sys.stderr.isatty():
            tell(sentence)


def is_quiet() -> bool:
    """Whether `--quiet` was given."""
    return _quiet


def be_quiet(*, wanted: bool) -> None:
    """Sets whether `tell` is silent."""
    global _quiet
    _quiet = wanted


def is_verbose() -> bool:
    """Whether `detail` prints."""
    return _verbose


def be_verbose(*, wanted: bool) -> None:
    """Sets whether `detail` prints."""
    global _verbose
    _verbose = wanted


def show(text: str, before: str = "") -> None:
    """Prints a requested document on stdout, after a terminal's control sequence if any.

    Raises:
        SystemExit: the reader is gone (`| head`).
        LaunchError: it can't be written.
    """
    try:
        text = _encodable(before + cleaned(text), sys.stdout)
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up(sys.stdout)
        raise SystemExit(128 + signal.SIGPIPE) from None
    except OSError as error:
        _give_up(sys.stdout)
        problem, hint = "the output can't be written", "send it elsewhere"
        raise LaunchError.because(error, problem, hint, code=ExitCode.CANNOT_WRITE) from error


def _encodable(text: str, stream: TextIO) -> str:
    """A text with escapes for characters outside the stream's encoding, and for non-UTF-8 bytes."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _give_up(stream: TextIO) -> None:
    """Discards a stream's buffer, whose flush at the interpreter's end would fail.

    https://docs.python.org/3/library/signal.html#note-on-sigpipe
    """
    with suppress(OSError, ValueError):  # it isn't a file, or closed
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)


def verbatim(text: str) -> None:
    """Prints another program's text, e.g. a traceback, unmarked and in full on stderr."""
    _complain(text if text.endswith("\n") else f"{text}\n")


def _complain(text: str) -> None:
    """Writes to stderr, without secrets; a closed console isn't an error."""
    try:
        printable = _encodable(cleaned(redacted(text)), sys.stderr)
        sys.stderr.write((_new_line() if text else "") + printable)
        sys.stderr.flush()
    except (OSError, ValueError):
        _give_up(sys.stderr)


WHOLE = ("do", "run", "else")
"""Labels of texts that are read first, pasted or searched for, so they aren't wrapped."""


def table(rows: Iterable[Row], indent: int = 2) -> list[str]:
    """Rows of a label and a text, the texts wrapped and aligned; never at a no-break space."""
    lines = []
    for label, text in rows:
        head = f"{' ' * indent}{label:<9}"
        for number, paragraph in enumerate(text.split("\n")):
            start = head if number == 0 else " " * len(head)
            lines += [f"{start}{paragraph}"] if label in WHOLE else _wrapped(paragraph, start)
    return [line.replace(UNBROKEN, " ") for line in lines]


def columns(rows: Sequence[Sequence[str]], right: Set[int] = frozenset()) -> list[str]:
    """Rows of cells as aligned lines; the numbers of columns in `right` are aligned right."""
    aligned = []
    for number, column in enumerate(zip(*rows, strict=True)):
        width = max(map(len, column))
        align = str.rjust if number in right else str.ljust
        aligned.append([align(cell, width) for cell in column])
    return ["  ".join(row).rstrip() for row in zip(*aligned, strict=True)]


def _wrapped(paragraph: str, start: str) -> list[str]:
    return textwrap.wrap(
        paragraph,
        WIDTH - len(MARK),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start]
