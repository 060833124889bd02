"""What logs are diagnosed as by the shipped catalogue, and the excerpts of logs in its entries."""

from __future__ import annotations

import re
from io import BytesIO

from safe_launch.catalogue.entry import KnownFailure
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.logs.judgement import Failure, Judgement
from safe_launch.logs.reader import Reader
from safe_launch.logs.verdict import decisive, judge

CATALOGUE = read_catalogue()
STEPS = "".join(f"step {number}/50 loss {3 - number / 20:.2f}\n" for number in range(1, 30))
"""A training that goes on."""


def judged(*logs: str | bytes, name: str = "") -> Judgement:
    """What files come to that belong to one run.

    Args:
        logs: their texts.
        name: the file's, if there is only one; else they are numbered.
    """
    reader = Reader(CATALOGUE)
    for number, log in enumerate(logs):
        content = log if isinstance(log, bytes) else log.encode()
        reader.read(name or f"{number}.log", BytesIO(content))
    return decisive(judge(reader.attempts, CATALOGUE))


def root_in(log: str | bytes) -> Failure:
    """The root cause of a log that shows one."""
    root = judged(log).root
    assert root is not None
    return root


def entry_of(judgement: Judgement) -> str | None:
    """The entry that explains the root cause, if there is one and one does."""
    return None if judgement.root is None else entry_of_failure(judgement.root)


def entry_of_failure(shown: Failure) -> str | None:
    """The entry that explains a failure, if one does."""
    return None if shown.finding.entry is None else shown.finding.entry.id


def excerpts(entry: KnownFailure, heading: str) -> list[str]:
    """The logs under a heading."""
    prose = entry.sections.get(heading, "")
    return re.findall(r"^```\n(.*?)^```", prose, re.DOTALL | re.MULTILINE)
