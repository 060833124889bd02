"""Finds an instruction or a requirement in the message itself."""

from __future__ import annotations

import re

from ...catalogue.package_names import MODEL_CODE, PYTHON
from ...core.quotation import shortened
from ...system.redaction import redacted
from .phrases import (
    FOR_DEVELOPERS,
    INSTRUCTION,
    NAME,
    NVIDIA,
    REQUIREMENT,
    SEVERAL,
    UNFIT,
)
from .run_kind import run_of
from .step import Basis, Case, Step

SENTENCE = re.compile(r".+?(?:[.!?;](?=\s+[A-Z`'\"(]|\s*$)|$)", re.S)
REFUSED_VALUE = re.compile(
    r"\b(?:when|if) [`'\"]?(?P<name>[a-z]\w*_\w+)(?P<sign>=|: | = )"
    r"(?P<value>[Tt]rue|[Ff]alse)\b"
)
"""A setting's value that the message declares unsupported."""
EITHER = re.compile(
    r"\bmust be (?:either |one of )?(?P<allowed>[^.;]*?),? (?:but )?(?:got|is|was):? "
    r"['\"`]?(?P<got>\w+)['\"`]?\.?$"
)
"""A check that lists the allowed values and the actual one."""
GUARDS = ("trust_remote_code", "weights_only")
"""Security switches, which no rule advises to change."""
COMPARED = (
    (
        re.compile(
            r"\bcan(?:'t|not| not) .{1,60}\b(?:if|with|when|together|both)\b|\bincompatible\b"
            r"|\bnot compatible\b|mutually exclusive|\bconflicts? with\b",
            re.I,
        ),
        "Leave one of the two settings out, which exclude each other. ",
    ),
    (
        re.compile(r"\bthan (?:the )?buffer size\b", re.I),
        "Raise the buffer's size above the first number (DeepSpeed: `offload_param.buffer_size`). ",
    ),
    (
        re.compile(
            r"\b(?:longer|larger|greater|higher|more|bigger) (?:\w+ .{0,30}\b)?than\b|\bexceed",
            re.I,
        ),
        "Make what is too large smaller, or raise its limit. ",
    ),
    (
        re.compile(r"\b(?:shorter|smaller|less|lower|fewer) than\b", re.I),
        "Make what is too small larger, or lower what it is compared with. ",
    ),
)
"""Unmet conditions with remedies, the most specific first."""
MICRO_BATCHES = re.compile(r"\b(?:number of|num_?) ?micro-?_?batches\b", re.I)
OF_MICRO_BATCHES = (
    " The number of micro batches is the gradient accumulation, or the global batch divided by"
    " micro batch and data parallel ranks: raise that, or use fewer pipeline stages."
)
PRONOUNS = ("this", "it", "that", "we", "you", "they", "which", "these")
MOST = 2
"""Maximum sentences to quote."""
WHOLE = 160
"""Maximum characters of a message to quote completely."""
LONGEST = 320


def sentences(message: str) -> list[str]:
    """The sentences of a message, in order."""
    return [text.strip() for text in SENTENCE.findall(message) if text.strip()]


def instruction(case: Case) -> Step | None:
    """The instruction in the message."""
    matching = _matching(case, INSTRUCTION)
    is_pythons = "did you mean" in case.message.lower() and case.kind == "AttributeError"
    if not matching or is_pythons:  # Python's guess, which another version makes wrong
        return None
    return Step(f"{_speaker(case)} advises: {_quoted(matching)}", Basis.QUOTED)


def refused_itself(case: Case) -> Step | None:
    """Reports a check that refuses a value it lists as allowed."""
    match = EITHER.search(case.message)
    if match is None or not re.search(rf"['\"`]{match['got']}['\"`]", match["allowed"]):
        return None
    of = f" of {case.package}" if case.package else ""
    return Step(
        f"Install another release{of}, the newest or the one before: `{match['got']}` is among the"
        " values that this check allows, so the check is wrong, not the setting. It may be so on"
        " some ranks alone."
    )


def refused_value(case: Case) -> Step | None:
    """Reports a setting's value that the raising code doesn't support."""
    match = REFUSED_VALUE.search(case.message)
    if match is None or match["name"] in GUARDS:
        return None
    other = {"true": "False", "false": "True"}[match["value"].lower()]
    other = other if match["value"][0].isupper() else other.lower()
    name = match["name"]
    text = f"Set `{name}{match['sign']}{other}`: {_speaker(case)} refuses this with"
    return Step(f"{text} `{name}{match['sign']}{match['value']}`.")


def requirement(case: Case) -> Step | None:
    """Reports a requirement of the raising code that its input doesn't meet."""
    matching = _matching(case, REQUIREMENT)
    if not matching:
        return None
    do = next((do for words, do in COMPARED if words.search(" ".join(matching))), _unfit(matching))
    text = f"{do}{_speaker(case)} reports: {_quoted(matching)}"
    every = ("".join(name) for name in NAME.findall(" ".join(matching)))
    names = [name for name in every if name not in GUARDS]
    if MICRO_BATCHES.search(text):
        text += OF_MICRO_BATCHES
    if names:
        text += f" Change {', '.join(f'`{name}`' for name in dict.fromkeys(names[:3]))}."
    yours = case.users_frame
    frame = yours or case.frame
    if frame is not None and not case.is_users and not frame.source.startswith("raise "):
        source = f", `{frame.source}`" if frame.source else ""
        where = "It was called from" if yours else "It was raised in"
        text += f" {where} line {frame.line} of {frame.file}{source}."
    return Step(text, Basis.QUOTED)


def _unfit(texts: list[str]) -> str:
    """The step if a sentence declares two things unfit for each other; otherwise empty."""
    match = next(filter(None, map(UNFIT.search, texts)), None)
    if match is None:
        return ""
    first, second = match["one"].strip("`'\""), match["other"].strip("`'\" ")
    without = f"do without {first}" if first.split()[-1].lower() not in PRONOUNS else "leave it out"
    if SEVERAL.search(second):
        return f"Run on one GPU (one process, `CUDA_VISIBLE_DEVICES=0`), or {without}. "
    return f"{without[0].upper()}{without[1:]} (its option or import), or without {second}. "


def _matching(case: Case, pattern: re.Pattern[str]) -> list[str]:
    """The sentences matched by the pattern, except debugging hints.

    A short message is quoted completely: its other sentences contain the values.
    """
    foreign = NVIDIA if run_of(case).is_no_nvidia else None
    texts = [
        text
        for text in sentences(case.message)
        if not FOR_DEVELOPERS.search(text) and not (foreign and foreign.search(text))
    ]
    matching = [text for text in texts if pattern.search(text)]
    if matching and len(" ".join(texts)) <= WHOLE:
        return texts
    return matching[:MOST]


def _quoted(texts: list[str]) -> str:
    text = shortened(redacted(" ".join(texts)), LONGEST)
    return f"“{text}”" + ("" if text.endswith((".", "!", "?")) else ".")


def _speaker(case: Case) -> str:
    """Describes the source of the message."""
    if case.is_users:
        return "The script"
    return "The message" if case.package in (None, PYTHON, MODEL_CODE) else str(case.package)
