"""The order of preference among candidates: which settings are kept first."""

from __future__ import annotations

from collections.abc import Callable

from ..core.settings import Checkpointing, Setting
from ..core.workload import Workload
from .estimates.training_states import Candidate
from .plan import Considered

SLOWER = 0.05
"""Predicted times that differ by less than this share of the request's time count as equal."""


def _distance(setting: Setting) -> Callable[[Candidate, Candidate], float]:
    """Measures how far a number is from what was asked for."""

    def distance(candidate: Candidate, asked: Candidate) -> float:
        return abs(float(candidate.get(setting, 0)) - float(asked.get(setting, 0)))

    return distance


def _differs(setting: Setting) -> Callable[[Candidate, Candidate], float]:
    """Measures whether a setting differs from what was asked for."""
    return lambda candidate, asked: float(candidate.get(setting) != asked.get(setting))


def _toggles(candidate: Candidate, asked: Candidate) -> float:
    """Whether checkpointing was turned on or off, beyond a change of its implementation."""
    name = Setting.GRADIENT_CHECKPOINTING
    off = Checkpointing.OFF
    return float((candidate.get(name) == off) != (asked.get(name) == off))


PREFERENCES: tuple[tuple[str, Callable[[Candidate, Candidate], float]], ...] = (
    ("precision: changes the numerics", _differs(Setting.PRECISION)),
    ("checkpointing on or off: activations in memory, or recomputed", _toggles),
    ("offload: traffic between host and accelerator", _differs(Setting.OFFLOAD)),
    ("micro batch: more and smaller passes", _distance(Setting.MICRO_BATCH)),
    ("ZeRO stage: memory against communication", _distance(Setting.ZERO_STAGE)),
    ("DDP's static_graph: the script must keep a promise", _differs(Setting.STATIC_GRAPH)),
    ("DDP's find_unused_parameters", _differs(Setting.FIND_UNUSED_PARAMETERS)),
    ("checkpointing's implementation", _differs(Setting.GRADIENT_CHECKPOINTING)),
)
"""The settings in the order in which they are kept, the most valuable first."""


def departure(candidate: Candidate, asked: Candidate) -> tuple[float, ...]:
    """How far the candidate departs from what was asked for; smaller is better.

    The most valuable setting is compared first. Of two stages at equal distance the lower is
    preferred, because it communicates less; of two implementations of checkpointing, the one
    without nested backward passes.
    """
    return (
        *(measure(candidate, asked) for _, measure in PREFERENCES),
        float(candidate.get(Setting.ZERO_STAGE, 0)),
        float(candidate.get(Setting.GRADIENT_CHECKPOINTING) == Checkpointing.REENTRANT),
    )


TRADED = (
    Setting.MICRO_BATCH,
    Setting.ACCUMULATION,
    Setting.ZERO_STAGE,
    Setting.OFFLOAD,
    Setting.GRADIENT_CHECKPOINTING,
)
"""The settings that trade memory for time."""


def rank(
    candidate: Candidate, evaluated: Considered, workload: Workload, reference: Considered
) -> tuple[float, ...]:
    """The sort key of a candidate, the smallest is preferred.

    It compares the numerics, then whether an explicit request of the user is changed, then how much
    slower than the request the candidate is predicted to be (being faster is no merit), then how
    far it departs from the request, the most valuable setting first.
    """
    asked = workload.asked
    departed = departure(candidate, asked)
    given_up = any(
        candidate[setting] != value and workload.is_pinned(setting)
        for setting, value in asked.items()
        if setting in TRADED
        and (setting is not Setting.GRADIENT_CHECKPOINTING or _toggles(candidate, asked))
    )
    slower = 0
    if evaluated.seconds is not None and reference.seconds:
        slower = max(0, round((evaluated.seconds / reference.seconds - 1) / SLOWER))
    return (departed[0], float(given_up), float(slower), *departed[1:], evaluated.seconds or 0.0)
