"""Patterns to search in logs, compiled once for all files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..catalogue.entry import KnownFailure
from ..catalogue.regex import LinearPatterns
from ..diagnosis.next_step.surroundings import FACTS
from .exception_lines import KINDS, OF_PYTHON, UNTYPED
from .interleaved import TRIGGER
from .launcher_messages import ENDS, HANGS, RESUMES, STARTS
from .progress_signs import COMPLETIONS, ENDINGS, FINISHED, PROGRESS

NAMED = re.compile(r"(?<!\\)\(\?P<\w+>")
"""The beginning of a named group."""
BEGINNINGS = (
    r"Traceback \(most",
    r'File "[^"\n]+", line \d+',
    r'\.py", line \d+, in |File \S+\.py:\d+, in \w',
    rf"[A-Za-z](?:{KINDS})[\s`'\")*.,!?\]]*(?:$|[:\n\r(])",
    r"Exception ignored in|Error in atexit\._run",
    r"exitcode|exit code|return code|exited with|\*\*\* .{1,80} Error|rank +: \d+ \(local_rank",
    r"srun: error|slurmstepd",
    r"Killed|Segmentation fault|Bus error|Aborted|Fatal Python error|core dumped",
    r"\w\(\): (?:invalid|corrupt|unaligned|memory|double)|double free|corrupted |smashing",
    r"Assertion `",
    r"terminate called|watchdog thread terminated",
    *UNTYPED,
    OF_PYTHON,
    TRIGGER,
    *FACTS,
)
"""Beginnings of evidence, in addition to the catalogue's patterns."""


@dataclass(frozen=True, slots=True)
class Searches:
    """Compiled patterns.

    Attributes:
        quiet: matches all beginnings of evidence, in bytes.
        watchful: matches beginnings of evidence and signs of progress.
        logs: the catalogue's patterns for lines.
    """

    quiet: Any
    watchful: Any
    logs: LinearPatterns


def searches_for(catalogue: Sequence[KnownFailure]) -> Searches:
    """The searches for the failures of a catalogue."""
    signatures = [sign for entry in catalogue for sign in entry.signatures]
    variants = [variant for entry in catalogue for variant in entry.variants]
    logs = {sign.log.pattern for sign in signatures if sign.log is not None}
    beside = [sign.context for sign in signatures]
    beside += [pattern for variant in variants for pattern in (variant.log, variant.context)]
    contexts = {pattern.pattern for pattern in beside if pattern is not None}
    return _searches(tuple(sorted(logs)), tuple(sorted(logs | contexts)))


@lru_cache(maxsize=4)
def _searches(logs: tuple[str, ...], patterns: tuple[str, ...]) -> Searches:
    """Compiles a catalogue's patterns for lines, and all its patterns."""
    loose = map(loosened, patterns)
    telling = [*BEGINNINGS, *STARTS, *RESUMES, *ENDS, *HANGS, COMPLETIONS, FINISHED, *loose]
    return Searches(
        quiet=automaton(telling),
        watchful=automaton([*telling, PROGRESS, ENDINGS]),
        logs=LinearPatterns(logs),
    )


def loosened(pattern: str) -> str:
    """Loosens a pattern to match whole lines with prefixes.

    Anchors are dropped, since prefixes precede the line, a space matches any run of white space,
    and groups have no names, which may be those of another pattern.
    """
    pattern = NAMED.sub("(?:", pattern)
    result: list[str] = []
    is_class = False
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            result.append(pattern[position : position + 2])
            position += 2
            continue
        if is_class:
            is_class = char != "]" or pattern[position - 1] == "["
            result.append(char)
        elif char == "[":
            is_class = True
            result.append(char)
            if pattern[position + 1 : position + 2] == "^":
                position += 1
                result.append("^")
                if pattern[position + 1 : position + 2] == "]":
                    position += 1
                    result.append("]")
        elif char == " ":
            result.append(r"(?:[ \t]+)")
        elif char not in "^$":
            result.append(char)
        position += 1
    return "".join(result)


def automaton(patterns: Iterable[str]) -> Any:
    """All patterns compiled as one alternative, for bytes."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 256 << 20
    options.never_nl = False
    union = "|".join(f"(?:{pattern})" for pattern in patterns)
    return re2.compile(union.encode(), options)
