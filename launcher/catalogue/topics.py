"""Pages on symptoms without a message, with links to known failures."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from ..system import regular_files

SECTION = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
ENTRY = re.compile(r"\]\(\.\./failures/(?P<id>[\w.-]+)\.md\)")
"""A link to a known failure."""
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
"""A link in Markdown, whose text in topics is a known failure's name."""


def topics() -> dict[str, Path]:
    """The files of the pages, by name."""
    folder = Path(str(files("safe_launch.presets.topics")))
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def topic_text(path: Path) -> str:
    """A page for the terminal: links become names for `safe-launch explain`."""
    return _plain(regular_files.read_text(path))


def topic_document(path: Path) -> dict[str, object]:
    """A page as JSON values: its sections with linked known failures."""
    head, *parts = SECTION.split(regular_files.read_text(path))
    title, _, above = head.strip().removeprefix("# ").partition("\n")
    sections = [
        {"title": name, "text": _plain(text), "entries": [*dict.fromkeys(ENTRY.findall(text))]}
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    return {"id": path.stem, "title": title, "summary": _plain(above), "sections": sections}


def _plain(text: str) -> str:
    return LINK.sub(r"\1", text).strip()
