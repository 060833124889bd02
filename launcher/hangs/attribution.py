"""Attributes a hang to the ranks for which the others wait, and whether it is proven.

All ranks' recorders and stacks are read together. The recorders come first: they show which ranks
have entered a collective and which have not. A wait is followed to the ranks that don't wait
themselves. If the recorders don't show it, the stacks may; if these don't either, no rank is
blamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..progress.board import Phase
from .collectives import Split, is_familiar
from .places import Place, place_of, shown_frame, waiting_function
from .report import HangKind, HangReport
from .scene import Scene
from .standing import Collective, Standing, is_busy, is_gone, is_traced

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
    cause = _cause_of(scene)
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


def report_on(dumped: Sequence[Standing]) -> HangReport:
    """Attributes the hang by dumps of some or all ranks."""
    members = {
        rank for standing in dumped for entry in standing.collectives or () for rank in entry.ranks
    }
    absent = [
        Standing(rank, phase=Phase.TRAINING, problem="it has left no dump")
        for rank in members - {standing.rank for standing in dumped}
    ]
    return attributed([*dumped, *absent], quiet=0.0, limit=0.0)


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why nothing moves.

    Attributes:
        is_recorded: the recorders show that ranks are in different collectives.
    """

    kind: HangKind
    culprits: frozenset[int] = frozenset()
    collective: Collective | None = None
    is_recorded: bool = False


def _cause_of(scene: Scene) -> _Cause:
    """Why nothing moves; the first that applies."""
    stopped = {rank for rank, standing in scene.by_rank.items() if standing.state == "T"}
    if stopped:
        return _Cause(HangKind.STOPPED, frozenset(stopped), scene.awaited(stopped))
    gone = {rank for rank, standing in scene.by_rank.items() if is_gone(standing)}
    if gone:
        return _Cause(HangKind.GONE, frozenset(gone), scene.awaited(gone))
    if scene.splits:
        return _split(scene, scene.splits[0])
    if any(wait.missing for wait in scene.waits):
        return _missing(scene)
    if scene.waiting:
        return _unexplained(scene)
    return _nobody_waits(scene)


def _split(scene: Scene, split: Split) -> _Cause:
    """Ranks are in different collectives as the same number of a group."""
    in_it = frozenset(rank for _, ranks in split.parts for rank in ranks)
    members = scene.recorders.members(split.group)
    odd = scene.deviants(in_it)
    tied = in_it if members <= in_it else frozenset()  # the missing recorders might decide
    for mine, ranks in reversed(split.parts):
        left, rest = frozenset(ranks), in_it - frozenset(ranks)
        if mine.is_retired or not all(scene.has_left(rank, rest, deep=True) for rank in left):
            continue
        kept = next(part for part, others in split.parts if left.isdisjoint(others))
        is_mutual = any(scene.has_left(rank, left, deep=True) for rank in rest)
        is_beyond = all(scene.has_left(rank, rest) for rank in left)
        is_regular = all(is_familiar(scene.recorders, rank, kept) for rank in rest)
        if (left == odd and (is_beyond or not is_mutual)) or (
            is_beyond and is_regular and (not is_mutual or (tied and not odd))
        ):
            ended = {
                rank for rank, standing in scene.by_rank.items() if standing.phase is Phase.ENDED
            }
            return _Cause(HangKind.ENDED, left | ended, kept, is_recorded=True)
    collective = next(
        (part for part, ranks in split.parts if odd.isdisjoint(ranks)), split.parts[0][0]
    )
    return _Cause(HangKind.DIVERGENT, odd or tied, collective, is_recorded=True)


def _missing(scene: Scene) -> _Cause:
    """Ranks wait for others that haven't entered their collective: who doesn't wait?"""
    awaited: dict[int, set[int]] = {}
    for wait in scene.waits:
        awaited.setdefault(wait.rank, set()).update(wait.missing)
    targets = set().union(*awaited.values())
    sinks = {rank for rank in targets if not awaited.get(rank)}
    free = sinks - scene.waiting
    if free:
        return _absent(scene, free)
    if not sinks:
        return _cycle(scene, awaited)
    # They wait as well, unseen by the recorders: for a rank that doesn't, if there is one.
    others = {rank for rank in scene.by_rank if scene.stands_free(rank)}
    if others:
        return _absent(scene, others)
    if any(wait.rank in sinks for wait in scene.waits) or scene.has_unread():
        return _Cause(HangKind.UNKNOWN, collective=scene.awaited(sinks))
    rest = frozenset(scene.by_rank) - sinks
    is_end = all(scene.has_left(rank, rest) for rank in sinks)
    kind = HangKind.ENDED if is_end else HangKind.DIVERGENT
    return _Cause(kind, frozenset(sinks), scene.awaited(sinks))


def _cycle(scene: Scene, awaited: Mapping[int, set[int]]) -> _Cause:
    """Ranks wait for each other in collectives of different groups."""
    ranks = {rank for rank in awaited if awaited[rank]}
    while outside := {rank for rank in ranks if not awaited[rank] & ranks}:
        ranks -= outside
    while unawaited := ranks.difference(*(awaited[other] for other in ranks)):
        ranks -= unawaited
    left = {rank for rank in ranks if scene.has_left(rank, ranks - {rank})}
    culprits = scene.deviants(frozenset(ranks)) or frozenset(left)
    if not culprits and scene.recorders.entries.keys() == scene.by_rank.keys():
        culprits = frozenset(ranks)
    kind = HangKind.ENDED if culprits and culprits <= left else HangKind.DIVERGENT
    return _Cause(kind, culprits, scene.awaited(culprits), is_recorded=True)


def _unexplained(scene: Scene) -> _Cause:
    """Ranks wait, and no recorder shows for whom: the ranks that stand elsewhere remain."""
    free = {
        rank
        for rank in scene.by_rank
        if scene.stands_free(rank) and any(scene.may_await(at, rank) for at in scene.waiting)
    }
    if free:
        return _absent(scene, free)
    if not scene.has_unread() and (parts := _parts_by_stack(scene)):
        return parts
    complete = [wait.collective for wait in scene.waits if not wait.missing | wait.unknown]
    return _Cause(HangKind.UNKNOWN, collective=next(iter(complete), scene.awaited(())))


def _parts_by_stack(scene: Scene) -> _Cause | None:
    """The odd ranks if stacks alone show different collectives; None if they don't.

    Messages prove nothing. A failing network holds up at least two ranks of a group, so only a
    single rank is blamed.
    """
    if scene.waits:
        return None
    calls = {
        rank: waiting_function(scene.by_rank[rank].frames) or scene.places[rank].value
        for rank in scene.waiting
    }
    counts = Counter(calls.values())
    if len(counts) < 2 or {"send", "recv", "wait", "device", "lock"} & set(counts):
        return None
    for call in counts:
        ranks = frozenset(rank for rank in calls if calls[rank] == call)
        rest = scene.waiting - ranks
        if len(ranks) <= len(rest) and all(scene.has_left(rank, rest) for rank in ranks):
            return _Cause(HangKind.ENDED, ranks if len(ranks) == 1 else frozenset())
    odd = frozenset(rank for rank in calls if counts[calls[rank]] * 2 < len(calls))
    return _Cause(HangKind.DIVERGENT, odd if len(odd) == 1 else frozenset())


def _nobody_waits(scene: Scene) -> _Cause:
    alive = {
        rank: standing
        for rank, standing in scene.by_rank.items()
        if standing.phase is not Phase.ENDED
    }
    busy = {rank for rank, standing in alive.items() if is_busy(standing)}
    unread = {rank for rank in alive if scene.places[rank] is Place.UNREAD}
    if busy - unread:
        return _Cause(HangKind.BUSY)
    loading = {
        rank
        for rank, place in scene.places.items()
        if place is Place.LOADER and not is_busy(scene.by_rank[rank])
    }
    if loading and loading == alive.keys():
        return _Cause(HangKind.LOADER, frozenset(loading))
    return _Cause(HangKind.UNKNOWN if unread else HangKind.IDLE)


def _absent(scene: Scene, culprits: set[int]) -> _Cause:
    """The cause if others wait for these ranks; if some of them work, only those are blamed."""
    busy = {rank for rank in culprits if is_busy(scene.by_rank[rank])}
    if busy:
        return _Cause(HangKind.BUSY, frozenset(busy), scene.awaited(busy))
    rest = scene.waiting - culprits
    kinds = set()
    for rank in culprits:
        if is_traced(scene.by_rank[rank]):
            kinds.add(HangKind.STOPPED)
        elif scene.has_left(rank, rest):
            kinds.add(HangKind.ENDED)
        elif scene.places[rank] is Place.LOADER:
            kinds.add(HangKind.LOADER)
        else:
            kinds.add(HangKind.ABSENT)
    kind = kinds.pop() if len(kinds) == 1 else HangKind.ABSENT
    return _Cause(kind, frozenset(culprits), scene.awaited(culprits))


def _is_proof(
    report: HangReport, earlier: HangReport | None, limit: float, *, is_recorded: bool
) -> bool:
    """Whether waiting longer can't help: two reports agree, and nothing has moved between.

    Ranks are asked after `limit` seconds; see `_Cause.is_recorded`.
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
