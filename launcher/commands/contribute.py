"""`safe-launch diagnose --contribute`: an excerpt of a log for others, and an entry for it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from ..catalogue.entry import KnownFailure
from ..catalogue.reader import read_catalogue
from ..catalogue.search import EMPTY
from ..core.errors import ExitCode, LaunchError
from ..core.reasons import hint_of, reason_of
from ..evidence.failure_record import FailureRecord
from ..logs import pasted, sources
from ..logs.launcher_messages import is_users
from ..logs.reader import Reader
from ..logs.scrubbed import scrubbed
from ..logs.verdict import Judgement, Verdict, decisive, judge
from ..system import private_files, terminal

BEFORE, AFTER = (60, 400), 12
"""Lines before and after a failure that an excerpt has; the more only if the fewer say less."""
CHUNK = 1 << 20
TITLE, PATTERN = 90, 120
"""Characters of an entry's title and of its pattern, about."""
SPECIAL = re.compile(r"([\\.^$*+?{}()\[\]|])")
LIBRARY = re.compile(r"^.*/(?:(?:site|dist)-packages|lib/python3[\d.]*)/")
ENTRY = """\
---
id: {name}
title: '{title}'
role: initiating  # or cascade, teardown
class: user  # or preset, transient, hardware, memory
signatures:
{signature}
proof:
  - reported
sources: []
---

## What happens

What leads to it isn't described yet.

## What to do

What cures it isn't described yet.

## Seen as

```
{excerpt}
```
"""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What can be given to others.

    Attributes:
        name: of both files, and of the entry.
        excerpt: the lines around the failure, without what is private.
        entry: a skeleton of an entry; empty for a known failure, and without an exception.
        is_same: the excerpt is diagnosed like the whole log.
    """

    name: str
    excerpt: str
    entry: str
    is_same: bool


def contribute(found: Judgement, catalogue: Sequence[KnownFailure], folder: Path | None) -> None:
    """Prints an excerpt and an entry, and writes them to new files in the folder, if there is one.

    Args:
        found: the judgement on the log.
        catalogue: the known failures.
        folder: the folder to write to, made if missing; None to print only.

    Raises:
        LaunchError: there is no failure, or the log or the folder can't be used.
    """
    made = contribution(found, catalogue, folder)
    texts = {f"{made.name}.log": made.excerpt, f"{made.name}.md": made.entry}
    for name, text in texts.items():
        if text:
            terminal.show(f"\n{name}:\n\n{text}")
    says = "like the whole log" if made.is_same else "in another way than the log: compare them"
    terminal.say(f"the excerpt is diagnosed {says}")
    if not made.entry:
        terminal.say(
            "no entry is proposed: the failure is known, or has no exception to know it by"
        )
    terminal.say("look for what is still private before you give it to others")
    if folder is None:
        terminal.say("nothing is written: --contribute FOLDER writes it there")
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            if text:
                with private_files.create(folder / name) as file:
                    file.write(text.encode(errors="backslashreplace"))
                terminal.say(f"written: {folder / name}")
    except OSError as error:
        problem = f"--contribute {folder}: it can't be written: {reason_of(error)}"
        raise LaunchError(ExitCode.USAGE, problem, hint_of(error)) from None


def contribution(
    found: Judgement, catalogue: Sequence[KnownFailure], folder: Path | None
) -> Contribution:
    """The excerpt and the entry for a log's failure.

    Raises:
        LaunchError: there is no failure, or the log can't be read again.
    """
    root = found.root
    if root is None:
        problem = "--contribute: the log shows no failure, so there is nothing to contribute"
        raise LaunchError(ExitCode.USAGE, problem)
    numbers = [number for number, _ in root.evidence.lines]
    if root.evidence.file == sources.STDIN:
        problem = "--contribute: the standard input can't be read twice"
        raise LaunchError(ExitCode.USAGE, problem, "give it as a file")
    excerpt = ""
    for before in BEFORE:
        lines = _lines(root.evidence.file, min(numbers) - before, max(numbers) + AFTER)
        excerpt = scrubbed("\n".join(lines)) + "\n"
        if is_same := _is_same(found, _judged(excerpt, catalogue)):
            break
    record = root.finding.record
    name = _free(folder, root.finding.entry.id if root.finding.entry else _name(record))
    entry = "" if root.finding.entry else _entry(name, record, excerpt)
    if entry:
        with TemporaryDirectory() as place:
            (Path(place) / f"{name}.md").write_text(entry, encoding="utf-8")
            known = _judged(excerpt, (*catalogue, *read_catalogue(Path(place)))).root
        is_same &= known is not None and known.finding.name == name
    return Contribution(name, excerpt, entry, is_same)


def _judged(text: str, catalogue: Sequence[KnownFailure]) -> Judgement:
    """The judgement on a text; one that was copied by hand is restored first."""
    log = text.encode(errors="backslashreplace")
    results = []
    for content in pasted.restored(log):
        reader = Reader(catalogue)
        reader.read("excerpt.log", BytesIO(content))
        results.append(decisive(judge(reader.attempts, catalogue)))
    return next((found for found in results if found.verdict is Verdict.KNOWN), results[0])


def _is_same(one: Judgement, other: Judgement) -> bool:
    """Whether both are of the same failure."""
    if one.root is None or other.root is None or one.verdict is not other.verdict:
        return False
    first, second = one.root.finding, other.root.finding
    return (first.entry, first.record.exception) == (second.entry, second.record.exception)


def _lines(path: str, first: int, last: int) -> list[str]:
    """The lines of a file with these numbers.

    Raises:
        LaunchError: it can't be read.
    """
    kept: deque[str] = deque(maxlen=last - first + 1)
    with sources.opened(path) as file:
        for number, line in enumerate(_split(iter(lambda: file.read(CHUNK), b"")), 1):
            kept.append(line.decode("utf-8", "replace").rstrip("\r").replace("\r", "\n"))
            if number == last:
                break
    return list(kept)


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _name(record: FailureRecord) -> str:
    """A name for an unknown failure, after its exception and the first words of its message."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", record.exception.rpartition(".")[2] or "death")
    said = re.findall(r"(?<!\\)\b[a-z]{3,}", _pattern(record.message).lower())
    chosen = [word for word in said if word not in EMPTY][:5]
    return "-".join([kind.lower(), *chosen])[:70].strip("-")


def _free(folder: Path | None, name: str) -> str:
    """The name, or with a number behind it, of which the folder has no file."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    if folder is None:
        return name
    return next(
        free
        for free in names
        if not any((folder / f"{free}{suffix}").exists() for suffix in (".log", ".md"))
    )


def _entry(name: str, record: FailureRecord, excerpt: str) -> str:
    """A skeleton of an entry; empty where nothing would tell the failure from others."""
    kind = record.exception.rpartition(".")[2]
    parts = {"exception": kind, "message": _pattern(record.message)}
    frame = record.frames[-1] if record.frames else None
    if frame is not None and not is_users(frame.file):
        parts |= {"file": LIBRARY.sub("", scrubbed(frame.file)), "function": frame.function}
    parts = {key: _quoted(text) for key, text in parts.items() if text}
    if not kind or len(parts) == 1:
        return ""
    rows = [f"{key}: {text}" for key, text in parts.items()]
    title = f"{kind}: {_first_line(scrubbed(record.message))[:TITLE]}".rstrip(": ")
    return ENTRY.format(
        name=name,
        title=title.replace("'", "''"),
        signature="\n".join([f"  - {rows[0]}", *(f"    {row}" for row in rows[1:])]),
        excerpt=re.sub(r"^(#|```)", r" \1", excerpt.rstrip("\n"), flags=re.MULTILINE),
    )


def _pattern(message: str) -> str:
    """A pattern for the beginning of a message: what is private and numbers may be any."""
    words, public = (_first_line(text).split() for text in (message, scrubbed(message)))
    if len(words) != len(public):
        return ""
    parts: list[str] = []
    for word, shown in zip(words, public, strict=True):
        if sum(map(len, parts)) > PATTERN:
            break
        if word != shown:
            parts.append(r"\S+")
        else:
            parts.append(re.sub(r"(?<![A-Za-z_])\d+", r"\\d+", SPECIAL.sub(r"\\\1", word)))
    return " ".join(parts)


def _first_line(text: str) -> str:
    """The first line with words in it."""
    with suppress(StopIteration):
        return next(line.strip() for line in text.splitlines() if line.strip())
    return ""


def _quoted(text: str) -> str:
    """A text as YAML."""
    return "'" + text.replace("'", "''") + "'"
