"""What to do about a known failure: for a run, and for every case on the entry's page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from ..evidence.failure_record import FailureRecord
from .entry import KnownFailure
from .regex_as_prose import plain
from .situation import Trait, told
from .variant import PLACEHOLDER, Variant
from .version_skew import Wanting

WANTING = {
    Wanting.PACKAGE: "another package",
    Wanting.SAME: "the package itself",
    Wanting.SCRIPT: "the script",
    Wanting.MODEL: "a model's own files",
}
"""Whose code wants what isn't there, in words."""
CODE = re.compile(r"`[^`]+`")
FEW = 15
"""Words besides its commands at most, with which a sentence says nothing else."""
SENTENCE = re.compile(r"(?:`[^`]*`|[^`])+?(?:[.!?] (?=[A-Z])|$)")
"""A sentence with the space after it; what ends within a command is none."""


def advice(entry: KnownFailure, record: FailureRecord, traits: frozenset[Trait]) -> str:
    """What a run is told to do: the first variant that its evidence shows, then the general.

    Each is a line; empty where nothing is meant for the run.
    """
    shown = (variant.advice(record) for variant in entry.variants)
    own = next((text for text in shown if text is not None), "")
    return "\n".join(filter(None, (own, _besides(own, told(entry.sections["What to do"], traits)))))


def _besides(own: str, general: str) -> str:
    """The general advice without the short sentences whose every command the own advice has."""
    known = set(CODE.findall(own))
    return "".join(
        sentence for sentence in SENTENCE.findall(general) if not _is_told(sentence, known)
    ).rstrip()


def _is_told(sentence: str, known: Set[str]) -> bool:
    """Whether a sentence says little but commands that are known; a name alone is no command."""
    codes = set(CODE.findall(sentence))
    is_short = len(CODE.sub("", sentence).split()) <= FEW
    return is_short and any(" " in code for code in codes) and codes <= known


def cases(entry: KnownFailure) -> Iterator[tuple[str, str]]:
    """For each variant the case in words, and what to do, with `<name>` for what is filled in."""
    for variant in entry.variants:
        yield " and ".join(_conditions(variant)), PLACEHOLDER.sub(r"<\1>", variant.do)


def _conditions(variant: Variant) -> Iterator[str]:
    """The parts of a variant in words."""
    if variant.exception is not None:
        yield f"the exception is {variant.exception}"
    if variant.message is not None:
        yield f"the message says {_quoted(variant.message.pattern)}"
    if variant.file is not None:
        yield f"it is raised in {variant.file}"
    if variant.function is not None:
        yield f"it is raised by {variant.function}"
    if variant.source is not None:
        yield f"the line is {_quoted(variant.source.pattern)}"
    for pattern in (variant.log, variant.context):
        if pattern is not None:
            yield f"the log says {_quoted(pattern.pattern)}"
    if variant.library is not None:
        yield f"the line that fails is a library's, {_quoted(variant.library.pattern)}"
    if variant.wanted_by is not None:
        yield f"it is wanted by {WANTING[variant.wanted_by]}"
    for name, allowed in variant.when.items():
        yield f"{name} is {allowed}"
    if variant.device is not None:
        yield f"the accelerator is of kind {variant.device}"


def _quoted(pattern: str) -> str:
    return " or ".join(f"`{text}`" for text in plain(pattern)) or "anything"
