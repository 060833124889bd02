"""The evidence in the logs for each attempt, without a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..evidence.failure_record import FailureRecord
from .launcher_messages import Death, is_users
from .progress_signs import Written
from .tracebacks import Trace

ENOUGH = 5
"""Signs of progress after which an exception counts as handled."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """An event in a log.

    Attributes:
        record: what is known of the failure, like a worker's own record.
        file: the file that contains it.
        lines: numbers and texts of its lines.
        is_ignored: Python printed it and continued.
        is_bare: it is an exception without a traceback.
        progress: signs of progress after it in the same file.
    """

    record: FailureRecord
    file: str
    lines: tuple[tuple[int, str], ...]
    is_ignored: bool = False
    is_bare: bool = False
    progress: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """A line that says that the training has ended.

    Attributes:
        line: the line.
        progress: signs of progress after it in the same file.
    """

    line: Written
    progress: int = 0


@dataclass(slots=True)
class Reading:
    """The evidence of one attempt.

    Attributes:
        events: evidence in the order of its lines.
        deaths: the launcher's reports on the ends of its workers.
        shuffled: files, numbers and texts of lines that may mix two ranks' output.
        has_failed: a launcher reported that the attempt has failed.
        ends: by file, the last line that says that the training has ended.
        last_lines: the last line of each file that ends within this attempt.
        cut: the first lines of the tracebacks within which files end.
        first_rank: the rank whose failure torchrun reports as the first.
        progress: signs of progress, as far as they were searched for.
    """

    events: list[Evidence] = field(default_factory=list)
    deaths: list[Evidence] = field(default_factory=list)
    shuffled: list[tuple[str, int, str]] = field(default_factory=list)
    has_failed: bool = False
    ends: dict[str, End] = field(default_factory=dict)
    last_lines: list[Written] = field(default_factory=list)
    cut: list[tuple[str, int]] = field(default_factory=list)
    first_rank: int | None = None
    progress: int = 0

    def went_on(self, file: str, signs: int) -> None:
        """Notes progress in a file: an exception that the training has survived is no failure."""
        self.progress += signs
        for kept in (self.events, self.deaths):
            ours = [
                replace(event, progress=event.progress + signs)
                for event in kept
                if event.file == file
            ]
            others = [event for event in kept if event.file != file]
            kept[:] = [*others, *(event for event in ours if event.progress < ENOUGH)]

    def went_past_end(self, file: str) -> None:
        """Notes a step after an apparent end; bars don't count, they may be of an evaluation."""
        if (end := self.ends.pop(file, None)) and end.progress + 1 < ENOUGH:
            self.ends[file] = replace(end, progress=end.progress + 1)


def of_exception(trace: Trace, rank: int | None, file: str, before: tuple[str, ...]) -> Evidence:
    """The evidence of an exception in a log.

    Args:
        trace: the exception.
        rank: the rank that raised it, if known.
        file: the log file.
        before: the lines before it.
    """
    kind, message = trace.raised.exception, trace.raised.message
    lines = [(trace.said, " ".join(f"{kind}: {message}".rstrip(": ").split()))]
    if trace.frames:
        frame = trace.frames[-1]
        place = f'File "{frame.file}", line {frame.line}, in {frame.function}'
        lines.insert(0, (trace.placed, place))
    outer = (frame.file for frame in trace.frames)
    inner = (raised.frame.file for raised in trace.chain if raised.frame is not None)
    record = FailureRecord(
        rank,
        float(trace.said),
        exception=kind if "." in kind else f"builtins.{kind}",
        message=message,
        chain=trace.chain,
        frames=trace.frames,
        user_files=tuple(dict.fromkeys(filter(is_users, (*outer, *inner)))),
        log_tail=before,
    )
    return Evidence(record, file, tuple(lines), trace.is_ignored, trace.is_bare)


def of_death(death: Death, file: str, text: str, *, finished: bool) -> Evidence:
    """The evidence of a launcher's line on the end of a worker.

    Args:
        death: the parsed line.
        file: the log file.
        text: the line.
        finished: the training had already ended.
    """
    record = FailureRecord(
        death.rank,
        float(death.number),
        exit_code=death.exit_code,
        signal=death.signal,
        message=text,
        finished=finished,
    )
    return Evidence(record, file, ((death.number, text),))
