"""Attributes a hang to the ranks that the others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .proof import is_proof
from .report import HangKind, HangReport
from .scene import Scene
from .standing import Standing

FIXED = (HangKind.DIVERGENT, HangKind.ENDED)
"""Kinds that further work can't change. A busy rank may still be on its way into the same
collective, so these need a second look."""


def attributed(
    now: Sequence[Standing], quiet: float, limit: float, earlier: HangReport | None = None
) -> HangReport:
    """The report on a run that has been quiet for some seconds, and was asked after `limit`.

    Without an earlier report, since which nothing has moved, nothing is proven.
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
