"""Types with the limits of their values, for fields that may come from another process.

`Annotated` carries the limits, which `nodes.sent` checks. They aren't `msgspec.Meta`, as
workers import these types, and must not import packages of which the user may have another version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from .model import is_described_model
from .quantities import count_of
from .settings import Setting, Value, is_value

NODES, WORKERS = 1 << 16, 1 << 12
"""Nodes of a job, and workers of a node, at most: beyond any real cluster."""
RANKS = NODES * WORKERS
BYTES = 1 << 63
SECONDS = 1e12
RATE = 1e24
WORD, LINE, PARAGRAPHS = 256, 4096, 1 << 16
"""Characters of a name, a line and a few sentences, at most."""
PIDS = 1 << 22
"""The largest process id of Linux (proc_sys_kernel(5), pid_max)."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The values that a field may have: in words, and as a predicate."""

    words: str
    allows: Callable[[Any], bool]


def number(least: float, most: float) -> Limit:
    """A number in a range, both ends included; never NaN."""
    return Limit(f"from {least:,} to {most:,}", lambda value: least <= value <= most)


def text(most: int) -> Limit:
    """A text of at most `most` characters."""
    return Limit(
        f"a text of at most {count_of(most, 'character')}", lambda value: len(value) <= most
    )


def pattern(expression: str, words: str) -> Limit:
    """A text that a regular expression for ASCII matches as a whole."""
    compiled = re.compile(expression, re.ASCII)
    return Limit(words, lambda value: compiled.fullmatch(value) is not None)


def is_name(value: str) -> bool:
    """Whether it is a line of at most `WORD` characters, and not empty."""
    return 0 < len(value) <= WORD and "\n" not in value


def _are_settings(values: Mapping[str, Value]) -> bool:
    """Whether each name is a known setting or fact, and its value has the right type and range."""
    return all(is_value(value, name) and len(str(value)) <= LINE for name, value in values.items())


def _are_setting_names(names: list[str]) -> bool:
    return len(names) <= len(Setting) and all(name in {*Setting} for name in names)


def _are_words(values: Mapping[str, str]) -> bool:
    return all(len(name) <= WORD and len(value) <= WORD for name, value in values.items())


SETTINGS = Limit("settings and facts with valid values", _are_settings)

Count = Annotated[int, number(0, BYTES)]
"""Bytes, steps, samples."""
Counter = Annotated[int, number(0, 1 << 64)]
"""A number that fits into 64 bits."""
Positive = Annotated[int, number(1, BYTES)]
Attempts = Annotated[int, number(0, 1 << 16)]
Workers = Annotated[int, number(1, WORKERS)]
Rank = Annotated[int, number(0, RANKS)]
Pid = Annotated[int, number(0, PIDS)]
Code = Annotated[int, number(0, 255)]
"""An exit code."""
Rate = Annotated[float, number(1, RATE)]
"""FLOP/s, or bytes/s."""
Share = Annotated[float, number(0, 1)]
Seconds = Annotated[float, number(0, SECONDS)]
Moment = Annotated[float, number(-SECONDS, SECONDS)]
"""Seconds of a host's monotonic clock."""
Letter = Annotated[str, text(1)]
Word = Annotated[str, text(WORD)]
Line = Annotated[str, text(LINE)]
Paragraphs = Annotated[str, text(PARAGRAPHS)]
Named = Annotated[str, Limit(f"a name of at most {WORD} characters", is_name)]
Settings = Annotated[Mapping[str, Value], SETTINGS]
SettingNames = Annotated[list[str], Limit("names of settings", _are_setting_names)]
Words = Annotated[Mapping[str, str], Limit("short names and words", _are_words)]
Shape = Annotated[dict[str, Any], Limit("a model's shape", is_described_model)]
