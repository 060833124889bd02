"""Ranks candidates: which settings to keep first."""

from __future__ import annotations

from collections.abc import Callable

from ..core.choices import Checkpointing
from ..core.settings import Setting
from ..core.workload import Workload
from .estimates.training_states import Candidate
from .plan import Considered

SLOWER = 0.25
"""Relative difference below which predicted times count as equal, as their accuracy hasn't been
measured."""


def _distance(setting: Setting) -> Callable[[Candidate, Candidate], float]:
    """Measures the distance of a number from the requested one."""

    def distance(candidate: Candidate, asked: Candidate) -> float:
        return abs(float(candidate.get(setting, 0)) - float(asked.get(setting, 0)))

    return distance


def _differs(setting: Setting) -> Callable[[Candidate, Candidate], float]:
    """Measures whether a setting differs from the requested one."""
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
"""The settings to keep, most valuable first."""


def departure(candidate: Candidate, asked: Candidate) -> tuple[float, ...]:
    """The candidate's distance from the request; smaller is better.

    Compares the most valuable setting first. Of two stages at equal distance the lower is
    preferred, as it communicates less; of two checkpointing modes, the one without nested backward
    passes.
    """
    return (
        *(measure(candidate, asked) for _, measure in PREFERENCES),
        float(candidate.get(Setting.ZERO_STAGE, 0)),
        float(candidate.get(Setting.GRADIENT_CHECKPOINTING) == Checkpointing.REENTRANT),
    )


def rank(
    candidate: Candidate, evaluated: Considered, workload: Workload, reference: Considered
) -> tuple[float, ...]:
    """The sort key of a candidate; the smallest is preferred.

    Orders by numerics, by settings stated by the user, most valuable first, by predicted slowdown
    against the request (speedups don't count), and by distance from the request. Another micro
    batch doesn't change a stated setting, as the global batch stays; offload always counts.
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
