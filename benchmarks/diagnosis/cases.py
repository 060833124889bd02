"""The cases of the benchmark: logs with their true cause and remedy, and how answers are judged."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path(__file__).with_name("cases")
HEALTHY = "healthy"
OPEN, TEST = "open", "test"
HALVES = (OPEN, TEST)
SEPARATOR = "---\n"
FIRST_LINES = 3


@dataclass(frozen=True)
class Answer:
    """What a tool says of a log.

    Attributes:
        failed: whether it says that there is a failure.
        text: what it prints, line by line.
        seconds: from its start to its end.
    """

    failed: bool
    text: str
    seconds: float


@dataclass(frozen=True)
class Score:
    """How an answer is judged; `accused` alone says something of a healthy log.

    Attributes:
        named: the answer shows the root.
        right: it advises what mends the failure, and nothing that misleads.
        wrong: it misleads: a wrong remedy, a failure overlooked, a healthy log accused.
        first_lines: its first three lines are enough: they show the root and the right advice.
        accused: it calls a healthy log a failure.
    """

    named: bool
    right: bool
    wrong: bool
    first_lines: bool
    accused: bool


@dataclass(frozen=True)
class Case:
    """A log, and what is true of it. README.md says what each field means."""

    name: str
    source: str
    year: int
    frameworks: tuple[str, ...]
    device: str
    ranks: int | None
    kind: str
    cause: str
    remedy: str
    remedy_by: str
    root: str | None
    advice: tuple[str, ...]
    wrong: tuple[str, ...]
    log: str

    @property
    def half(self) -> str:
        """Which half it is in, by its source: entries are never made from the test half."""
        return HALVES[hashlib.sha256(self.source.encode()).digest()[0] % 2]

    def judged(self, answer: Answer) -> Score:
        """How right an answer is."""
        text = joined(answer.text)
        misled = any(found(each, text) for each in self.wrong)
        if self.root is None:
            return Score(False, False, answer.failed or misled, False, answer.failed)
        named = answer.failed and found(self.root, text)
        right = answer.failed and not misled and all(found(each, text) for each in self.advice)
        head = joined("\n".join(answer.text.splitlines()[:FIRST_LINES]))
        enough = right and all(found(each, head) for each in (self.root, *self.advice))
        return Score(named, right, misled or not answer.failed, enough, False)


def found(expression: str, text: str) -> bool:
    """Whether a regular expression is found, in upper or lower case."""
    return re.search(expression, text, re.IGNORECASE) is not None


def joined(text: str) -> str:
    """A text without its breaks: where a tool wraps lines says nothing of its answer."""
    return " ".join(text.split())


def read(paths: Sequence[Path] = ()) -> Iterator[Case]:
    """The cases in files, all of them if none is named.

    Raises:
        ValueError: a file isn't a case.
    """
    for path in paths or sorted(FOLDER.glob("*.md")):
        try:
            _, head, log = path.read_text().split(SEPARATOR, 2)
            fields = yaml.safe_load(head)
            for name in ("frameworks", "advice", "wrong"):
                fields[name] = tuple(fields[name])
            yield Case(name=path.stem, log=log, **fields)
        except (ValueError, TypeError, KeyError, yaml.YAMLError) as error:
            raise ValueError(f"{path} isn't a case: {error}") from error
