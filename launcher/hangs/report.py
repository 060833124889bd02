"""The report on a run without progress, and the failure records of a hang that ended the run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..core.quantities import count_of, ranks_text
from ..core.quotation import cleaned
from ..evidence.failure_record import HANG, FailureRecord, Frame
from .collectives import is_default
from .places import waiting_function
from .standing import Collective, Standing


class HangKind(StrEnum):
    """Why nothing moves, according to the ranks' standings."""

    ABSENT = "absent"
    """Some ranks wait in a collective that other, idle ranks haven't entered."""
    BUSY = "busy"
    """As `absent`, but a culprit works, by processor time or I/O."""
    DIVERGENT = "divergent"
    """Ranks wait in different collectives, which can never be completed."""
    ENDED = "ended"
    """Some ranks wait in a collective, and others have left the training or ended."""
    STOPPED = "stopped"
    """A process is stopped by SIGSTOP or a debugger."""
    GONE = "gone"
    """A rank's process or its node's launcher is unreachable."""
    LOADER = "loader"
    """A rank waits for its idle data loader workers."""
    IDLE = "idle"
    """All ranks are idle outside of known collectives."""
    UNKNOWN = "unknown"
    """The stacks and recorders don't show a reason."""


@dataclass(frozen=True, slots=True)
class HangReport:
    """A run without progress, and the responsible ranks.

    Attributes:
        culprits: ranks for which the others wait, in order; empty if unknown.
        waiting: the ranks that wait in a collective.
        collective: the first incomplete collective; None if unknown.
        is_proof: whether waiting longer can't help, so the run may be ended.
        quiet: seconds without movements.
    """

    kind: HangKind
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    collective: Collective | None
    standings: tuple[Standing, ...]
    is_proof: bool
    quiet: float

    @property
    def blamed(self) -> list[Standing]:
        """The standings of the culprits."""
        return [standing for standing in self.standings if standing.rank in self.culprits]


SENTENCES: Mapping[HangKind, str] = {
    HangKind.ABSENT: "a rank hasn't come to a collective that others wait in",
    HangKind.BUSY: "a rank works while others wait for it in a collective",
    HangKind.DIVERGENT: "ranks are in different collectives",
    HangKind.ENDED: "a rank has left the training while others wait for it",
    HangKind.STOPPED: "a process is stopped",
    HangKind.GONE: "a process can't be reached",
    HangKind.LOADER: "a data loader's processes do nothing",
    HangKind.IDLE: "no rank does anything, and none waits for another",
    HangKind.UNKNOWN: "no rank is known to be missing",
}
"""First words of a hang's message, by its kind; signatures of the catalogue match them."""
COMPLETE = "no rank is missing"
"""First words if all ranks' recorders show the collective."""
ALONE = "no rank waits for another, and those that work have done no step"
"""First words if a rank works and none waits for it: only `--hang-timeout` ends such a run."""
MOST_STACKS = 4
MOST_FRAMES = 20
"""Number of innermost frames in the message."""
_LEFT_OUT = re.compile(
    r"^<|torch/(nn/modules/module|_compile|_dynamo/eval_frame|utils/_contextlib"
    r"|distributed/c10d_logger)\.py$|deepspeed/utils/nvtx\.py$"
)
"""Files of wrappers around the call."""
_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/")


def collective_text(collective: Collective) -> str:
    """A collective as in `all_reduce 412 (12,480 floats)`."""
    if collective.is_message:
        return str(cleaned(collective.kind.replace("->", " to ").replace("<-", " from ")))
    count = sum(map(math.prod, collective.shapes))
    dtypes = sorted({dtype.lower() for dtype in collective.dtypes})
    noun = dtypes[0] if len(dtypes) == 1 else "element"
    size = f" ({count_of(count, noun)})" if collective.shapes and count else ""
    name, _, description = collective.group.partition(" ")
    known = description if description not in ("", "undefined") else name
    group = "" if is_default(collective.group) or not known else f" of group {known}"
    return str(cleaned(f"{collective.kind} {collective.number}{size}{group}"))


def failure_records(report: HangReport, at: float) -> tuple[FailureRecord, ...]:
    """A record per culprit; without any, a record without a rank.

    The run was ended `at` these seconds of the host's monotonic clock.
    """
    message = _message_of(report)
    if not report.blamed:
        return (FailureRecord(None, at, HANG, message, traceback=_traceback((), message)),)
    return tuple(
        FailureRecord(
            rank=standing.rank,
            at=at,
            exception=HANG,
            message=message,
            frames=standing.frames,
            traceback=_traceback(standing.frames, message),
            step=standing.step,
            user_files=standing.own_files,
            host=standing.host,
            pid=standing.pid or None,
        )
        for standing in report.blamed
    )


def _message_of(report: HangReport) -> str:
    """A hang's message: one line, followed by one line per distinct stack."""
    parts = []
    if report.culprits:
        parts.append(_part(report, report.culprits))
    if report.waiting:
        parts.append(_part(report, report.waiting))
    sentence = SENTENCES[report.kind]
    if report.kind is HangKind.UNKNOWN and report.collective is not None:
        is_read = all(standing.collectives is not None for standing in report.standings)
        sentence = COMPLETE if is_read else sentence
    elif report.kind is HangKind.BUSY and not report.waiting:
        sentence = ALONE
    since = f" (for {report.quiet:.0f} s)" if report.quiet else ""  # unknown from dumps
    head = f"{sentence}: {'; '.join(parts) or 'nothing has moved'}{since}"
    return str(cleaned("\n".join([head, *_stacks(report)])))


def _part(report: HangReport, ranks: Iterable[int]) -> str:
    """Ranks and the collective they are in: `ranks 0, 2 in all_reduce 412 (12,480 floats)`."""
    inside = [standing for standing in report.standings if standing.rank in ranks]
    first = f"in {collective_text(report.collective)}" if report.collective else ""
    texts = sorted(
        {_collective(standing) for standing in inside}, key=lambda text: (text != first, text)
    )
    more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
    return f"{ranks_text(ranks)} {texts[0]}{more}".rstrip()


def _collective(standing: Standing) -> str:
    """A rank's collective, or else its innermost function."""
    if standing.pending:
        return f"in {collective_text(standing.pending[0])}"
    inner = standing.frames[-1].function if standing.frames else ""
    call = waiting_function(standing.frames) or inner
    return f"in {call}" if call else ""


def _stacks(report: HangReport) -> list[str]:
    """The distinct stacks, culprits' first."""
    groups: dict[tuple[bool, str], list[int]] = {}
    for standing in report.standings:
        if standing.frames:
            called = [frame for frame in standing.frames if not _LEFT_OUT.search(frame.file)]
            text = ", ".join(map(_call, called[-MOST_FRAMES:]))
            groups.setdefault((standing.rank not in report.culprits, text), []).append(
                standing.rank
            )
    order = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[1]))
    stacks = [f"  {ranks_text(ranks)}: {text}" for (_, text), ranks in order[:MOST_STACKS]]
    children = {
        f"  a process of the data loader: {', '.join(map(_call, _of_worker(child.frames)))}"
        for standing in report.standings
        for child in standing.children
        if standing.rank in report.culprits and report.kind is HangKind.LOADER and child.frames
    }
    return [*stacks, *sorted(children)[:MOST_STACKS]]


def _of_worker(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The stack of a data loader worker, without frames inherited by its fork."""
    starts = [at for at, frame in enumerate(frames) if frame.function == "_worker_loop"]
    return frames[starts[-1] :] if starts else frames


def _call(frame: Frame) -> str:
    return f"{_INSTALLED.sub('', frame.file)}:{frame.line} in {frame.function}"


def _traceback(frames: Iterable[Frame], message: str) -> str:
    """Formats a stack like Python's traceback."""
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        if frame.source:
            lines.append(f"    {frame.source}")
    return f"{cleaned(chr(10).join(lines))}\n{HANG}: {message}\n"
