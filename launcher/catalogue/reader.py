"""Reads the known failures: one Markdown file each, front matter and prose."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from ..core.constraint import Term
from ..core.nearest import near
from ..core.settings import NAMES, Fact, Setting, Value, name_of, parse_value
from ..system.typed_yaml import DocumentError, read_document, text_of
from ..workload.script.line_searches import SEARCHES
from .conditions import Place, read_ranges, read_signature, read_variant
from .entry import Kind, KnownFailure, Role
from .situation import Trait, required
from .versions import are_within

SECTIONS = ("What happens", "What to do", "What it costs", "Seen as", "Not to be confused with")
"""The headings that an entry may have; the first two are required."""

FOR_PLANS = (b"\nforbids:", b"\ntells:", b"\npoints_at:")
"""Front matter of an entry that matters to a plan, before anything has failed."""

AT_LEAST = re.compile(r">=(\d+)")
"""All whole numbers from one on."""

Member = TypeVar("Member", bound=StrEnum)


@dataclass(frozen=True)
class EntryDocument:
    """The front matter as written in the file; `KnownFailure` explains each part."""

    id: str = "???"
    title: str = "???"
    role: str = "???"
    class_: str = "???"
    signatures: list[dict[str, str | bool]] = field(default_factory=list)
    variants: list[dict[str, Any]] = field(default_factory=list)
    when: dict[str, str] = field(default_factory=dict)
    proves: dict[str, Any] = field(default_factory=dict)
    forbids: list[dict[str, Any]] = field(default_factory=list)
    tells: list[dict[str, Any]] = field(default_factory=list)
    general: bool = False
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
    return _shipped_entries(for_plan=for_plan)


@cache
def _shipped_entries(*, for_plan: bool) -> tuple[KnownFailure, ...]:
    """The shipped entries, which stay the same while a process lives."""
    return tuple(
        read_entry(path)
        for path in shipped().values()
        if not for_plan or _tells_on_plans(path.read_bytes())
    )


def shipped() -> dict[str, Path]:
    """The files of the shipped entries, by id and in its order."""
    return {path.stem: path for path in _entries(Path(str(files("safe_launch.presets.failures"))))}


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
    signatures = (read_signature(place("signatures"), raw) for raw in document.signatures)
    variants = [
        read_variant(place("variants").item(number), raw)
        for number, raw in enumerate(document.variants)
    ]
    entry = KnownFailure(
        id=document.id,
        title=document.title,
        role=_member(place("role"), Role, document.role),
        kind=_member(place("class"), Kind, document.class_),
        signatures=tuple(replace(sign, also_user_code=is_site_specific) for sign in signatures),
        variants=tuple(variants),
        when=MappingProxyType(read_ranges(place("when"), document.when)),
        proves=MappingProxyType(_proofs(place("proves"), document.proves)),
        forbids=tuple(_forbidden(place("forbids"), raw) for raw in document.forbids),
        tells=tuple(read_terms(place("tells"), raw) for raw in document.tells),
        is_general=document.general,
        points_at=document.points_at,
        proof=tuple(document.proof),
        sources=tuple(document.sources),
        sections=MappingProxyType(_sections(path, text, match.start(2))),
        path=path,
    )
    if not entry.signatures and entry.kind is not Kind.SILENT:
        raise DocumentError(path, 2, "signatures: only a silent failure has none")
    if entry.tells and entry.kind is not Kind.SILENT:
        raise place("tells").error("only what raises no error is told beforehand")
    return entry


def _check_names(document: EntryDocument, place: Callable[[str], Place]) -> None:
    """Refuses an entry whose id differs from its file's name, or that points at no known search.

    Raises:
        DocumentError: the id or the search is wrong.
    """
    if document.id != place("id").path.stem:
        raise place("id").error(f"`{document.id}` differs from the file's name")
    if document.points_at is not None and document.points_at not in SEARCHES:
        hint = near(document.points_at, SEARCHES)
        raise place("points_at").error(f"no search `{document.points_at}`", hint)


def concerns(entry: KnownFailure, versions: Mapping[str, str]) -> bool:
    """Whether the installed versions are among those that an entry affects."""
    return are_within(versions, entry.when)


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
        raise place.error(f"`{raw}`", near(raw, kind)) from None


def _forbidden(place: Place, raw: dict[str, Any]) -> tuple[Term, ...]:
    terms = read_terms(place, raw)
    if not any(isinstance(term.name, Setting) for term in terms):
        raise place.error("without a setting it would forbid everything")
    return terms


def read_terms(place: Place, raw: dict[str, Any]) -> tuple[Term, ...]:
    """Terms that hold together: values, or a list of them, by the name of a setting or fact.

    Raises:
        DocumentError: there is no such setting, fact or value.
    """
    terms = []
    for key, value in raw.items():
        try:
            name = name_of(key)
        except KeyError:
            raise place.error(f"no setting or fact `{key}`", near(key, NAMES)) from None
        values = value if isinstance(value, list) else [value]
        if not values:
            raise place.error(f"no value for `{key}`")
        bounds = [AT_LEAST.fullmatch(str(value)) for value in values]
        try:
            parsed = frozenset(
                parse_value(name, value if bound is None else int(bound[1]))
                for value, bound in zip(values, bounds, strict=True)
            )
            least = min((int(bound[1]) for bound in bounds if bound is not None), default=None)
            terms.append(Term(name, parsed, least))
        except ValueError as error:
            raise place.error(str(error)) from None
    return tuple(terms)


def _proofs(place: Place, raw: dict[str, Any]) -> dict[Fact, Value]:
    proofs = {}
    for term in read_terms(place, raw):
        if not isinstance(term.name, Fact):
            raise place.error(f"`{term.name}` is a setting, not a fact")
        if len(term.values) != 1 or term.least is not None:
            raise place.error(f"one value is expected for `{term.name}`")
        (proofs[term.name],) = term.values
    return proofs
