"""The excerpts of logs in the entries of the catalogue, and what they are diagnosed as."""

from __future__ import annotations

import re
from functools import cache
from io import BytesIO

from safe_launch.catalogue.entry import Finding, KnownFailure
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.logs.reader import Reader
from safe_launch.logs.verdict import decisive, judge


def excerpts(entry: KnownFailure, heading: str) -> list[str]:
    """The logs under a heading."""
    prose = entry.sections.get(heading, "")
    return re.findall(r"^```\n(.*?)^```", prose, re.DOTALL | re.MULTILINE)


@cache
def _shipped() -> tuple[tuple[KnownFailure, ...], Reader]:
    """The shipped catalogue, and a reader with its patterns, which take a while to compile."""
    catalogue = read_catalogue()
    return catalogue, Reader(catalogue)


def root_of(log: str) -> Finding | None:
    """The root cause that a log shows by the shipped catalogue, if any."""
    catalogue, reader = _shipped()
    reader.attempts.clear()
    reader.read("excerpt.log", BytesIO(log.encode()))
    root = decisive(judge(reader.attempts, catalogue)).root
    return None if root is None else root.finding
