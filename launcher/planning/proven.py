"""Whether a combination of settings was shown to train the same in the installed versions.

`scripts/sweep` trains small models in every such cell, and compares them with one process that sees
the global batch at once. A version that it hasn't measured takes the verdict of the nearest lower
patch of its minor version that it has; between two measured versions that agree, theirs. Nothing
speaks for any other version.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..core.choices import Checkpointing, Engine, Offload, Precision
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.settings import OF_DDP, OF_DEEPSPEED, Fact, Name, Setting, Value
from ..core.workload import Workload
from .estimates.training_states import Candidate

PAGE = "docs/measured/sweep.md"
MANY = 3
"""The accumulation that stands for every larger one, and for two: what it shows counts for them."""
MODELS = ("twice", "once", "lora", "lora_twice", "frozen", "tied")
"""The models of the sweep."""
TWICE = ("twice", "lora_twice")
"""The models with a block that runs twice."""


class Verdict(StrEnum):
    """A cell's measured result; the values are the letters in the data file."""

    EQUAL = "="
    """Gradients and weights are those of one process."""
    FAILS = "!"
    """It raises, hangs or dies: a visible failure."""
    WRONG = "x"
    """It trains otherwise, without an error."""


MEASURED = (
    *(*OF_DEEPSPEED, Setting.ACCUMULATION, Setting.PRECISION),
    *(Setting.GRADIENT_CHECKPOINTING, *OF_DDP),
)
"""The settings that make a cell."""
WORST = (Verdict.EQUAL, Verdict.FAILS, Verdict.WRONG)
"""The verdicts, the worst one last."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The measurements of one library.

    Attributes:
        versions: the measured versions of the library.
        cells: of each cell a letter for each version, or "." if it wasn't measured.
    """

    versions: tuple[str, ...]
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Proof:
    """The evidence for a combination of settings.

    Attributes:
        library: whose engine it is.
        installed: its version.
        verdict: the measurement; None if nothing supports the version.
        measured: the versions that it was measured in; the installed one alone, if it was.
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
    """The evidence for a candidate: the worst verdict of its cells; None if the rule doesn't apply.

    Args:
        candidate: the settings.
        workload: the facts and the versions. A fact that isn't known may be either.
        sweeps: the measurements, by library.
    """
    engines = list(_engines(candidate, workload))
    library = "deepspeed" if workload.engine is Engine.DEEPSPEED else "torch"
    installed = _release(workload.versions.get(library, ""))
    if not engines or installed is None:
        return None
    for models in (_models(workload), TWICE):
        found: list[Verdict] = []
        measured: set[str] = set()
        for key in _cells(engines, candidate, models):
            verdicts = _verdicts(key, installed, sweeps[library])
            found += verdicts.values()
            measured |= verdicts.keys()
        if found:
            break
    # A model with a block that runs twice has all that one whose blocks run once has, not less.
    is_harder = models == TWICE and set(found) != {Verdict.EQUAL}
    verdict = None if is_harder else max(found, key=WORST.index, default=None)
    return Proof(library, installed, verdict, tuple(sorted(measured, key=_numbers)))


def wrong_cells(workload: Workload, sweeps: Mapping[str, Sweep]) -> Iterator[Constraint]:
    """Each wrong cell, as a constraint on a plan's changes."""
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
            f"measured with {library} {version}: it trains otherwise than one process",
            PAGE,
            is_silent=True,
        )
        yield Constraint(tuple(_terms(*settings)), cause)


def _engines(candidate: Candidate, workload: Workload) -> Iterator[str]:
    """The sweep's names of the engine; none if it isn't known or wasn't measured."""
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
    """The keys of all cells that a candidate may be."""
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
    """The states kept in host memory; a lower stage does only part of what was asked."""
    stage = int(candidate.get(Setting.ZERO_STAGE, 3))
    asked = str(candidate.get(Setting.OFFLOAD, Offload.NONE.value))
    if stage == 0 or asked == Offload.NONE:
        return Offload.NONE.value
    return asked if stage == 3 else Offload.OPTIMIZER.value


def _known(candidate: Candidate, setting: Setting, every: Iterable[StrEnum]) -> Sequence[object]:
    """The value of a setting, or all that it may have."""
    value = candidate.get(setting)
    return [member.value for member in every] if value is None else [value]


def _models(workload: Workload) -> tuple[str, ...]:
    """The models that the trained one may be like, by what is known of it."""
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
    """The verdicts that count for a version, by the version that each was measured in."""
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
    """The version without a build's name or a suffix; None if it isn't one."""
    found = re.match(r"\d+\.\d+(?:\.\d+)?", version)
    return None if found is None else found[0]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
