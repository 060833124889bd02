"""Attributes a hang to the ranks for which the others wait, and whether it is proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .activity import is_busy
from .cause import cause_of
from .places import Place, place_of, shown_frame
from .report import HangKind, HangReport
from .scene import Scene
from .standing import Standing

FIXED = (HangKind.DIVERGENT, HangKind.ENDED)
"""Kinds that further work can't change. With others, a busy rank may still reach the collective, so
they need a second inspection."""
PATIENCE = 10
"""Times the limit for which culprits must have been idle: with the limit of a minute, that is when
NCCL's watchdog would end the run by its default (torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp,
kProcessGroupNCCLDefaultTimeout)."""


def attributed(
    now: Sequence[Standing], quiet: float, limit: float, earlier: HangReport | None = None
) -> HangReport:
    """The report on a run without movements for `quiet` seconds, inspected after `limit`.

    Nothing is proven without an earlier report and no movement since.
    """
    standings = tuple(sorted(now, key=lambda standing: standing.rank))
    scene = Scene(standings)
    cause = cause_of(scene)
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
    is_proof = _is_proof(report, earlier, limit, is_recorded=cause.is_recorded)
    return replace(report, is_proof=is_proof)


def _is_proof(
    report: HangReport, earlier: HangReport | None, limit: float, *, is_recorded: bool
) -> bool:
    """Whether waiting longer can't help: two reports agree, and nothing has moved between.

    Ranks are asked after `limit` seconds; see `Cause.is_recorded`.
    """
    if earlier is None or not report.culprits:
        return False
    if (earlier.kind, earlier.culprits) != (report.kind, report.culprits):
        return False
    before = {standing.rank: standing for standing in earlier.standings}
    pairs = [(before.get(standing.rank), standing) for standing in report.standings]
    if any(old is None or _has_moved(old, new) for old, new in pairs):
        return False
    culprits = report.blamed
    match report.kind:
        case HangKind.STOPPED:
            return all(standing.state == "T" for standing in culprits)
        case HangKind.GONE:  # the workers of a launcher that doesn't answer may train on
            return report.quiet >= PATIENCE * limit
        case HangKind.DIVERGENT | HangKind.ENDED if is_recorded:
            return True
        case HangKind.ABSENT | HangKind.ENDED | HangKind.LOADER:
            lines = [(_line(before[standing.rank]), _line(standing)) for standing in culprits]
            return (
                report.quiet >= PATIENCE * limit
                # Without a step, it may be a server's rank 0.
                and any(standing.step for standing in report.standings)
                and all(old == new for old, new in lines)
                and not any(map(_may_go_on, culprits))
            )
        case _:
            return False


def _has_moved(old: Standing, new: Standing) -> bool:
    """Whether a rank has done a step, or entered or finished a collective."""
    tails = [standing.collectives and standing.collectives[-1] for standing in (old, new)]
    return (old.step, old.phase) != (new.step, new.phase) or tails[0] != tails[1]


def _may_go_on(culprit: Standing) -> bool:
    """Whether a culprit may continue by itself, or after a user's action."""
    return culprit.state == "t" or is_busy(culprit) or place_of(culprit.frames) is Place.PERSON


def _line(standing: Standing) -> tuple[str, int] | None:
    frame = shown_frame(standing)
    return (frame.file, frame.line) if frame else None
