"""The order of preference among candidates: which settings are kept first."""

from __future__ import annotations

from collections.abc import Callable

from ..core.choices import Checkpointing
from ..core.settings import Setting
from ..core.workload import Workload
from .estimates.training_states import Candidate
from .plan import Considered

SLOWER = 0.25
"""Predicted times that differ by less than this share of the original's count as equal: their
accuracy hasn't been measured."""


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
    ("offload: host memory, its traffic, and an extension to build", _differs(Setting.OFFLOAD)),
    ("checkpointing on or off: activations in memory, or recomputed", _toggles),
    ("ZeRO stage: memory against communication", _distance(Setting.ZERO_STAGE)),
    ("FSDP's parameters freed or kept: the same trade", _differs(Setting.RESHARD_AFTER_FORWARD)),
    ("micro batch: more and smaller passes", _distance(Setting.MICRO_BATCH)),
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


def rank(
    candidate: Candidate, evaluated: Considered, workload: Workload, reference: Considered
) -> tuple[float, ...]:
    """The sort key of a candidate, the smallest is preferred.

    The numerics first; then what is given up of the settings that the user stated, the most
    valuable first; then how much slower than what was asked it is predicted to be (being faster is
    no merit); then how far it departs from what was asked. Another micro batch gives up nothing
    that was stated, as the global batch stays; offload is never for free, whoever stated it.
    """
    asked = workload.asked
    departed = departure(candidate, asked)
    precision, offload, switched, stage, reshard, *rest = departed
    given_up = (
        offload,
        switched * workload.is_pinned(Setting.GRADIENT_CHECKPOINTING),
        stage * workload.is_pinned(Setting.ZERO_STAGE),
        reshard * workload.is_pinned(Setting.RESHARD_AFTER_FORWARD),
    )
    slower = 0
    if evaluated.seconds is not None and reference.seconds:
        slower = max(0, int((evaluated.seconds / reference.seconds - 1) / SLOWER))
    return (
        precision,
        *given_up,
        float(slower),
        switched,
        stage,
        reshard,
        *rest,
        evaluated.seconds or 0.0,
    )
