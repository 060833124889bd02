"""The one module that prints: what the launcher has to say, marked as its own, on stderr."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable

MARK = "[safe-launch] "
WIDTH = 100
_quiet = False


def say(*lines: str) -> None:
    """Prints lines, each behind the launcher's mark; a console that is gone is no error."""
    text = "".join(f"{MARK}{line}".rstrip() + "\n" for text in lines for line in text.split("\n"))
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def tell(*lines: str) -> None:
    """Like `say`, but silent where the user wants quiet."""
    if not _quiet:
        say(*lines)


def is_quiet() -> bool:
    """Whether the user wants no more than what is needed."""
    return _quiet


def be_quiet(*, wanted: bool) -> None:
    """Whether `tell` leaves out what it is given, from now on."""
    global _quiet
    _quiet = wanted


def show(text: str) -> None:
    """Prints a document that was asked for, on stdout.

    Raises:
        SystemExit: nobody reads any more (`| head`).
    """
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(0) from None


def verbatim(text: str) -> None:
    """Prints somebody else's text, a traceback, unmarked and whole, on stderr."""
    try:
        sys.stderr.write(text if text.endswith("\n") else f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def table(rows: Iterable[tuple[str, str]], indent: int = 2) -> list[str]:
    """Rows of a label and a text, the texts wrapped and aligned."""
    lines = []
    for label, text in rows:
        head = f"{' ' * indent}{label:<9}"
        for number, paragraph in enumerate(text.split("\n")):
            lines += textwrap.wrap(
                paragraph,
                WIDTH - len(MARK),
                initial_indent=head if number == 0 else " " * len(head),
                subsequent_indent=" " * len(head),
                break_long_words=False,
                break_on_hyphens=False,
            ) or [head]
    return lines
