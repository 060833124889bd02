"""Ranks candidates: which settings to keep first."""

from __future__ import annotations

from ..core.choices import Checkpointing
from ..core.setting_table import Kept
from ..core.settings import Setting
from ..core.workload import Workload
from .estimates.training_states import Candidate
from .plan import Considered

SLOWER = 0.25
"""Relative difference below which predicted times count as equal, as their accuracy hasn't been
measured."""
PREFERENCES: tuple[tuple[Kept, Setting], ...] = tuple(
    sorted((kept, setting) for setting in Setting for kept in setting.row.kept)
)
"""The reasons to keep a setting, most valuable first."""


def departure(candidate: Candidate, requested: Candidate) -> tuple[float, ...]:
    """The candidate's distance from the request; smaller is better.

    Compares the most valuable setting first. Of two stages at equal distance the lower is
    preferred, as it communicates less; of two checkpointing modes, the one without nested backward
    passes.
    """
    return (
        *(kept.distance(candidate.get(name), requested.get(name)) for kept, name in PREFERENCES),
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
    departed = departure(candidate, workload.requested)
    given_up = (
        distance
        for (kept, setting), distance in zip(PREFERENCES, departed, strict=False)
        if kept.before_time == "always"
        or (kept.before_time == "if stated" and workload.is_pinned(setting))
    )
    slower = 0
    if evaluated.seconds is not None and reference.seconds:
        slower = max(0, int((evaluated.seconds / reference.seconds - 1) / SLOWER))
    return (*given_up, float(slower), *departed, evaluated.seconds or 0.0)
