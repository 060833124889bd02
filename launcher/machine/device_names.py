"""Matches names of accelerators and nodes, as used by people, drivers and clouds, to profiles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAKERS = re.compile(r"^(nvidia|amd|huawei|ascend|geforce|instinct|quadro|radeon|tesla|rtx)+")
"""Vendors and product lines, which may be omitted or joined to the model."""
FORMS = {"pcie": "pcie", "pci": "pcie", "nvl": "nvl"} | {
    f"sxm{generation}": "sxm" for generation in ("", *range(2, 7))
}
"""Board form factors by spelling; a profile without one may have any but `nvl`."""
FORM_BEHIND = re.compile(r"(?P<model>.+?)(?P<form>sxm\d?|pcie|nvl)")
IGNORED = frozenset(
    {"accelerator", "ampere", "blackwell", "card", "core", "edition", "generation", "gpu", "gpus"}
    | {"graphics", "hbm", "hbm2", "hbm2e", "hbm3", "hbm3e", "hopper", "mega", "npu", "npus", "oam"}
    | {"server", "tensor", "vf", "workstation"}
)
"""Words without meaning for a device's identity."""
SIZE = re.compile(r"(\d+)(?:g|gb|gib)")
SIZE_APART = re.compile(r"\b(\d+) +(g|gb|gib)\b")
TOLERANCE = 0.12
"""Relative tolerance between a written size and the driver's."""


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A parsed name.

    Attributes:
        model: the joined rest without vendor, size and form: `a100`.
        gib: the memory size in it.
        form: the form factor in it; empty if none.
    """

    model: str
    gib: int | None = None
    form: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible name of a profile or node."""

    name: str
    called: tuple[str, ...]
    gib: float


def read(text: str) -> DeviceName:
    """Parses a name."""
    model, gib, form = "", None, ""
    lower = SIZE_APART.sub(r"\1\2", text.lower())
    for word in re.split(r"[^a-z0-9]+", lower):
        rest = MAKERS.sub("", word)
        if behind := FORM_BEHIND.fullmatch(rest):
            rest, form = behind["model"], FORMS.get(behind["form"], form)
        if size := SIZE.fullmatch(rest):
            gib = int(size[1])
        elif rest in FORMS:
            form = FORMS[rest]
        elif rest not in IGNORED:
            model += rest
    return DeviceName(model, gib, form)


def fitting(text: str, candidates: Iterable[Candidate]) -> Sequence[Candidate]:
    """Candidates that match a name, smallest first.

    A size or form in the name must match. An exact match of the form is unambiguous.
    """
    wanted = read(text)
    called = [(read(name), each) for each in candidates for name in each.called]
    matches = [(known, each) for known, each in called if _fits(wanted, known, each.gib)]
    exact = [each for known, each in matches if wanted.form and known.form == wanted.form]
    unique = {
        candidate.name: candidate for candidate in exact or [candidate for _, candidate in matches]
    }
    return sorted(unique.values(), key=lambda each: (round(each.gib), len(each.name), each.name))


def of_the_model(text: str, candidates: Iterable[Candidate]) -> Sequence[Candidate]:
    """Candidates of the name's model, or of models whose names begin with it."""
    wanted, by_model = read(text).model, _by_model(candidates)
    same = [each for model, each in by_model if wanted and model == wanted]
    longer = [each for model, each in by_model if len(wanted) > 2 and model.startswith(wanted)]
    return list({candidate.name: candidate for candidate in (same or longer)}.values())


def of_the_beginning(text: str, candidates: Iterable[Candidate]) -> Sequence[Candidate]:
    """Candidates whose model is a prefix of the name's: `rtx-5090` for a laptop's."""
    wanted = read(text).model
    models = _by_model(candidates)
    return [each for model, each in models if len(model) > 2 and wanted.startswith(model)]


def _by_model(candidates: Iterable[Candidate]) -> list[tuple[str, Candidate]]:
    return [(read(name).model, candidate) for candidate in candidates for name in candidate.called]


def _fits(wanted: DeviceName, known: DeviceName, gib: float) -> bool:
    size = known.gib or gib
    return (
        bool(wanted.model)
        and wanted.model == known.model
        and (wanted.form in ("", known.form) or (not known.form and wanted.form != "nvl"))
        and (wanted.gib is None or abs(wanted.gib - size) <= TOLERANCE * size)
    )
