"""Recognizes a version skew between two packages, and recommends a remedy."""

from __future__ import annotations

import re

from ...catalogue.package_names import (
    PYTHON,
    package_of_file,
    package_of_module,
    pip_name,
)
from ...catalogue.version_skew import (
    CALLED,
    DISTINCT,
    IMPORTED,
    OF_MODULE,
    OF_OBJECT,
    SUBMODULE,
    UNPLACED,
    Skew,
    Wanting,
    history_of,
    owner_in,
    owners_of,
    package_of_class,
    skew_of,
)
from ...catalogue.versions import direction, known_direction
from ...evidence.failure_record import Raised
from .step import Case, Step

QUOTED = "because of the following error"
"""Text between a failed import and the quoted error."""


def shown_skew(case: Case) -> Skew | None:
    """The version skew shown by the first such exception.

    transformers raises another error from a failed import, and quotes it.
    """
    is_quoted = QUOTED in case.message
    raised = tuple(case.record.raised()) if is_quoted else (case.raised,)
    shown = (skew_of(case.record, error) or _without_frame(case, error) for error in raised)
    skew = next((skew for skew in shown if skew is not None), None)
    if skew is None and is_quoted:
        inner = case.message.partition(QUOTED)[2].partition(": ")[2]
        return _without_frame(case, Raised("ImportError", inner))
    return skew


def step_of(case: Case, skew: Skew) -> Step:
    """The step that fixes a skew."""
    if skew.kind is Wanting.SAME:
        return Step(_subject(skew))
    mends = direction(skew, case.record)
    if known_direction(skew, case.record):  # in words on the subject
        return Step(f"{_subject(skew)} {mends}")
    return Step(f"{mends} {_subject(skew)}")


def _subject(skew: Skew) -> str:
    """The sentence on the skew itself."""
    if skew.kind is Wanting.SAME:
        return (
            f"{skew.package}'s own files are of two versions, for it has no `{skew.name}` of its"
            " own: install it anew."
        )
    who = {
        Wanting.SCRIPT: "The script",
        Wanting.MODEL: "The model's own code",
        Wanting.PACKAGE: skew.wanting or "Other code",
    }[skew.kind]
    package = pip_name(skew.package)
    return f"{who} asks {package} for `{skew.name}`, which the installed {package} doesn't have."


def _without_frame(case: Case, raised: Raised) -> Skew | None:
    """The skew of an exception without a frame in the log; its user stays unknown."""
    if raised.frame is not None:
        return None
    message = " ".join(raised.message.split())
    package: str | None = None
    if match := IMPORTED.match(message):
        package = package_of_module(match["module"])
        package = package if package_of_file(match["path"] or "") in (package, None) else None
    elif match := UNPLACED.match(message):
        owners = owners_of(match["name"])
        package = owners[0] if len(owners) == 1 and DISTINCT.fullmatch(match["name"]) else None
        if package is None or not re.search(rf"\b{package}\b", case.around):
            return None
        return Skew(Wanting.PACKAGE, "", package, match["name"])
    elif (match := CALLED.match(message)) and match["name"]:
        package = package_of_class(match["class"] or match["function"], match["name"], ())
    elif match := OF_MODULE.match(message) or SUBMODULE.match(message):
        package = package_of_module(match["module"])
    elif match := OF_OBJECT.match(message):
        package = package_of_class(match["class"], match["name"], ())
        known = package and history_of(package, match["name"], match["class"])
        package = package if known and DISTINCT.fullmatch(match["name"]) else None
    if match is None or package in (None, PYTHON):
        return None
    return Skew(Wanting.PACKAGE, "", str(package), match["name"], owner_in(match))
