"""Reads and checks the prose of an entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from ..core.nearest import near
from ..system.regular_files import text_of
from ..system.typed_files import DocumentError
from .situation import Trait, required

SECTIONS = ("What happens", "What to do", "What it costs", "Seen as", "Not to be confused with")
"""Allowed headings of an entry; the first two are required."""
FRONT_MATTER = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
"""The front matter before the prose."""


@cache
def sections_of(path: Path) -> Mapping[str, str]:
    """The text under each second-level heading of an entry's file.

    Raises:
        LaunchError: the file can't be read.
    """
    prose = FRONT_MATTER.sub("", text_of(path), count=1)
    parts = re.split(r"^## +(.+)$", prose, flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return MappingProxyType({heading.strip(): body.strip() for heading, body in pairs})


def check_prose(path: Path) -> None:
    """Refuses prose with an unknown heading, without advice, or with a section for no run.

    Raises:
        DocumentError: the prose is invalid.
    """
    text, sections = text_of(path), sections_of(path)
    for heading in sections:
        if heading not in SECTIONS:
            line = _line(text, f"## {heading}")
            hint = near(heading, SECTIONS)
            raise DocumentError(path, line, f"unknown heading `{heading}`", hint)
    for heading in SECTIONS[:2]:
        if not sections.get(heading):
            match = FRONT_MATTER.match(text)
            line = text.count("\n", 0, 0 if match is None else match.end()) + 1
            raise DocumentError(path, line, f"no section `{heading}`")
        for paragraph in sections[heading].split("\n\n"):
            try:
                required(paragraph)
            except ValueError as error:
                hint = near(str(error), [trait.value for trait in Trait])
                problem = f"unknown kind of run: `{error}`"
                raise DocumentError(path, _line(text, paragraph), problem, hint) from None


def _line(text: str, part: str) -> int:
    """The line of a part of a text; 1 if not found."""
    return text.count("\n", 0, max(text.find(part), 0)) + 1
