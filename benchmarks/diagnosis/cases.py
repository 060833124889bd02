"""The cases of the benchmark: logs with true cause and remedy, and the judging of answers."""

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
    """A tool's answer on a log.

    Attributes:
        failed: whether it reports a failure.
        text: its output, line by line.
        seconds: from its start to its end.
    """

    failed: bool
    text: str
    seconds: float


@dataclass(frozen=True)
class Score:
    """The judgement of an answer; for a healthy log only `accused` matters.

    Attributes:
        named: the answer shows the root.
        right: it advises a true remedy and no misleading one.
        wrong: it misleads: a wrong remedy, a missed failure, an accused healthy log.
        first_lines: its first three lines suffice: they show the root and the right advice.
        accused: it calls a healthy log a failure.
    """

    named: bool
    right: bool
    wrong: bool
    first_lines: bool
    accused: bool


@dataclass(frozen=True)
class Case:
    """A log and its truth. README.md explains the fields."""

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
        """Its half, by its source: entries are never made from the test half."""
        return HALVES[hashlib.sha256(self.source.encode()).digest()[0] % 2]

    def judged(self, answer: Answer) -> Score:
        """The score of an answer."""
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
    """Whether a regular expression matches, ignoring case."""
    return re.search(expression, text, re.IGNORECASE) is not None


def joined(text: str) -> str:
    """A text without line breaks, since tools wrap lines differently."""
    return " ".join(text.split())


def read(paths: Sequence[Path] = ()) -> Iterator[Case]:
    """The cases in files, by default all.

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
