"""Pages on what no message tells, by what a person sees; each leads to known failures."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from ..system import regular_files

LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
"""A link in Markdown; the topics' have a known failure's name as their text."""


def topics() -> dict[str, Path]:
    """The files of the pages, by name."""
    folder = Path(str(files("safe_launch.presets.topics")))
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def topic_text(path: Path) -> str:
    """A page as a terminal shows it: links are the names that `safe-launch explain` takes."""
    return LINK.sub(r"\1", regular_files.read_text(path)).strip()
