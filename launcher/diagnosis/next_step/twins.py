"""Recognizes objects of a package that is installed under two names, whose classes differ."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...catalogue.package_names import PYTHON, package_of_module, pip_name
from .step import Case, Step


@dataclass(frozen=True, slots=True)
class Twins:
    """Two packages with classes of the same names.

    Attributes:
        first: a module of the first, as imports write it.
        second: the same module of the second.
        words: pattern of any name of either.
    """

    first: str
    second: str
    words: str


EVERY = (
    Twins("lightning.fabric", "lightning_fabric", r"lightning[._]fabric"),
    Twins(
        "lightning.pytorch",
        "pytorch_lightning",
        r"lightning\.pytorch|pytorch[_-]lightning|LightningModule",
    ),
    Twins("keras", "tf_keras", r"\b(?:tf[_.])?keras\b"),
    Twins("pydantic", "pydantic.v1", r"\bpydantic(?:\.v1)?\b"),
)
REFUSES = re.compile(
    r"\binstances? of\b|\bsubclass(?:es)?\b|\bmust be an? |\bshould be an? |\bexpected\b"
    r"|\binvalid \w+ name\b|\bis not an? ",
    re.IGNORECASE,
)
"""Words of a check of an object's class."""
OBJECT = re.compile(r"<(?P<module>(?:\w+\.)+)\w+ object at 0x|'(?P<typed>(?:\w+\.)+)[A-Z]\w+'")
"""An object or class in a message, with its module."""


def twins(case: Case) -> Step | None:
    """A class check that an object of the package's twin fails, and the package to change."""
    if case.kind not in ("ValueError", "TypeError", "MisconfigurationException"):
        return None
    pair = next((known for known in EVERY if re.search(known.words, case.message)), None)
    if pair is None or not REFUSES.search(case.message):
        return None
    around = case.around
    names = (rf"\b{re.escape(name).replace('_', '[-_]')}\b" for name in (pair.first, pair.second))
    if not all(re.search(name, around) for name in names):
        return None
    third = _maker(case)
    first, second = pair.first, pair.second
    newer = (
        f", or take the newest {third} (`pip install -U {pip_name(third)}`), which may have moved"
        f" from {second} to {first}"
        if third
        else ""
    )
    return Step(
        f"Use one of the two packages everywhere: import {second} in place of {first} in the"
        f" script (or the other way round){newer}. {first} and {second} have classes of the"
        " same names, and neither takes an object of the other's class."
    )


def _maker(case: Case) -> str | None:
    """The third package that has made the refused object, if the message names it."""
    match = OBJECT.search(case.message)
    module = (match["module"] or match["typed"]) if match else ""
    package = package_of_module(module)
    return package if package not in (None, PYTHON, case.package) else None
