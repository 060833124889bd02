"""What to do about a known failure: for a run, and for every case on the entry's page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
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
CODE = re.compile(r"`[^`]+`")
FEW = 15
"""Words besides its commands at most, with which a sentence says nothing else."""
SENTENCE = re.compile(r"(?:`[^`]*`|“[^”]*”|[^`“])+?(?:(?<!e\.g)(?<!i\.e)(?<!vs)[.!?] (?=[A-Z])|$)")
"""A sentence with the space after it; what ends within a command or a quotation is none."""
COMMAND = re.compile(
    r"(?P<do>(?:[^`]|`[^`]*`)*): `(?P<run>(?:[A-Z_]+=\S+ )*[a-z][\w./-]* [^`]+)`\.?"
)
"""What ends with a command for a shell."""
MOST = 200
"""Characters of a step of several sentences, at most."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do.

    Attributes:
        do: the step that mends most cases, as a line; empty where nothing is meant for the run.
        run: the command that takes it, ready for a shell; empty where there is none.
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
    """What texts advise, the most specific first.

    The step is the sentences of the first text that fit into a line, up to one that ends with a
    command. The following texts lose their short sentences whose every command was told before.
    """
    first, *others = [*filter(None, (" ".join(text.split()) for text in texts)), ""]
    sentences = SENTENCE.findall(first)
    count = 1
    while (
        count < len(sentences)
        and COMMAND.fullmatch(sentences[count - 1].rstrip()) is None
        and len("".join(sentences[: count + 1]).rstrip()) <= MOST
    ):
        count += 1
    step = "".join(sentences[:count]).rstrip()
    rest = ["".join(sentences[count:])]
    for text in others:
        known = set(CODE.findall(" ".join([step, *rest])))
        rest.append("".join(each for each in SENTENCE.findall(text) if not _is_told(each, known)))
    found = COMMAND.fullmatch(step)
    do, run = (step, "") if found is None else (f"{found['do']}.", found["run"])
    return Advice(do, run, tuple(filter(None, (text.strip() for text in rest))))


def advice(entry: KnownFailure, record: FailureRecord, traits: frozenset[Trait]) -> Advice:
    """What a run is advised: by the first variant that its evidence shows, then by the entry.

    Of the entry's paragraphs those for runs of its kind come first, then that for all.
    """
    shown = (variant.advice(record) for variant in entry.variants)
    own = next((text for text in shown if text is not None), "")
    texts = (own, *reversed(meant_for(entry.sections["What to do"], traits)))
    device = device_of(record)
    return advised(*(named_for(device, text) for text in texts))


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
