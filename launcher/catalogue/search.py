"""Finds entries by words, and pages of topics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ..evidence.failure_record import FailureRecord
from ..system import regular_files
from .advice import cases
from .entry import Kind, KnownFailure
from .signature import Signature

CLASSES = {
    Kind.PRESET: "another preset cures it",
    Kind.MEMORY: "a smaller plan cures it",
    Kind.SILENT: "trains differently than asked, without an error; avoided or reported at launch",
    Kind.USER: "the code, the data or the environment must change",
    Kind.TRANSIENT: "the same launch may be tried again",
    Kind.HARDWARE: "it needs another node",
}
"""Classes in words, in the order of listings."""

EXCEPTION = re.compile(
    r"^(?:\[[^\]]*\]:? *)?([\w.]*(?:Error|Exception|Warning|Interrupt)): ", re.MULTILINE
)
"""An exception's type before its message, as in the last line of a traceback."""
MOST = 12
"""Maximum entries to list if only words match."""
EMPTY = {
    *("a", "an", "and", "are", "as", "at", "be", "but", "by", "can", "do", "does", "error"),
    *("failed", "for", "from", "has", "have", "i", "if", "in", "is", "it", "its", "my", "not"),
    *("of", "on", "or", "that", "the", "this", "to", "traceback", "was", "when", "while"),
    *("why", "with", "you"),
}
"""Ignored words."""
SECTION = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
ENTRY = re.compile(r"\]\(\.\./failures/(?P<id>[\w.-]+)\.md\)")
"""A link to a known failure."""
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
"""A link in Markdown, whose text in topics is a known failure's name."""


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry found by a search."""

    entry: KnownFailure
    is_shown: bool = False
    shared: int = 0


def search(text: str, entries: Sequence[KnownFailure]) -> tuple[Hit, ...]:
    """Entries whose signatures match the text, or else entries that share words with it.

    Sorted by number of shared words, then by their rarity; words of name and title count twice.
    Entries with at most half as many shared words as the first are left out.
    """
    terms = words(text)
    known = {entry.id: vocabulary(entry) for entry in entries}
    hits = [Hit(entry, is_shown(text, entry), len(terms & known[entry.id])) for entry in entries]
    shown = [hit for hit in hits if hit.is_shown]
    if not shown:
        most = max((hit.shared for hit in hits), default=0)
        hits = [hit for hit in hits if hit.shared > most / 2]
    ranked = shown or hits
    rarity = {word: 1 / max(1, sum(word in others for others in known.values())) for word in terms}

    def closeness(entry: KnownFailure) -> float:
        both = [*(terms & known[entry.id]), *(terms & words(f"{entry.id} {entry.title}"))]
        return sum(rarity[word] for word in both)

    ranked.sort(key=lambda hit: (-hit.shared, -closeness(hit.entry), hit.entry.id))
    return tuple(ranked if shown else ranked[:MOST])


def is_shown(text: str, entry: KnownFailure) -> bool:
    """Whether the text, as an exception's message or as lines of a log, matches the failure.

    Uses the exception's type if it precedes the message, as in the last line of a traceback;
    without a type, any type matches.
    """
    return any(
        signature.matches(record)
        for signature in entry.signatures
        if signature.message is not None or signature.log is not None
        for record in _records(text, signature)
    )


def _records(text: str, signature: Signature) -> Iterator[FailureRecord]:
    """Possible records of the text, with the signature's other requirements."""
    kills = int(signature.oom_kill)
    lines = tuple(text.splitlines())
    if signature.message is None:
        yield FailureRecord(None, 0.0, signal=signature.signal, oom_kills=kills, log_tail=lines)
        return
    named = list(EXCEPTION.finditer(text))
    for match in named:
        message = text[match.end() :]
        yield FailureRecord(None, 0.0, match[1], message, oom_kills=kills, log_tail=lines)
    if not named:
        name = signature.exception or "builtins.Exception"
        yield FailureRecord(None, 0.0, name, text, oom_kills=kills, log_tail=lines)


def words(text: str) -> frozenset[str]:
    """The words of a text in the singular, without ignored ones."""
    distinct = set(re.findall(r"[a-z0-9_]{2,}", text.lower())) - EMPTY
    return frozenset(re.sub(r"(?<=[^\Ws]{3})s$", "", word) for word in distinct)


def vocabulary(entry: KnownFailure) -> frozenset[str]:
    """All words of an entry: its name and its parts, its title, prose and patterns."""
    patterns = (
        part if isinstance(part, str) else part.pattern
        for signature in entry.signatures
        for part in (
            signature.exception,
            signature.function,
            signature.message,
            signature.log,
            signature.context,
            signature.source,
        )
        if part is not None
    )
    of_cases = (text for case in cases(entry) for text in case)
    text = " ".join([entry.id, entry.title, *entry.sections.values(), *patterns, *of_cases])
    return words(text) | words(text.replace("_", " "))


def by_class(entries: Sequence[KnownFailure]) -> dict[Kind, list[KnownFailure]]:
    """The entries by class, in the order of listings, without empty classes."""
    groups = {kind: [entry for entry in entries if entry.kind is kind] for kind in CLASSES}
    return {kind: group for kind, group in groups.items() if group}


def listing(entries: Sequence[KnownFailure]) -> str:
    """All entries by class, one per line."""
    width = max((len(entry.id) for entry in entries), default=0)
    parts = []
    for kind, group in by_class(entries).items():
        lines = [f"  {entry.id:<{width}}  {entry.title}" for entry in group]
        parts.append("\n".join([f"{kind.value}: {CLASSES[kind]}", *lines]))
    return "\n\n".join(parts)


def hits_text(hits: Sequence[Hit]) -> str:
    """The results of a search, one per line."""
    width = max((len(hit.entry.id) for hit in hits), default=0)
    kinds = max((len(hit.entry.kind.value) for hit in hits), default=0)
    return "\n".join(
        f"{hit.entry.id:<{width}}  {hit.entry.kind.value:<{kinds}}  {hit.entry.title}"
        for hit in hits
    )


def document(hits: Sequence[Hit]) -> list[dict[str, object]]:
    """The results as `catalogue --json` prints them."""
    return [
        {
            "id": hit.entry.id,
            "title": hit.entry.title,
            "class": hit.entry.kind.value,
            "role": hit.entry.role.value,
            "matched": "signature" if hit.is_shown else "words",
            "when": dict(hit.entry.when),
            "proof": hit.entry.proof,
            "sources": hit.entry.sources,
        }
        for hit in hits
    ]


def topics() -> dict[str, Path]:
    """The files of the pages, by name."""
    folder = Path(str(files("safe_launch.presets.topics")))
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def topic_text(path: Path) -> str:
    """A page for the terminal: links become names for `safe-launch explain`."""
    return _linkless(regular_files.read_text(path))


def topic_document(path: Path) -> dict[str, object]:
    """A page as JSON values: its sections with linked known failures."""
    head, *parts = SECTION.split(regular_files.read_text(path))
    title, _, above = head.strip().removeprefix("# ").partition("\n")
    sections = [
        {
            "title": name,
            "text": _linkless(text),
            "entries": [*dict.fromkeys(ENTRY.findall(text))],
        }
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    return {"id": path.stem, "title": title, "summary": _linkless(above), "sections": sections}


def _linkless(text: str) -> str:
    return LINK.sub(r"\1", text).strip()
