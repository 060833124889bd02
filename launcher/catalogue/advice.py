"""Advice on a known failure, for a run or for every case on the entry's page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..evidence.failure_record import FailureRecord
from .entry import KnownFailure
from .regex import plain
from .situation import Trait, device_of, meant_for, named_for
from .variant import PLACEHOLDER, Variant
from .version_skew import Wanting

WANTING = {
    Wanting.PACKAGE: "another package",
    Wanting.SAME: "the package itself",
    Wanting.SCRIPT: "the script",
    Wanting.MODEL: "a model's files",
}
"""The owner of the code that needs a missing name, in words."""
SENTENCE = re.compile(
    r"""(?:`[^`]*`|“[^”]*”|"[^"]*"|[^`“])+?(?:(?<!e\.g)(?<!i\.e)(?<!vs)[.!?] (?=[A-Z])|$)"""
)
"""A sentence with the space after it, not ending within a command or quotation."""
COMMAND = re.compile(
    r"(?P<do>(?:[^`]|`[^`]*`)*): `(?P<run>(?:[A-Z_]+=\S+ )*[a-z][\w./-]* [^`]+)`\.?"
)
"""Text that ends with a shell command."""
MOST = 220
"""Maximum characters of a step with several sentences."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice.

    Attributes:
        do: the step that fixes most cases, as a line; empty if none applies to the run.
        run: the shell command of the step; empty if none.
        others: alternatives, a paragraph each.
        beside: the sentence after the command, if it fits into the step's line.
    """

    do: str = ""
    run: str = ""
    others: tuple[str, ...] = ()
    beside: str = ""

    @property
    def line(self) -> str:
        """The step, and the sentence after its command."""
        return " ".join(filter(None, (self.do, self.beside)))

    @property
    def text(self) -> str:
        """The complete advice as a line."""
        step = f"{self.do.removesuffix('.')}: `{self.run}`." if self.run else self.do
        return " ".join(filter(None, (step, self.beside, *self.others)))


def advised(*texts: str) -> Advice:
    """Splits texts into advice, most specific text first.

    The step consists of the first text's sentences that fit into a line, up to one that ends with a
    command, and beside it those that still fit. The rest of the first text is split in the same way
    once.
    """
    first, *others = [" ".join(text.split()) for text in texts if text.strip()] or [""]
    step, rest = _step_of(first)
    second, rest = _step_of(rest)
    command = COMMAND.fullmatch(step)
    if command is None:
        return Advice(step, "", tuple(filter(None, (second, rest, *others))))
    do = f"{command['do']}."
    fits = bool(second) and len(do) + len(second) < MOST
    kept = (rest,) if fits else (second, rest)
    return Advice(do, command["run"], tuple(filter(None, (*kept, *others))), second if fits else "")


def _step_of(text: str) -> tuple[str, str]:
    """The first sentences of a text that form a step, and the rest."""
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
    """Advice for a run: from the first matching variant, or else from the entry.

    If a variant is settled, advice for the entry's other cases would mislead. Paragraphs for this
    kind of run come before the general one.
    """
    shown = ((variant.advice(record), variant.is_settled) for variant in entry.variants)
    specific, is_settled = next(((text, settled) for text, settled in shown if text), ("", False))
    general = () if is_settled else reversed(meant_for(entry.sections["What to do"], traits))
    texts = (specific, *general)
    device = device_of(record)
    return advised(*(named_for(device, text) for text in texts))


def cases(entry: KnownFailure) -> Iterator[tuple[str, str]]:
    """Each variant's case and advice in words, with `<name>` for filled-in parts."""
    for variant in entry.variants:
        yield " and ".join(_conditions(variant)), PLACEHOLDER.sub(r"<\1>", variant.do)


def _conditions(variant: Variant) -> Iterator[str]:
    """A variant's conditions in words."""
    if variant.exception is not None:
        yield f"the exception is {variant.exception}"
    if variant.message is not None:
        yield f"the message has {_quoted(variant.message.pattern)}"
    if variant.file is not None:
        yield f"it is raised in {variant.file}"
    if variant.function is not None:
        yield f"it is raised by {variant.function}"
    if variant.source is not None:
        yield f"the line is {_quoted(variant.source.pattern)}"
    if variant.through is not None:
        yield f"the traceback has {_quoted(variant.through.pattern)}"
    for pattern in (variant.log, variant.context):
        if pattern is not None:
            yield f"the log has {_quoted(pattern.pattern)}"
    if variant.library is not None:
        yield f"the failed line is in the library {_quoted(variant.library.pattern)}"
    if variant.wanted_by is not None:
        yield f"it is wanted by {WANTING[variant.wanted_by]}"
    for name, allowed in variant.when.items():
        yield f"{name} is {allowed}"
    if variant.device is not None:
        yield f"the accelerator is of kind {variant.device}"


def _quoted(pattern: str) -> str:
    return " or ".join(f"`{text}`" for text in plain(pattern)) or "anything"
