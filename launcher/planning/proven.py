"""Looks up whether settings are proven to train the same in the installed versions.

`scripts/sweep` trains small models in every cell, and compares them with a single process on the
whole global batch. An unmeasured version takes the verdict of the nearest lower measured patch of
its minor version; between two measured versions that agree, their verdict. Other versions have no
verdict.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from ..core.choices import Checkpointing, Engine, Offload, Precision
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.settings import Fact, Name, Setting, Value
from ..core.workload import Workload
from .estimates.training_states import Candidate

PAGE = "docs/measured/sweep.md"
MANY = 3
"""The accumulation that represents all larger ones, and two."""
MODELS = ("twice", "once", "lora", "lora_twice", "frozen", "tied")
"""The models of the sweep."""
TWICE = ("twice", "lora_twice")
"""Models with a block that runs twice."""


class Verdict(StrEnum):
    """A cell's measured result, by its letter in the data file."""

    EQUAL = "="
    """Gradients and weights equal those of one process."""
    FAILS = "!"
    """Training fails visibly: it raises, hangs or dies."""
    WRONG = "x"
    """Training silently differs."""


MEASURED = {setting for setting in Setting if setting.row.is_measured}
"""The settings that define a cell."""
WORST = (Verdict.EQUAL, Verdict.FAILS, Verdict.WRONG)
"""The verdicts, worst last."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The measurements of one library.

    Attributes:
        versions: the measured versions of the library.
        cells: for each cell, a letter per version, "." if not measured.
    """

    versions: tuple[str, ...]
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Proof:
    """The evidence for a combination of settings.

    Attributes:
        library: the engine's library.
        installed: the library's version.
        verdict: the result; None if there is none for the version.
        measured: the versions of the measurement; only the installed one if measured.
    """

    library: str
    installed: str
    verdict: Verdict | None
    measured: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the installed version itself was measured."""
        return self.measured == (self.installed,)


def proof_of(candidate: Candidate, workload: Workload, sweeps: Mapping[str, Sweep]) -> Proof | None:
    """The evidence for a candidate: the worst verdict of its cells, if the rule applies.

    Unknown facts may have any value. The measurements in `sweeps` are by library.
    """
    engines = list(_engines(candidate, workload))
    library = "deepspeed" if workload.engine is Engine.DEEPSPEED else "torch"
    installed = _release(workload.versions.get(library, ""))
    if not engines or installed is None:
        return None
    for models in (_models(workload), TWICE):
        verdicts: list[Verdict] = []
        measured: set[str] = set()
        for key in _cells(engines, candidate, models):
            by_version = _verdicts(key, installed, sweeps[library])
            verdicts += by_version.values()
            measured |= by_version.keys()
        if verdicts:
            break
    # A model with a block that runs twice includes all features of one whose blocks run once.
    is_harder = models == TWICE and set(verdicts) != {Verdict.EQUAL}
    verdict = None if is_harder else max(verdicts, key=WORST.index, default=None)
    return Proof(library, installed, verdict, tuple(sorted(measured, key=_numbers)))


def wrong_cells(workload: Workload, sweeps: Mapping[str, Sweep]) -> Iterator[Constraint]:
    """The wrong cells, as constraints on a plan's changes."""
    library = "deepspeed" if workload.engine is Engine.DEEPSPEED else "torch"
    installed = _release(workload.versions.get(library, ""))
    if installed is None or workload.engine is None:
        return
    models = _models(workload)
    wrong: dict[tuple[str, ...], str] = {}
    for key, letters in sweeps[library].cells.items():
        *cell, _, model = key.split("/")
        if model in models and Verdict.WRONG in letters:
            verdicts = _verdicts(key, installed, sweeps[library])
            if Verdict.WRONG in verdicts.values():
                wrong.setdefault(tuple(cell), ", ".join(verdicts))
    for settings, version in wrong.items():
        cause = Cause(
            CauseKind.MEASUREMENT,
            "/".join(settings),
            f"measured with {library} {version}: its results differ from a single process",
            PAGE,
            is_silent=True,
        )
        yield Constraint(tuple(_terms(*settings)), cause)


def _engines(candidate: Candidate, workload: Workload) -> Iterator[str]:
    """The sweep's names of the engine; empty if unknown or not measured."""
    stage = candidate.get(Setting.ZERO_STAGE)
    if workload.engine is Engine.DEEPSPEED and stage is not None:
        yield f"zero{stage}"
    elif workload.engine is Engine.FSDP and workload.value(Fact.FSDP_VERSION) == 2:
        yield "fsdp2"
    elif workload.engine is Engine.DDP:
        switches = {
            "ddp_static": Setting.STATIC_GRAPH,
            "ddp_unused": Setting.FIND_UNUSED_PARAMETERS,
        }
        on = [name for name, setting in switches.items() if candidate.get(setting)]
        yield from on or ["ddp"]


def _cells(engines: Iterable[str], candidate: Candidate, models: Iterable[str]) -> Iterator[str]:
    """Keys of all cells that may match a candidate."""
    steps = candidate.get(Setting.ACCUMULATION)
    options: tuple[Iterable[object], ...] = (
        engines,
        [_offload(candidate)],
        (1, MANY) if steps is None else [1 if int(steps) == 1 else MANY],
        _known(candidate, Setting.PRECISION, Precision),
        _known(candidate, Setting.GRADIENT_CHECKPOINTING, Checkpointing),
        ("unclipped", "clipped"),
        models,
    )
    for values in itertools.product(*options):
        yield "/".join(str(value) for value in values)


def _offload(candidate: Candidate) -> str:
    """The states in host memory, limited by the stage."""
    stage = int(candidate.get(Setting.ZERO_STAGE, 3))
    offload = str(candidate.get(Setting.OFFLOAD, Offload.NONE.value))
    if stage == 0 or offload == Offload.NONE:
        return Offload.NONE.value
    return offload if stage == 3 else Offload.OPTIMIZER.value


def _known(candidate: Candidate, setting: Setting, every: Iterable[StrEnum]) -> Sequence[object]:
    """The value of a setting, or all possible values."""
    value = candidate.get(setting)
    return [member.value for member in every] if value is None else [value]


def _models(workload: Workload) -> tuple[str, ...]:
    """The sweep's models that may match the trained one, by known facts."""
    runs_once = workload.value(Fact.BLOCK_RUNS_TWICE) is False
    return tuple(model for model in MODELS if not (runs_once and model in TWICE))


def _terms(
    engine: str, offload: str, accumulation: str, precision: str, checkpointing: str
) -> Iterator[Term]:
    """The terms of a cell, without model and clipping."""
    if engine.startswith("zero"):
        yield _term(Fact.ENGINE, Engine.DEEPSPEED.value)
        yield _term(Setting.ZERO_STAGE, int(engine[-1]))
    elif engine == "fsdp2":
        yield _term(Fact.ENGINE, Engine.FSDP.value)
        yield _term(Fact.FSDP_VERSION, 2)
    else:
        yield _term(Fact.ENGINE, Engine.DDP.value)
        yield _term(Setting.STATIC_GRAPH, engine == "ddp_static")
        yield _term(Setting.FIND_UNUSED_PARAMETERS, engine == "ddp_unused")
    if not engine.startswith("ddp"):
        yield _term(Setting.OFFLOAD, offload)
    many = None if accumulation == "1" else 2
    values = frozenset[Value]({1}) if many is None else frozenset[Value]()
    yield Term(Setting.ACCUMULATION, values, many)
    yield _term(Setting.PRECISION, precision)
    yield _term(Setting.GRADIENT_CHECKPOINTING, checkpointing)


def _term(name: Name, value: Value) -> Term:
    return Term(name, frozenset({value}))


def _verdicts(key: str, installed: str, sweep: Sweep) -> dict[str, Verdict]:
    """The verdicts that apply to a version, by measured version."""
    letters = sweep.cells.get(key, "")
    known = {
        version: Verdict(letter)
        for version, letter in zip(sweep.versions, letters, strict=False)
        if letter != "."
    }
    if installed in known:
        return {installed: known[installed]}
    lower = [version for version in known if _numbers(version) < _numbers(installed)]
    higher = [version for version in known if _numbers(version) > _numbers(installed)]
    below = max(lower, key=_numbers, default=None)
    above = min(higher, key=_numbers, default=None)
    if below is not None and _numbers(below)[:2] == _numbers(installed)[:2]:
        return {below: known[below]}
    if below is not None and above is not None and known[below] is known[above]:
        return {below: known[below], above: known[above]}
    return {}


def _release(version: str) -> str | None:
    """The version without build name or suffix; None if invalid."""
    release = re.match(r"\d+\.\d+(?:\.\d+)?", version)
    return None if release is None else release[0]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


@cache
def shipped_sweeps() -> Mapping[str, Sweep]:
    """The measurements, by library."""
    text = (Path(str(files("safe_launch.presets"))) / "sweep.json").read_text("utf-8")
    return MappingProxyType(
        {
            library: Sweep(tuple(sweep["versions"]), sweep["cells"])
            for library, sweep in json.loads(text).items()
        }
    )
