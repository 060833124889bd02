"""Attributes a hang to the ranks for which the others wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .proof import is_proof
from .report import HangKind, HangReport
from .scene import Scene
from .standing import Standing

FIXED = (HangKind.DIVERGENT, HangKind.ENDED)
"""Kinds that further work can't change. With others, a busy rank may still reach the collective, so
they need a second inspection."""


def attributed(
    now: Sequence[Standing], quiet: float, limit: float, earlier: HangReport | None = None
) -> HangReport:
    """The report on a run without movements for `quiet` seconds, inspected after `limit`.

    Nothing is proven without an earlier report and no movement since.
    """
    standings = tuple(sorted(now, key=lambda standing: standing.rank))
    scene = Scene(standings)
    cause = scene.cause()
    if earlier is None and cause.kind in FIXED and scene.is_any_busy(cause.culprits):
        cause = replace(cause, kind=HangKind.BUSY)
    report = HangReport(
        kind=cause.kind,
        culprits=tuple(sorted(cause.culprits)),
        waiting=tuple(sorted(scene.waiting - cause.culprits)),
        collective=cause.collective,
        standings=standings,
        is_proof=False,
        quiet=quiet,
    )
    proven = is_proof(report, earlier, limit, is_recorded=cause.is_recorded)
    return replace(report, is_proof=proven)
