"""Reads an entry's conditions on the evidence: signatures, versions and variants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from signal import Signals
from types import MappingProxyType
from typing import Any

from ..core.nearest import near
from ..system.typed_files import DocumentError, line_of
from .regex import LinearPattern, PatternError, compiled
from .signature import Signature
from .situation import Device
from .variant import Variant
from .version_skew import Wanting

PATTERNS = ("message", "source", "through", "log", "context", "library")
"""Keys with patterns as values."""
MEMBERS: Mapping[str, type[StrEnum]] = {"wanted_by": Wanting, "device": Device}
"""Keys with enumerated values."""


@dataclass(frozen=True, slots=True)
class Place:
    """A key of a front matter, or an item of the list under it, for messages.

    Attributes:
        path: the entry's file.
        key: the key.
        text: the front matter; None for a packed entry, which has been checked.
        number: the item's place in the list, from 0; None for the key itself.
    """

    path: Path
    key: str
    text: str | None
    number: int | None = None

    def item(self, number: int) -> Place:
        """An item of the list under the key."""
        return replace(self, number=number)

    def error(self, problem: str, hint: str = "") -> DocumentError:
        """An error at this key or item, with its line."""
        text = self.text or ""
        line = line_of(self.key, text, first_line=2)
        if self.number is not None:
            below = text.splitlines()[line - 1 :]
            items = [at for at, row in enumerate(below) if re.match(r" *- ", row)]
            line += 1 + items[self.number] if self.number < len(items) else 0
        return DocumentError(self.path, line, f"{self.key}: {problem}", hint)


def read_signature(place: Place, raw: dict[str, str | bool]) -> Signature:
    """Reads a signature.

    Raises:
        DocumentError: unknown key, wrong value or too few parts.
    """
    known = [field.name for field in fields(Signature) if field.name != "also_user_code"]
    parts: dict[str, Any] = {}
    for key, value in raw.items():
        _check_key(place, key, known)
        if key in ("oom_kill", "finished"):
            if not (value is True or (value is False and key == "finished")):
                raise place.error(f"{key} is true or left out: {value}")
            parts[key] = value
        elif key == "signal" and isinstance(value, str):
            if value not in Signals.__members__:
                raise place.error(f"no signal `{value}`", near(value, Signals.__members__))
            parts[key] = Signals[value].value
        else:
            parts[key] = _part(place, key, value)
    if not parts.keys() - {"exception", "file", "context", "finished"}:
        raise place.error("an exception's type alone is no signature")
    return Signature(**parts)


def read_variant(place: Place, raw: dict[str, Any]) -> Variant:
    """Reads a variant.

    Raises:
        DocumentError: unknown key, wrong value, no condition or no advice, or an unknown name in
            the advice.
    """
    known = [field.name for field in fields(Variant)]
    parts: dict[str, Any] = {}
    for key, value in raw.items():
        _check_key(place, key, known)
        if key == "when":
            if not isinstance(value, dict):
                raise place.error(f"when: version ranges by distribution are expected: {value}")
            parts[key] = MappingProxyType(read_ranges(place, value))
        else:
            parts[key] = _part(place, key, value)
    if not parts.keys() - {"do", "title"}:
        raise place.error("without a condition it would hold for everybody: put it into the prose")
    if not parts.get("do", "").strip():
        raise place.error("`do` is missing: the remedy in this case")
    variant = Variant(**{**parts, "do": " ".join(parts["do"].split())})
    for name in () if place.text is None else variant.unknown:
        hint = f"write (?P<{name}>...) in a pattern of the variant"
        hint = near(name, variant.known) if variant.known else hint
        raise place.error(f"do: no pattern finds `{name}`", hint)
    return variant


def read_ranges(place: Place, raw: dict[str, Any]) -> dict[str, str]:
    """Reads version ranges by distribution.

    Raises:
        DocumentError: a value isn't a version range.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    for name, allowed in () if place.text is None else raw.items():
        try:
            SpecifierSet(str(allowed))
        except InvalidSpecifier:
            problem = f"`{name}: {allowed}` isn't a version range"
            raise place.error(problem, 'e.g. ">=0.14,<0.19.3"') from None
    return dict(raw)


def _check_key(place: Place, key: str, known: Iterable[str]) -> None:
    if key not in known:
        raise place.error(f"unknown key `{key}`", near(key, known))


def _without_period(pattern: str) -> str:
    """A message's pattern without its last period, which people leave out as they copy."""
    if pattern.endswith(r"\.$"):
        return f"{pattern.removesuffix('$')}?$"
    return pattern.removesuffix(r"\.") if not pattern.endswith(r"\\.") else pattern


def _part(place: Place, key: str, value: object) -> str | LinearPattern:
    """Reads the value of a key of a signature or a variant.

    Raises:
        DocumentError: the value isn't a text, an allowed word or a pattern, or it is a pattern
            that matches any line.
    """
    if not isinstance(value, str):
        raise place.error(f"`{key}` is a text, put quotes around {value}")
    if key in MEMBERS:
        if value not in list(MEMBERS[key]):
            raise place.error(f"{key}: `{value}`", near(value, MEMBERS[key]))
        return MEMBERS[key](value)
    if key not in PATTERNS:
        return value
    pattern = compiled(_without_period(value) if key == "message" else value)
    if place.text is None:
        return pattern
    try:
        matches_all = pattern.search("") is not None
    except PatternError as error:
        raise place.error(f"{key}: {error}: {value}") from error
    if key == "log" and matches_all:
        raise place.error(f"log: an empty line matches: {value}")
    return pattern
