"""Variants of a known failure: advice for cases shown by the evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..core.quotation import cleaned, shortened
from ..evidence.failure_record import FailureRecord, Raised
from ..system.redaction import redacted
from .package_names import package_of_file, pip_name
from .regex import LinearPattern
from .signature import came_through, collapsed, lines_of
from .situation import Device, device_of
from .version_skew import Wanting, skew_of
from .versions import are_within, direction, known_direction

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
"""Placeholder for a named group in the advice; other braces are literal."""
PASSED_ON = re.compile(r"\*args, \*\*kw(args)?\b")
"""A line that passes on its arguments, as in decorators."""
MENDED = "what_mends_it"
"""Placeholder for a complete sentence, inserted unchanged."""
RELEASE = "release_that_mends_it"
"""The same where a requirement or the name's history shows it; else the variant doesn't apply."""
LONGEST = 160
"""Maximum characters of evidence to insert."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Advice on a known failure if the evidence has all parts.

    Attributes:
        do: the advice, with names of the patterns' groups in braces.
        title: what happened in this case, in place of the entry's title; empty for the latter.
        exception: name of an exception's type, without its module.
        message: pattern searched in the exception's message, or without an exception in the line
            that reports the failure.
        file: end of the path of the raising frame's file.
        function: name of the raising frame's function.
        source: pattern searched in the raising frame's source line.
        through: pattern searched in each frame of the traceback, as `function: source line`.
        log: pattern searched in each line around the failure, and of its message.
        context: pattern searched in the same lines.
        library: pattern searched in the name of the package whose line failed.
        wanted_by: owner of the code that needs a name missing in a package; the advice may contain
            the `wanting` package, the `package` without the name, its pip `distribution`, the
            missing `name`, and `what_mends_it`: the package to change, and its version;
            `release_that_mends_it` where these are known, not only likely.
        when: version ranges, by distribution; all must hold, and unknown versions never do.
        device: the kind of accelerator.
    """

    do: str
    title: str = ""
    exception: str | None = None
    message: LinearPattern | None = None
    file: str | None = None
    function: str | None = None
    source: LinearPattern | None = None
    through: LinearPattern | None = None
    log: LinearPattern | None = None
    context: LinearPattern | None = None
    library: LinearPattern | None = None
    wanted_by: Wanting | None = None
    when: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    device: Device | None = None

    @property
    def patterns(self) -> tuple[LinearPattern, ...]:
        """The variant's patterns."""
        parts = (
            *(self.message, self.source, self.through),
            *(self.log, self.context, self.library),
        )
        return tuple(part for part in parts if part is not None)

    @property
    def is_settled(self) -> bool:
        """Whether the variant depends on more evidence than a device or a version."""
        named = (self.exception, self.file, self.function, self.wanted_by)
        return any(part is not None for part in (*named, *self.patterns))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names in braces without a group in any pattern."""
        return tuple(name for name in PLACEHOLDER.findall(self.do) if name not in self.known)

    @property
    def known(self) -> tuple[str, ...]:
        """Allowed names in braces in the advice."""
        of_skew = ("wanting", "package", "distribution", "name", MENDED, RELEASE)
        return (
            *(() if self.wanted_by is None else of_skew),
            *(name for pattern in self.patterns for name in pattern.names),
        )

    def advice(self, record: FailureRecord) -> str | None:
        """The advice with matched groups; None if the evidence lacks a part."""
        if self.device not in (None, device_of(record)) or not are_within(
            record.versions, self.when
        ):
            return None
        if self.through is not None and not came_through(record, self.through):
            return None
        lines = lines_of(record) if self.log or self.context else ()
        raised = self._raised(record)
        around = ((self.log, lines), (self.context, lines), (self.library, _library(record)))
        beside = _groups(around)
        if raised is None or beside is None:
            return None
        groups = raised | beside
        if any(name not in groups for name in PLACEHOLDER.findall(self.do)):
            return None
        return PLACEHOLDER.sub(
            lambda place: (
                groups[place[1]] if place[1] in (MENDED, RELEASE) else _shown(groups[place[1]])
            ),
            self.do,
        )

    def _raised(self, record: FailureRecord) -> dict[str, str] | None:
        """The groups matched in the first exception with all exception parts, nearest first."""
        of_frame = (self.file, self.function, self.source, self.wanted_by)
        if not any((self.exception, self.message, *of_frame)):
            return {}
        raised = list(record.raised()) or [Raised("", record.message)]
        matches = (self._of(error, record) for error in raised)
        return next((groups for groups in matches if groups is not None), None)

    def _of(self, raised: Raised, record: FailureRecord) -> dict[str, str] | None:
        """The groups matched in an exception of a record; None if a part is missing."""
        if self.exception not in (None, raised.exception.rpartition(".")[2]):
            return None
        frame = raised.frame
        if self.file is not None and (frame is None or not frame.is_of(self.file)):
            return None
        if self.function is not None and (frame is None or frame.function != self.function):
            return None
        wanted: dict[str, str] = {}
        if self.wanted_by is not None:
            skew = skew_of(record, raised)
            if skew is None or skew.kind is not self.wanted_by:
                return None
            wanted = {
                "wanting": skew.wanting,
                "package": skew.package,
                "distribution": pip_name(skew.package),
                "name": skew.name,
            }
            if f"{{{MENDED}}}" in self.do:
                wanted[MENDED] = direction(skew, record)
            elif mends := known_direction(skew, record):
                wanted[RELEASE] = mends
        texts = collapsed((raised.message, raised.message.partition("\n")[0]))
        source = () if frame is None else (frame.source,)
        groups = _groups(((self.message, texts), (self.source, source)))
        return None if groups is None else wanted | groups


def _library(record: FailureRecord) -> tuple[str, ...]:
    """The package of the innermost line with an explicit call; empty for a script."""
    chosen = (frame for frame in reversed(record.frames) if not PASSED_ON.search(frame.source))
    package = next((package_of_file(frame.file) for frame in chosen), None)
    return () if package is None else (package,)


def _groups(
    searches: Iterable[tuple[LinearPattern | None, Iterable[str]]],
) -> dict[str, str] | None:
    """The matched named groups; None if a pattern matches none of its texts."""
    result: dict[str, str] = {}
    for pattern, texts in searches:
        if pattern is None:
            continue
        matches = (groups for text in texts if (groups := pattern.groups(text)) is not None)
        first = next(matches, None)
        if first is None:
            return None
        result |= first
    return result


def _shown(text: str) -> str:
    """A part of the evidence without control characters and secrets, as a short line."""
    return shortened(" ".join(cleaned(redacted(text)).split()), LONGEST)
