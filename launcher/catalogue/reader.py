"""Reads the known failures: one Markdown file each, front matter and prose."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from signal import Signals
from types import MappingProxyType
from typing import Any, TypeVar

from ..core.constraint import Term
from ..core.settings import VALUES, Fact, Setting, Value, name_of, parse_value
from ..system.typed_yaml import DocumentError, line_of, near, read_document, text_of
from ..workload.script.line_searches import SEARCHES
from .entry import Kind, KnownFailure, Role
from .regex import PatternError, compiled
from .signature import Signature
from .situation import Trait, required

SECTIONS = ("What happens", "What to do", "What it costs", "Seen as", "Not to be confused with")
"""The headings that an entry may have; the first two are required."""

FOR_PLANS = (b"\nforbids:", b"\npoints_at:")
"""What the front matter of an entry has that tells on a plan, before anything has failed."""

Member = TypeVar("Member", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Place:
    """A key of a front matter, for messages."""

    path: Path
    key: str
    text: str

    def error(self, problem: str, hint: str = "") -> DocumentError:
        """The error at this key; finds its line."""
        line = line_of(self.key, self.text, first_line=2)
        return DocumentError(self.path, line, problem, hint)


@dataclass(frozen=True)
class EntryDocument:
    """The front matter as written in the file; `KnownFailure` explains each part."""

    id: str = "???"
    title: str = "???"
    role: str = "???"
    class_: str = "???"
    signatures: list[dict[str, str | bool]] = field(default_factory=list)
    when: dict[str, str] = field(default_factory=dict)
    proves: dict[str, Any] = field(default_factory=dict)
    forbids: list[dict[str, Any]] = field(default_factory=list)
    points_at: str | None = None
    proof: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


def read_catalogue(
    folder: Path | None = None, *, for_plan: bool = False
) -> tuple[KnownFailure, ...]:
    """All entries of a folder, sorted by name; by default the shipped ones.

    Args:
        folder: of a cluster's own entries; every one is checked.
        for_plan: of the shipped entries read only those that can tell on a plan, which is faster.

    Raises:
        DocumentError: an entry doesn't follow the schema.
    """
    if folder is not None:
        return tuple(read_entry(path, is_site_specific=True) for path in _entries(folder))
    shipped = _entries(Path(str(files("safe_launch.presets.failures"))))
    return tuple(
        read_entry(path) for path in shipped if not for_plan or _tells_on_plans(path.read_bytes())
    )


def _tells_on_plans(text: bytes) -> bool:
    front_matter = text.partition(b"\n---\n")[0]
    return any(key in front_matter for key in FOR_PLANS)


def _entries(folder: Path) -> list[Path]:
    names = sorted(os.listdir(folder))  # noqa: PTH208 - a tenth of the time
    return [folder / name for name in names if name.endswith(".md")]


def read_entry(path: Path, *, is_site_specific: bool = False) -> KnownFailure:
    """One entry.

    Args:
        path: its file.
        is_site_specific: it belongs to a cluster, and may match errors that users' code raises.

    Raises:
        DocumentError: it doesn't follow the schema; the message names file, line and key.
    """
    text = text_of(path)
    match = re.match(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
    if match is None:
        raise DocumentError(path, 1, "front matter between two lines `---` is expected")
    document = read_document(path, match[1], EntryDocument, first_line=2)

    def place(key: str) -> Place:
        return Place(path, key, match[1])

    _check_names(document, place)
    signatures = (_signature(place("signatures"), raw) for raw in document.signatures)
    entry = KnownFailure(
        id=document.id,
        title=document.title,
        role=_member(place("role"), Role, document.role),
        kind=_member(place("class"), Kind, document.class_),
        signatures=tuple(replace(sign, also_user_code=is_site_specific) for sign in signatures),
        when=MappingProxyType(_ranges(place("when"), document.when)),
        proves=MappingProxyType(_proofs(place("proves"), document.proves)),
        forbids=tuple(_forbidden(place("forbids"), raw) for raw in document.forbids),
        points_at=document.points_at,
        proof=tuple(document.proof),
        sources=tuple(document.sources),
        sections=MappingProxyType(_sections(path, text, match.start(2))),
        path=path,
    )
    if not entry.signatures and entry.kind is not Kind.SILENT:
        raise DocumentError(path, 2, "signatures: only a silent failure has none")
    return entry


def _check_names(document: EntryDocument, place: Callable[[str], Place]) -> None:
    """Refuses an entry whose id differs from its file's name, or that points at no known search.

    Raises:
        DocumentError: the id or the search is wrong.
    """
    if document.id != place("id").path.stem:
        raise place("id").error(f"id `{document.id}` differs from the file's name")
    if document.points_at is not None and document.points_at not in SEARCHES:
        hint = near(document.points_at, SEARCHES)
        raise place("points_at").error(f"points_at: no search `{document.points_at}`", hint)


def concerns(entry: KnownFailure, versions: Mapping[str, str]) -> bool:
    """Whether the installed versions are among those that an entry affects.

    The version of a distribution that isn't installed here is not among them.
    """
    from packaging.specifiers import SpecifierSet

    return all(
        name in versions and SpecifierSet(allowed, prereleases=True).contains(versions[name])
        for name, allowed in entry.when.items()
    )


def _sections(path: Path, text: str, start: int) -> dict[str, str]:
    """The text under each second-level heading of the prose, which begins at `start`.

    Raises:
        DocumentError: a heading is unknown, or a required one is missing.
    """
    parts = re.split(r"^## +(.+)$", text[start:], flags=re.MULTILINE)
    sections = {
        heading.strip(): body.strip()
        for heading, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    for heading in sections:
        if heading not in SECTIONS:
            found = re.search(rf"^## +{re.escape(heading)}", text, re.MULTILINE)
            line = text.count("\n", 0, found.start() if found else 0) + 1
            hint = near(heading, SECTIONS)
            raise DocumentError(path, line, f"unknown heading `{heading}`", hint)
    for heading in SECTIONS[:2]:
        if not sections.get(heading):
            line = text.count("\n", 0, start) + 1
            raise DocumentError(path, line, f"no section `{heading}`")
        _check_leads(path, text, sections[heading])
    return sections


def _check_leads(path: Path, text: str, prose: str) -> None:
    """Refuses a paragraph that says in part whom it is for.

    Raises:
        DocumentError: a part of its first words is no trait of a run.
    """
    for paragraph in prose.split("\n\n"):
        try:
            required(paragraph)
        except ValueError as error:
            line = text.count("\n", 0, text.index(paragraph)) + 1
            hint = near(str(error), [trait.value for trait in Trait])
            raise DocumentError(path, line, f"whom it is for: `{error}`", hint) from None


def _member(place: Place, kind: type[Member], raw: str) -> Member:
    try:
        return kind(raw)
    except ValueError:
        raise place.error(f"{place.key}: `{raw}`", near(raw, kind)) from None


def _signature(place: Place, raw: dict[str, str | bool]) -> Signature:
    parts: dict[str, Any] = {}
    known = [field.name for field in fields(Signature) if field.name != "also_user_code"]
    for key, value in raw.items():
        if key not in known:
            raise place.error(f"signatures: unknown key `{key}`", near(key, known))
        if key in ("oom_kill", "finished"):
            if value is not True:
                raise place.error(f"signatures: {key} is true or left out: {value}")
            parts[key] = True
        elif not isinstance(value, str):
            raise place.error(f"signatures: `{key}` is a text, put quotes around {value}")
        elif key in ("message", "source", "log", "context"):
            try:
                parts[key] = compiled(value)
            except PatternError as error:
                raise place.error(f"signatures: {key}: {error}: {value}") from error
            if key == "log" and parts[key].search(""):
                raise place.error(f"signatures: log: an empty line matches: {value}")
        elif key == "signal":
            if value not in Signals.__members__:
                hint = near(value, Signals.__members__)
                raise place.error(f"signatures: no signal `{value}`", hint)
            parts[key] = Signals[value].value
        else:
            parts[key] = value
    if not parts.keys() - {"exception", "file", "context", "finished"}:
        raise place.error("signatures: an exception's type alone is no signature")
    return Signature(**parts)


def _ranges(place: Place, raw: dict[str, str]) -> dict[str, str]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    for name, allowed in raw.items():
        try:
            SpecifierSet(allowed)
        except InvalidSpecifier:
            raise place.error(
                f"when: `{name}: {allowed}` isn't a version range", 'e.g. ">=0.14,<0.19.3"'
            ) from None
    return dict(raw)


def _forbidden(place: Place, raw: dict[str, Any]) -> tuple[Term, ...]:
    terms = _terms(place, raw)
    if not any(isinstance(term.name, Setting) for term in terms):
        raise place.error("forbids: without a setting it would forbid everything")
    return terms


def _terms(place: Place, raw: dict[str, Any]) -> tuple[Term, ...]:
    terms = []
    for key, value in raw.items():
        try:
            name = name_of(key)
        except KeyError:
            raise place.error(
                f"{place.key}: no setting or fact `{key}`", near(key, VALUES)
            ) from None
        values = value if isinstance(value, list) else [value]
        if not values:
            raise place.error(f"{place.key}: no value for `{key}`")
        try:
            terms.append(Term(name, frozenset(parse_value(name, value) for value in values)))
        except ValueError as error:
            raise place.error(f"{place.key}: {error}") from None
    return tuple(terms)


def _proofs(place: Place, raw: dict[str, Any]) -> dict[Fact, Value]:
    proofs = {}
    for term in _terms(place, raw):
        if not isinstance(term.name, Fact):
            raise place.error(f"proves: `{term.name}` is a setting, not a fact")
        if len(term.values) != 1:
            raise place.error(f"proves: one value is expected for `{term.name}`")
        (proofs[term.name],) = term.values
    return proofs
