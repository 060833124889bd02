"""Advice on a known failure: for a run, and for every case on the entry's page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..evidence.failure_record import FailureRecord
from .device import device_of, named_for
from .entry import KnownFailure
from .regex_as_prose import plain
from .situation import Trait, meant_for
from .variant import PLACEHOLDER, Variant
from .version_skew import Wanting

WANTING = {
    Wanting.PACKAGE: "another package",
    Wanting.SAME: "the package itself",
    Wanting.SCRIPT: "the script",
    Wanting.MODEL: "a model's own files",
}
"""Whose code wants what isn't there, in words."""
SENTENCE = re.compile(r"(?:`[^`]*`|“[^”]*”|[^`“])+?(?:(?<!e\.g)(?<!i\.e)(?<!vs)[.!?] (?=[A-Z])|$)")
"""A sentence with the space after it; what ends within a command or a quotation is none."""
COMMAND = re.compile(
    r"(?P<do>(?:[^`]|`[^`]*`)*): `(?P<run>(?:[A-Z_]+=\S+ )*[a-z][\w./-]* [^`]+)`\.?"
)
"""Text that ends with a shell command."""
MOST = 220
"""Characters of a step of several sentences, at most."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice.

    Attributes:
        do: the step that mends most cases, as a line; empty if nothing is meant for the run.
        run: the command that takes it, ready for a shell; empty if there is none.
        others: what else helps, each a paragraph.
    """

    do: str = ""
    run: str = ""
    others: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of it, as a line."""
        step = f"{self.do.removesuffix('.')}: `{self.run}`." if self.run else self.do
        return " ".join(filter(None, (step, *self.others)))


def advised(*texts: str) -> Advice:
    """The advice in texts, the most specific first.

    The step is the sentences of the first text that fit into a line, up to one that ends with a
    command; what follows it in the first text is divided in the same way, once.
    """
    first, *others = [" ".join(text.split()) for text in texts if text.strip()] or [""]
    step, rest = _step_of(first)
    second, rest = _step_of(rest)
    found = COMMAND.fullmatch(step)
    do, run = (step, "") if found is None else (f"{found['do']}.", found["run"])
    return Advice(do, run, tuple(filter(None, (second, rest, *others))))


def _step_of(text: str) -> tuple[str, str]:
    """The sentences at the beginning of a text that are one step, and the others."""
    sentences = SENTENCE.findall(text)
    count = 1
    while (
        count < len(sentences)
        and COMMAND.fullmatch(sentences[count - 1].rstrip()) is None
        and len("".join(sentences[: count + 1]).rstrip()) <= MOST
    ):
        count += 1
    return "".join(sentences[:count]).rstrip(), "".join(sentences[count:]).strip()


def advice(entry: KnownFailure, record: FailureRecord, traits: frozenset[Trait]) -> Advice:
    """The advice for a run: of the first variant that its evidence shows, else the entry's.

    If a variant's case is settled, advice for the entry's other cases would mislead. Of the
    entry's paragraphs those for runs of its kind come first, then that for all.
    """
    shown = ((variant.advice(record), variant.is_settled) for variant in entry.variants)
    own, is_settled = next(((text, settled) for text, settled in shown if text), ("", False))
    general = () if is_settled else reversed(meant_for(entry.sections["What to do"], traits))
    texts = (own, *general)
    device = device_of(record)
    return advised(*(named_for(device, text) for text in texts))


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
