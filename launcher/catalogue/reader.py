"""Reads the catalogue's entries: their YAML and prose, checked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from ..core.constraint import Term
from ..core.nearest import near
from ..core.settings import NAMES, Fact, Setting, Value, name_of, parse_value
from ..system.regular_files import text_of
from ..system.typed_files import DocumentError, read_document
from ..workload.script.line_searches import SEARCHES
from .conditions import Place, read_ranges, read_signature, read_variant
from .entry import FRONT_MATTER, Kind, KnownFailure, Role, check_prose
from .versions import are_within

PACKED = "failures.json"
"""Packed front matter of the shipped entries, as parsing all their YAML is slow."""
AT_LEAST = re.compile(r">=(\d+)")
"""All integers from a minimum on."""

Member = TypeVar("Member", bound=StrEnum)


@dataclass(frozen=True)
class EntryDocument:
    """The front matter in the file, as explained in `KnownFailure`."""

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
    """Reads all entries of a folder, sorted by name; by default the shipped ones.

    Args:
        folder: folder of a cluster's entries, which are all checked.
        for_plan: read only shipped entries that can apply to a plan, which is faster.

    Raises:
        DocumentError: an entry doesn't follow the schema.
    """
    if folder is not None:
        return tuple(read_entry(path, is_site_specific=True) for path in _entries(folder))
    return _shipped_entries(for_plan=for_plan)


@cache
def _shipped_entries(*, for_plan: bool) -> tuple[KnownFailure, ...]:
    """The shipped entries, cached for the process."""
    return tuple(
        entry
        for name, document in _packed().items()
        if (not for_plan or document.forbids or document.tells or document.points_at)
        and (entry := shipped(name)) is not None
    )


@cache
def shipped(name: str) -> KnownFailure | None:
    """A shipped entry by name, if it exists."""
    document = _packed().get(name)
    path = Path(str(files("safe_launch.presets"))) / "failures" / f"{name}.md"
    return None if document is None else _entry(path, document, None)


@cache
def _packed() -> Mapping[str, EntryDocument]:
    """The front matter of shipped entries by id, in order."""
    import msgspec

    packed = files("safe_launch.presets").joinpath(PACKED).read_bytes()
    return msgspec.json.decode(packed, type=dict[str, EntryDocument])


def packed(folder: Path) -> str:
    """The front matter of all entries of a folder as JSON, one entry per line.

    Raises:
        DocumentError: an entry doesn't follow the schema.
    """
    nothing = asdict(EntryDocument())
    lines = []
    for path in _entries(folder):
        read_entry(path)
        parts = asdict(_front_matter(path)[0])
        stated = {key: value for key, value in parts.items() if value != nothing[key]}
        lines.append(f"{json.dumps(path.stem)}: {json.dumps(stated, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _entries(folder: Path) -> list[Path]:
    names = sorted(os.listdir(folder))  # noqa: PTH208 - a tenth of the time
    return [folder / name for name in names if name.endswith(".md")]


def read_entry(path: Path, *, is_site_specific: bool = False) -> KnownFailure:
    """Reads an entry.

    Raises:
        DocumentError: the entry doesn't follow the schema; the message names file, line and key.
    """
    document, text = _front_matter(path)
    entry = _entry(path, document, text, is_site_specific=is_site_specific)
    if not entry.signatures and entry.kind is not Kind.SILENT:
        raise DocumentError(path, 2, "signatures: only a silent failure has none")
    if entry.tells and entry.kind is not Kind.SILENT:
        raise Place(path, "tells", text).error("only silent failures are reported beforehand")
    check_prose(path)
    return entry


def _front_matter(path: Path) -> tuple[EntryDocument, str]:
    """The front matter of an entry, and its text.

    Raises:
        DocumentError: the front matter is missing or doesn't follow the schema.
    """
    match = FRONT_MATTER.match(text_of(path))
    if match is None:
        raise DocumentError(path, 1, "front matter between two lines `---` is expected")
    return read_document(path, match[1], EntryDocument, first_line=2), match[1]


def _entry(
    path: Path, document: EntryDocument, text: str | None, *, is_site_specific: bool = False
) -> KnownFailure:
    """Converts a document to an entry.

    Raises:
        DocumentError: the document doesn't follow the schema.
    """

    def place(key: str) -> Place:
        return Place(path, key, text)

    _check_names(document, place)
    signatures = (read_signature(place("signatures"), raw) for raw in document.signatures)
    variants = (
        read_variant(place("variants").item(number), raw)
        for number, raw in enumerate(document.variants)
    )
    return KnownFailure(
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
        path=path,
    )


def _check_names(document: EntryDocument, place: Callable[[str], Place]) -> None:
    """Refuses an entry whose id differs from its file name, or with an unknown search.

    Raises:
        DocumentError: the id or the search is wrong.
    """
    if document.id != place("id").path.stem:
        raise place("id").error(f"`{document.id}` differs from the file's name")
    if document.points_at is not None and document.points_at not in SEARCHES:
        hint = near(document.points_at, SEARCHES)
        raise place("points_at").error(f"no search `{document.points_at}`", hint)


def concerns(entry: KnownFailure, versions: Mapping[str, str]) -> bool:
    """Whether an entry affects the installed versions."""
    return are_within(versions, entry.when)


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
    """Reads a conjunction of terms: a value or a list of values by setting or fact.

    Raises:
        DocumentError: a setting, fact or value is unknown.
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


@dataclass(frozen=True)
class Catalogue:
    """Known failures that affect the installed versions.

    Attributes:
        site_entries: a cluster's entries in addition to the shipped ones.
        versions: versions of installed packages, by name.
    """

    site_entries: Sequence[KnownFailure]
    versions: Mapping[str, str]

    @cached_property
    def on_plans(self) -> Sequence[KnownFailure]:
        """Entries that can apply to a plan before any failure, and the cluster's."""
        return self._concerning([*read_catalogue(for_plan=True), *self.site_entries])

    @cached_property
    def entries(self) -> Sequence[KnownFailure]:
        """All entries, the shipped ones and the cluster's."""
        return self._concerning([*read_catalogue(), *self.site_entries])

    def named(self, name: str) -> KnownFailure | None:
        """An entry by name; None if missing or irrelevant to the versions."""
        matching = [entry for entry in self.site_entries if entry.id == name]
        matching = matching or [*filter(None, [shipped(name)])]
        return next(iter(self._concerning(matching)), None)

    def _concerning(self, entries: Iterable[KnownFailure]) -> Sequence[KnownFailure]:
        return tuple(entry for entry in entries if concerns(entry, self.versions))
