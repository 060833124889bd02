"""Reports on a hanging run: a headline, and the positions of its ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.quantities import count_of, ranks_text
from ..core.quotation import cleaned
from ..evidence.failure_record import Frame
from ..hangs.places import Place, hung_at_end, place_of, waiting_function
from ..hangs.report import HangKind, HangReport, collective_text
from ..hangs.standing import Child, Standing, is_busy, is_process_busy
from ..system.terminal import Row
from .hang_places import line_text, place_text, short_place, spot

MOST_PLACES = 8
"""Places that are shown at most, each with its ranks."""
MOST_NOTES = 4
MOST_DOINGS = 3
"""Different activities in the headline, at most."""
MOVES = 1.0
"""Least seconds without a movement that are mentioned."""
ADVICE = {
    HangKind.ABSENT: "look at what it waits for at that line, and why only some ranks do",
    HangKind.BUSY: "nothing, if only some ranks are meant to do this; else let all ranks do it, "
    "or do it before the launch. --hang-report sets when this is reported",
    HangKind.DIVERGENT: "look for what only some ranks run before this collective "
    "(`if rank == 0:`, a condition on the data, an early `continue` or `break`) and let all ranks "
    "run it, or none",
    HangKind.ENDED: "give all ranks the same number of batches: a DistributedSampler, "
    "`drop_last=True`, or `with model.join():` around the loop (torch's Join)",
    HangKind.STOPPED: "`kill -CONT PID` resumes a stopped process; a debugger must detach from it",
    HangKind.GONE: "look at that node: its log, `dmesg`, the scheduler's record of it",
    HangKind.LOADER: "`num_workers=0` shows whether the loader's processes are at fault: locks or "
    "threads from before the fork, files or sockets that they share",
    HangKind.IDLE: "look at the lines above: no rank is in a known collective",
    HangKind.UNKNOWN: "if it lasts, the network or a device may be at fault: the devices' logs "
    "(`dmesg`), NCCL_DEBUG=INFO",
}
"""Advice, for each kind."""


def headline(report: HangReport) -> str:
    """The headline: the rank that hangs, its position, and the ranks that wait for it."""
    since = f"nothing has moved for {report.quiet:.0f} s: " if report.quiet >= MOVES else ""
    parts = [f"{since}{_what(report)}"]
    if report.culprits and report.waiting:
        parts.append(f"{ranks_text(report.waiting)} {_wait(report, len(report.waiting))}")
    return "; ".join(parts)


def rows(report: HangReport) -> list[Row]:
    """The rows below the headline: the ranks' positions, missing facts, and the advice."""
    places = _by_place(report)
    result: list[Row] = []
    for ranks, text in places[:MOST_PLACES]:
        result.append(("at", f"{ranks_text(ranks)}{_hosts(report, ranks)}: {text}"))
    rest = {rank for ranks, _ in places[MOST_PLACES:] for rank in ranks}
    if rest:
        count = len(places) - MOST_PLACES
        result.append(("at", f"{ranks_text(rest)}: in {count_of(count, 'more place')}"))
    result += [("child", text) for text in _children(report)]
    result += [("note", text) for text in _notes(report)]
    if not 0 < report.quiet < MOVES:
        result.append(("do", _advice(report)))
    return result


def _what(report: HangReport) -> str:
    """The culprits' activity; without culprits, that of all ranks."""
    if not report.blamed:
        return _nobody(report)
    groups: dict[tuple[str, str], list[int]] = {}
    for standing in report.blamed:
        groups.setdefault(_doing(report.kind, standing), []).append(standing.rank)
    texts = []
    for (singular, plural), ranks in list(groups.items())[:MOST_DOINGS]:
        doing = singular if len(ranks) == 1 else plural
        texts.append(f"{ranks_text(ranks)}{_hosts(report, ranks)} {doing}")
    if len(groups) > MOST_DOINGS:
        texts.append(f"and {len(groups) - MOST_DOINGS} more")
    lead = "ranks are in different collectives: " if report.kind is HangKind.DIVERGENT else ""
    return lead + ", ".join(texts)


def _doing(kind: HangKind, standing: Standing) -> tuple[str, str]:
    """A culprit's activity, in the singular and the plural."""
    where = short_place(standing)
    match kind:
        case HangKind.STOPPED:
            how = "held by a debugger" if standing.state == "t" else "stopped (SIGSTOP)"
            return f"is {how}, process {standing.pid}", f"are {how}"
        case HangKind.GONE if standing.problem:
            return "can't be reached", "can't be reached"
        case HangKind.GONE:
            return "is gone", "are gone"
        case HangKind.BUSY:
            return f"works {where} ({_effort(standing)})", f"work {where} ({_effort(standing)})"
        case HangKind.ENDED:
            text = f"left the training: {where}"
            return f"has {text}", f"have {text}"
        case HangKind.LOADER:
            text = f"for the data loader {where}{_stuck_children(standing)}"
            return f"waits {text}", f"wait {text}"
        case HangKind.DIVERGENT:
            if standing.frames and standing.pending:
                where += f", waiting in {collective_text(standing.pending[0])}"
        case _ if not standing.frames:
            where = f"missing: {where}"
        case _:
            where += _idleness(standing)
    return f"is {where}", f"are {where}"


def _stuck_children(standing: Standing) -> str:
    """Positions of data loader workers, if the user's code shows in their stacks."""
    spots = {
        f"in {cleaned(frames[-1].function)} at {spot(frames[-1])}"
        for child in standing.children
        if (frames := _users_frames(standing, child))
    }
    return f", whose processes are {spots.pop()}" if len(spots) == 1 else ""


def _nobody(report: HangReport) -> str:
    if report.kind is HangKind.BUSY:
        return "no rank waits for another, and some work"
    if ranks := hung_at_end(report.standings):
        hang = "hangs" if len(ranks) == 1 else "hang"
        return f"{ranks_text(ranks)} {hang} at the end of the script, which the others have left"
    if report.kind is HangKind.IDLE:
        return "no rank does anything, and none waits for another"
    if report.kind is HangKind.DIVERGENT:
        return "ranks wait in different places, and nothing shows which are right"
    if report.kind is HangKind.UNKNOWN and report.collective is not None:
        text = collective_text(report.collective)
        return f"{text} isn't done, though no rank is known to be missing in it"
    if report.waiting:
        count = len(report.waiting)
        subject = "all ranks" if count == len(report.standings) else ranks_text(report.waiting)
        return f"{subject} {_wait(report, count)}, and nothing shows for whom"
    return "the answers don't show why"


def _wait(report: HangReport, count: int) -> str:
    """The call in which the ranks wait."""
    verb = "waits" if count == 1 else "wait"
    inside = [standing for standing in report.standings if standing.rank in report.waiting]
    is_backward = bool(inside) and all(
        place_of(standing.frames) is Place.BACKWARD for standing in inside
    )
    phase = "backward's " if is_backward else ""
    if report.collective is not None:
        return f"{verb} in {phase}{collective_text(report.collective)}"
    if inside and all(place_of(standing.frames) is Place.LOCK for standing in inside):
        return f"{verb} for a file lock"
    calls = {waiting_function(standing.frames) for standing in inside} - {""}
    if len(calls) == 1:
        return f"{verb} in {calls.pop()}"
    return f"{verb} in the backward pass" if is_backward else f"{verb} for others"


def _by_place(report: HangReport) -> list[tuple[list[int], str]]:
    """The ranks by their position, the culprits first, then the largest groups."""
    groups: dict[tuple[bool, str], list[int]] = {}
    for standing in report.standings:
        key = standing.rank in report.culprits, place_text(standing)
        groups.setdefault(key, []).append(standing.rank)
    order = sorted(groups.items(), key=lambda item: (not item[0][0], -len(item[1]), item[1]))
    return [(ranks, text) for (_, text), ranks in order]


def _idleness(standing: Standing) -> str:
    if place_of(standing.frames) is Place.PERSON:
        return ", which waits for a person's input"
    return " (idle)" if standing.window and not is_busy(standing) else ""


def _effort(standing: Standing) -> str:
    """The observed work of a rank."""
    if standing.state == "D":
        return "it waits for its disk"
    works = sum((child.cpu for child in standing.children), standing.cpu)
    parts = []
    if works:
        parts.append(f"{works:.1f} s of processor time")
    if standing.io >= 1 << 20:
        parts.append(f"{standing.io / 2**20:,.0f} MiB read and written")
    elif standing.io >= 1 << 10:
        parts.append(f"{standing.io / 2**10:,.0f} KiB read and written")
    return f"{', '.join(parts) or 'it moves'} in {standing.window:.0f} s"


def _hosts(report: HangReport, ranks: Iterable[int]) -> str:
    """The hosts of ranks, if the run has several."""
    hosts = {standing.rank: standing.host for standing in report.standings}
    if len(set(hosts.values())) < 2:
        return ""
    named = sorted({hosts[rank] or "node 0" for rank in ranks if rank in hosts})
    if len(named) > 2:
        return f" on {count_of(len(named), 'node')}"
    return f" on {' and '.join(map(cleaned, named))}" if named else ""


def _children(report: HangReport) -> list[str]:
    """The data loaders' processes of the ranks that wait for them, each with its line."""
    texts: dict[str, list[int]] = {}
    for standing in report.standings:
        if standing.rank in report.culprits and place_of(standing.frames) is Place.LOADER:
            for child in standing.children:
                texts.setdefault(_child_text(standing, child), []).append(child.pid)
    result = []
    for text, pids in list(texts.items())[:MOST_NOTES]:
        more = f" and {len(pids) - 1} more" if len(pids) > 1 else ""
        result.append(f"process {pids[0]}{more} {text}")
    return result


def _child_text(standing: Standing, child: Child) -> str:
    what = {"Z": "has died", "X": "has died", "T": "is stopped"}.get(child.state)
    if what is None:
        what = "works" if is_process_busy(child, standing.window) else "is idle"
    owner = f"of rank {standing.rank}, {cleaned(child.name)[:40]}, {what}"
    frame = next(reversed(_users_frames(standing, child) or child.frames), None)
    return owner if frame is None else f"{owner}: {line_text(frame)}"


def _users_frames(standing: Standing, child: Child) -> list[Frame]:
    return [frame for frame in child.frames if frame.file in standing.own_files]


def _notes(report: HangReport) -> list[str]:
    """Ranks that didn't answer, with the reasons."""
    problems: dict[str, list[int]] = {}
    for standing in report.standings:
        if standing.problem:
            problems.setdefault(standing.problem, []).append(standing.rank)
    order = sorted(problems.items(), key=lambda problem: -len(problem[1]))
    texts = [f"{ranks_text(ranks)}: {cleaned(text)}" for text, ranks in order[:MOST_NOTES]]
    if len(order) > MOST_NOTES:
        texts.append(f"{len(order) - MOST_NOTES} more such remarks")
    return texts


def _advice(report: HangReport) -> str:
    if hung_at_end(report.standings):
        return "the training is done: nothing of it is lost if the run is stopped"
    text = ADVICE[report.kind]
    if report.kind is HangKind.STOPPED:
        pids = [str(standing.pid) for standing in report.blamed[:MOST_NOTES]]
        text = text.replace("PID", " ".join(pids))
    if report.is_proof:
        return f"waiting can't help: {text}"
    return f"{text}. The run continues meanwhile" if report.quiet else text
