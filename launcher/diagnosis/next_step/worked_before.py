"""Reads in a person's words with which release of a package the same run works."""

from __future__ import annotations

import re

from ...catalogue.package_names import pip_name
from ...catalogue.versions import NAMES, import_name
from .step import Case, Step

BETWEEN = r"[\s(`'\"]*(?:package|version|release)?[\s(=:`'\"]*"
VERSION = r"v?\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc|dev)\d+)?"
RELEASE = re.compile(
    rf"(?<![\w./-])(?P<package>{NAMES}){BETWEEN}(?:from{BETWEEN})?(?P<version>{VERSION})", re.I
)
"""A package with a version."""
WELL = r"(?:normally|fine|well|correctly|successfully|as expected|again)"
WORKS = re.compile(
    rf"\b(?:(?:works?|worked)(?: {WELL})?|(?:trains?|trained|runs?|ran) {WELL})"
    r" (?:with|in|on|using|under|after (?:downgrading|going back|switching) to)\b"
    r"|\bdowngrad(?:ed?|ing)\b.*\b(?:works?|fix\w*|solve\w*|helps?|resolve\w*)\b",
    re.IGNORECASE,
)
"""A sentence on what works."""
RAISED = re.compile(rf"\b(?:upgrad|updat|bump)\w+ .*\bfrom{BETWEEN}{VERSION} to{BETWEEN}\d", re.I)
"""A sentence on an upgrade."""
BROKE = re.compile(r"\b(?:since|after|now|then|new error|fails?|broke\w*|breaks?)\b", re.I)
FAILS = re.compile(
    r"\b(?:errors?|fails?|failed|crash\w*|issues?|problems?|only|not|never|nothing|nobody|no one"
    r"|hung|hoping|documentation|tutorial|cpu|windows|fix\w*|solved?|(?:one|single|1) gpu)\b"
    r"|n't\b|\?",
    re.IGNORECASE,
)
"""Words of a sentence on what doesn't work, is asked, or is another run."""
LOGGED = re.compile(r"\b(?:INFO|DEBUG|WARN\w*|ERROR)\b|^\W*\[")
"""A program's line."""
SENTENCE = re.compile(r"(?<=[.!;])\s|(?<=\?)\s|\bbut\b|\bwhile\b")
KINDS = (
    *("AssertionError", "AttributeError", "ImportError", "ModuleNotFoundError", "TypeError"),
    *("KeyError", "NotImplementedError", "RuntimeError", "ValueError"),
)
"""Exceptions that a release of a package may raise by itself."""


def worked_before(case: Case) -> Step | None:
    """The release to go back to, if somebody's words name one with which it works."""
    if case.kind not in KINDS:
        return None
    lines = case.around.splitlines()
    said = SENTENCE.split(
        " ".join(" ".join(each for each in lines if not LOGGED.search(each)).split())
    )
    works = [text for text in said if RAISED.search(text) and BROKE.search(text)]
    works += [text for text in said if WORKS.search(text) and not FAILS.search(text)]
    fails = (text for text in said if FAILS.search(text) and text not in works)
    failing = {match[0] for text in fails for match in RELEASE.finditer(text)}
    named = (match for text in works for match in RELEASE.finditer(text) if match[0] not in failing)
    match = next(named, None)
    if match is None or import_name(match["package"]) == "torch":  # all others are built for it
        return None
    package, version = pip_name(import_name(match["package"])), match["version"].lstrip("v")
    if any(LOGGED.search(line) and version in line for line in lines):
        return None  # it is the one that has failed
    return Step(
        f'Go back to {package} {version} (`pip install "{package}=={version}"`), with which it'
        f" works by the words around this log, or upgrade what uses {package} along with it: one"
        " of the two doesn't know the other's newer release yet."
    )
