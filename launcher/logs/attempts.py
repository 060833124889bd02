"""The evidence of each attempt in logs, without a verdict, and signs of progress after it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..evidence.failure_record import FailureRecord, Frame
from .exception_lines import CONTINUES, HANDLED, ON_ONE
from .hidden_causes import unhidden
from .launcher_messages import Death, is_users
from .progress_signs import STEP, SUMMARY, Written
from .tracebacks import Trace

ENOUGH = 5
"""Signs of progress after which an exception counts as handled."""
SURVIVED = 3
"""Signs of progress after a survived exception, if no launcher reports a failure."""
WARNING = re.compile(r"\bWARN(?:ING)?\b")
REMOVED = "all references to the actor were removed"
"""Words of Ray about an actor that ended since nobody needs it any more (gcs_actor_manager.cc)."""
LITERAL = re.compile(r"""^raise \w+\(\s*(?P<mark>['"])(?P<text>.+?)(?:(?P=mark)|$)""")
"""The message in a line that raises."""
SHORTEST_CUT = 12
"""Minimum characters of a message that may be a part of that one."""
MOST_AFTER, MOST_AFTER_SEVERE = 5, 40
"""Maximum lines between an exception without a traceback and the end of a log that it explains."""
MOST_EVENTS = 2000
MOST_STEPS = 64
"""Maximum steps to remember, to count each only once."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """An event in a log.

    Attributes:
        record: facts about the failure, like a worker's record.
        file: the file that contains it.
        lines: numbers and texts of its lines.
        is_ignored: whether Python printed it and continued.
        is_bare: whether it is an exception without a traceback.
        is_severe: whether it has no traceback but was logged as an error.
        is_spoken: whether it has no traceback and is part of a sentence.
        is_handled: whether the next line shows that the program continues.
        is_warned: whether a logged warning quotes it, or its message calls it ordinary.
        progress: signs of progress after it in the same file.
        is_after_hang: whether a launcher killed the worker after finding a hang.
    """

    record: FailureRecord
    file: str
    lines: tuple[tuple[int, str], ...]
    is_ignored: bool = False
    is_bare: bool = False
    is_severe: bool = False
    is_spoken: bool = False
    is_handled: bool = False
    is_warned: bool = False
    progress: int = 0
    is_after_hang: bool = False

    @property
    def place(self) -> tuple[str, str, int]:
        """Identity of the exception and its place."""
        file, line = next(((frame.file, frame.line) for frame in self.record.frames[-1:]), ("", 0))
        return self.record.exception, file, line


@dataclass(frozen=True, slots=True)
class End:
    """A line that reports the end of the training."""

    line: Written
    progress: int = 0


@dataclass(slots=True)
class Reading:
    """The evidence of one attempt.

    Attributes:
        events: evidence in the order of its lines.
        deaths: the launcher's reports on the ends of its workers.
        shuffled: files, numbers and texts of lines that may mix two ranks' output.
        has_failed: whether a launcher reported the attempt's failure.
        is_ended: whether a launcher found a hang and ends the workers.
        ends: by file, the last line that reports the end of the training.
        first_lines: the first lines of each file that ends within this attempt.
        last_lines: its last lines.
        cut: tracebacks that end before their exceptions.
        first_rank: the first failed rank in torchrun's report.
        complaints: lines without an exception that may name the cause, at the end of each file.
        context: by file, the last lines before a launcher's report, or the end.
        untrained: evidence that a training made no step, or learned nothing by its numbers.
        progress: signs of progress, as far as they were searched for.
        survived: exceptions that the training survived, by type and place.
    """

    events: list[Evidence] = field(default_factory=list)
    deaths: list[Evidence] = field(default_factory=list)
    shuffled: list[tuple[str, int, str]] = field(default_factory=list)
    has_failed: bool = False
    is_ended: bool = False
    ends: dict[str, End] = field(default_factory=dict)
    first_lines: dict[str, tuple[Written, ...]] = field(default_factory=dict)
    last_lines: dict[str, tuple[Written, ...]] = field(default_factory=dict)
    cut: list[Evidence] = field(default_factory=list)
    first_rank: int | None = None
    complaints: list[Written] = field(default_factory=list)
    context: dict[str, tuple[str, ...]] = field(default_factory=dict)
    untrained: list[Evidence] = field(default_factory=list)
    progress: int = 0
    survived: set[tuple[str, str, int]] = field(default_factory=set)

    def went_on(self, file: str, signs: int) -> None:
        """Notes progress in a file, after which earlier exceptions count as survived."""
        self.progress += signs
        for kept in (self.events, self.deaths):
            here = [
                replace(event, progress=event.progress + signs)
                for event in kept
                if event.file == file
            ]
            others = [event for event in kept if event.file != file]
            self.survived |= {event.place for event in here if event.progress >= SURVIVED}
            kept[:] = [*others, *(event for event in here if event.progress < ENOUGH)]

    def has_not_trained(self, file: str) -> None:
        """Takes back a script's words of an end, after which exceptions counted as survived."""
        self.ends.pop(file, None)
        self.events[:] = [
            replace(event, progress=0) if event.file == file else event for event in self.events
        ]

    def went_past_end(self, file: str) -> None:
        """Notes a step after an apparent end; bars don't count, as they may be an evaluation's."""
        if (end := self.ends.pop(file, None)) and end.progress + 1 < ENOUGH:
            self.ends[file] = replace(end, progress=end.progress + 1)

    def is_last(self, file: str, number: float, most: int) -> bool:
        """Whether a file ends within `most` lines after a line without continuing.

        Indented lines of a message and a tracker's summary don't count.
        """
        written = self.last_lines.get(file, ())
        after = [line.text for line in written if line.number > number]
        texts = [text for text in after if not text.startswith((" ", "\t", SUMMARY))]
        is_there = bool(written) and written[0].number <= number
        return is_there and len(texts) <= most and not any(map(STEP.search, texts))

    def died_of(self, event: Evidence) -> bool:
        """Whether an exception without a traceback ended the process."""
        if event.progress or event.is_spoken or event.file in self.ends:
            return False
        most = MOST_AFTER_SEVERE if event.is_severe else MOST_AFTER
        return self.is_last(event.file, event.lines[-1][0], most)


def _completed(trace: Trace) -> str:
    """An exception's message, from the line that raised it if a paste has cut its end off."""
    message, frame = trace.raised.message, trace.raised.frame
    literal = LITERAL.search(frame.source) if frame and len(message) >= SHORTEST_CUT else None
    whole = re.split(r"[{%]", literal["text"])[0].rstrip() if literal else ""
    return whole if whole.startswith(message) else message


def of_exception(
    trace: Trace, rank: int | None, file: str, before: tuple[tuple[int, str], ...], progress: int
) -> Evidence:
    """The evidence of an exception in a log.

    Args:
        trace: the exception.
        rank: its rank, if known.
        file: the log file.
        before: numbers and texts of the last lines until the exception was complete.
        progress: signs of progress until then.
    """
    trace = unhidden(trace, before)
    kind, message = trace.raised.exception, _completed(trace)
    lines = [(trace.raised_at, " ".join(f"{kind}: {message}".rstrip(": ").split()))]
    if trace.frames:
        frame = trace.frames[-1]
        place = f'File "{frame.file}", line {frame.line}, in {frame.function}'
        lines.insert(0, (trace.placed, place))
    inner = (raised.frame.file for raised in trace.chain if raised.frame is not None)
    record = FailureRecord(
        rank,
        float(trace.raised_at),
        exception=kind if "." in kind else f"builtins.{kind}",
        message=message,
        chain=trace.chain,
        frames=trace.frames,
        user_files=users_of(trace.frames, *inner),
        log_tail=tuple(text for _, text in before),
    )
    above = [text for number, text in before if number <= trace.raised_at]
    is_warned = REMOVED in message or any(map(WARNING.search, above[-2:]))
    return Evidence(
        record,
        file,
        tuple(lines),
        is_ignored=trace.is_ignored,
        is_warned=is_warned,
        progress=progress,
        is_bare=trace.bare is not None,
        is_severe=trace.bare is not None and trace.bare.is_severe,
        is_spoken=trace.bare is not None and trace.bare.is_spoken,
    )


def users_of(frames: tuple[Frame, ...], *others: str) -> tuple[str, ...]:
    """The user's files among those of frames, and others."""
    files = (*(frame.file for frame in frames), *others)
    return tuple(dict.fromkeys(filter(is_users, files)))


def of_death(
    death: Death, file: str, text: str, *, finished: bool, is_after_hang: bool
) -> Evidence:
    """The evidence of a launcher's line on the end of a worker.

    Args:
        death: the parsed line.
        file: the log file.
        text: the line.
        finished: whether the training had already ended.
        is_after_hang: whether a launcher ends the workers of a hanging attempt.
    """
    record = FailureRecord(
        death.rank,
        float(death.number),
        exit_code=death.exit_code,
        signal=death.signal,
        message=text,
        finished=finished,
    )
    return Evidence(record, file, ((death.number, text),), is_after_hang=is_after_hang)


class PendingEvents:
    """Events waiting for the following lines, which are part of their context."""

    def __init__(self) -> None:
        self._pending: list[tuple[Evidence, list[str]]] = []
        self._known: set[object] = set()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, event: Evidence) -> bool:
        """Adds an event; returns whether it is new since the last progress."""
        record = event.record
        key = (record.rank, record.exception, record.message, record.frames[-1:], event.is_ignored)
        if key in self._known:
            return False
        self._known.add(key)
        self._pending.append((event, []))
        return True

    def forget(self) -> None:
        """Counts later events as new, even repeated ones."""
        self._known.clear()

    def follow(self, text: str) -> None:
        """Adds a line after the events."""
        for _, after in self._pending:
            after.append(text)

    def settle(self, most: int, reading: Reading) -> None:
        """Moves events with at least `most` following lines to the reading."""
        waiting = []
        for event, after in self._pending:
            if len(after) < most:
                waiting.append((event, after))
            elif len(reading.events) < MOST_EVENTS:
                record = replace(event.record, log_tail=(*event.record.log_tail, *after))
                is_handled = _is_handled(event, after)
                reading.events.append(replace(event, record=record, is_handled=is_handled))
        self._pending = waiting


def _is_handled(event: Evidence, after: Sequence[str]) -> bool:
    """Whether an exception's last line or the next line shows that the program continues.

    The first line is the exception's message itself, except in a line of a logger.
    """
    lines = event.record.message.splitlines()[0 if event.is_bare else 1 :]
    near = *lines[-1:], next(filter(str.strip, after), "")
    return any(
        HANDLED.search(line) or (CONTINUES.search(line) and not ON_ONE.search(line))
        for line in near
    )


class Progress:
    """Places in a file that show progress of the training."""

    def __init__(self) -> None:
        self._signs: deque[tuple[int, int]] = deque(maxlen=MOST_STEPS)
        self._steps: deque[str] = deque(maxlen=MOST_STEPS)

    def is_new(self, step: str) -> bool:
        """Whether no rank has reported this step before."""
        if step in self._steps:
            return False
        self._steps.append(step)
        return True

    def forget_steps(self) -> None:
        """Forgets the steps: after a failure they may be repeated, and show progress again."""
        self._steps.clear()

    def add(self, number: int, signs: int) -> None:
        """Adds signs at a line."""
        self._signs.append((number, signs))

    def since(self, number: int) -> int:
        """The number of signs after a line."""
        return sum(signs for at, signs in self._signs if at > number)

    def steps_since(self, number: int) -> int:
        """The number of steps after a line, without a script's words of an end."""
        return sum(1 for at, signs in self._signs if at > number and signs == 1)
