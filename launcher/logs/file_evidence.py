"""Collects the evidence of one log file: exceptions, lines, deaths and progress, by attempt."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..evidence.failure_record import FailureRecord
from .attempts import (
    ENOUGH,
    MOST_EVENTS,
    End,
    Evidence,
    PendingEvents,
    Progress,
    Reading,
    of_death,
    of_exception,
)
from .exception_lines import behind_header
from .files import attempt_of, rank_of
from .launcher_messages import (
    CANCELLED,
    IS_END,
    IS_HANG,
    IS_RESUMED,
    IS_START,
    ROOT_CAUSE,
    SUMMARY_RANK,
    death_of,
    is_of_launcher,
    is_of_stopping,
    reports_failed_workers,
)
from .progress_signs import (
    COUNT,
    DOUBT,
    IS_COMPLETE,
    IS_ENDING,
    IS_FINISHED,
    IS_PROGRESS,
    NO_PROGRESS,
    STEP,
    WRAPPERS,
    Written,
)
from .searches import Searches
from .tracebacks import Trace, Tracebacks
from .untrained import has_trained, trained_nothing

TAIL = 60
"""Lines before an event to keep as context."""
RANK_IN_TEXT = re.compile(r"\[(?:PG [^\]]*?)?Rank (\d+)\]")


@dataclass(slots=True)
class Stream:
    """The lines of one process in a file.

    Attributes:
        tracebacks: the parser of its exceptions.
        rank: its rank, if known from a prefix.
        matched: catalogue patterns matched by its lines since the last progress, with the ranks in
            those lines.
    """

    tracebacks: Tracebacks = field(default_factory=Tracebacks)
    rank: int | None = None
    matched: set[tuple[str, int | None]] = field(default_factory=set)


class FileEvidence:
    """The evidence of one file, by the streams of its processes and the current attempt.

    A file may contain several attempts in sequence; the first is that of its folder.

    Attributes:
        attempts: the evidence of each attempt.
        first: the attempt at the beginning of the file.
        attempt: the current attempt.
        begun: line number of its beginning or failure.
        is_finished: whether the training reported its end.
        is_cancelled: whether the scheduler has ended the job.
        has_said_end: whether the script announced an end after the last failure.
        is_over: whether a launcher has given up the attempt.
        is_root: whether the next rank in torchrun's summary is its root cause.
        summary_rank: the last rank in torchrun's summary.
        texts: numbers and texts of the last lines that aren't part of a traceback.
    """

    def __init__(self, attempts: dict[int, Reading], searches: Searches, name: str) -> None:
        self.attempts, self.searches = attempts, searches
        self.name, self.rank = name, rank_of(name)
        self.first = self.attempt = attempt_of(name)
        self.begun = 0
        self.is_finished = self.is_cancelled = self.is_over = self.is_root = False
        self.has_said_end = False
        self.summary_rank: int | None = None
        self.streams: dict[str, Stream] = {}
        self.texts: deque[tuple[int, str]] = deque(maxlen=TAIL)
        self.events = PendingEvents()
        self.progress = Progress()

    @property
    def reading(self) -> Reading:
        """The evidence of the current attempt."""
        return self.attempts.setdefault(self.attempt, Reading())

    @property
    def wants_more(self) -> bool:
        """Whether a traceback is unfinished or may continue."""
        return any(stream.tracebacks.wants_more for stream in self.streams.values())

    def feed(self, stream: Stream, number: int, text: str) -> bool:
        """Feeds a process's line to its tracebacks; returns whether it is part of a traceback."""
        is_part, trace = stream.tracebacks.feed(number, text)
        if trace is not None:
            self._exception(stream, trace)
        return is_part

    def look_for_training(self, lines: Sequence[Written]) -> None:
        """Notes a training that ends without a step, from the lines of the whole file."""
        if (evidence := trained_nothing(lines)) is not None:
            self.reading.untrained.append(evidence)
        is_raised = any(
            event.record.frames and event.file == self.name for event in self.reading.events
        )
        if is_raised and not has_trained(lines):
            self.reading.has_not_trained(self.name)

    def close(self) -> None:
        """Completes unfinished tracebacks and events."""
        for stream in list(self.streams.values()):
            if (trace := stream.tracebacks.end()) is not None:
                self._exception(stream, trace)
        self.events.settle(0, self.reading)

    def read_message(self, number: int, text: str) -> bool:
        """Handles launchers' messages about attempts and workers; returns whether it was one."""
        is_start = IS_START.search(text) is not None
        is_end = IS_END.search(text) is not None
        if is_end:
            self._give_up(number)
        if is_start:
            self.close()
            self._void_end(number)
        if self.is_over and (is_start or (self.is_cancelled and IS_RESUMED.search(text))):
            self.close()
            self._begin()
        if CANCELLED.search(text):
            self.is_cancelled = True
        if IS_COMPLETE.search(text):
            self.is_finished = True
            self._progress(number, ENOUGH)
            self.reading.ends[self.name] = End(Written(self.name, number, text))
        self.is_finished |= IS_FINISHED.search(text) is not None
        self.reading.is_ended |= IS_HANG.search(text) is not None
        self.is_root |= ROOT_CAUSE in text
        if match := SUMMARY_RANK.match(text):
            self.summary_rank = int(match["rank"])
            if self.is_root:
                self.reading.first_rank, self.is_root = self.summary_rank, False
        deaths = (
            death_of(number, part, self.summary_rank) for part in (text, *behind_header(text))
        )
        death = next(filter(None, deaths), None)
        if death is not None and len(self.reading.deaths) < MOST_EVENTS:
            evidence = of_death(
                death,
                self.name,
                text,
                finished=self.is_finished,
                is_after_hang=self.reading.is_ended,
            )
            self.reading.deaths.append(evidence)
        return is_start or is_end or death is not None

    def _begin(self) -> None:
        """Begins another attempt."""
        self.streams.clear()
        self.texts.clear()
        self.progress.forget_steps()
        self.events.forget()
        self.attempt += 1
        self.is_finished = self.is_cancelled = self.is_over = False

    def _give_up(self, number: int) -> None:
        """Notes that the launcher gave up the attempt."""
        self.reading.has_failed = self.is_over = True
        self.reading.progress = 0
        self._void_end(number)

    def _void_end(self, number: int) -> None:
        """Discards an end of training before a line."""
        self.begun = number
        self.reading.ends.pop(self.name, None)

    def look_for_progress(self, number: int, text: str) -> None:
        """Counts signs of progress; several ranks' signs of one step are one sign."""
        is_ending = IS_ENDING.search(text) and not (DOUBT.search(text) or WRAPPERS.search(text))
        if is_ending and not self.has_said_end:
            self.has_said_end = True  # repeated words of an end show no more
            self._progress(number, ENOUGH - 2)
        if IS_PROGRESS.search(text) and not NO_PROGRESS.match(text):
            # A small part of an epoch stays the same over many steps.
            counts = [count[0] for count in COUNT.finditer(text) if "." not in count[0]]
            if self.progress.is_new(" ".join(counts) or text):
                self._progress(number, 1)
                if STEP.search(text):
                    self.reading.went_past_end(self.name)

    def _progress(self, number: int, signs: int) -> None:
        """Notes progress, after which earlier exceptions count as survived."""
        self.events.settle(0, self.reading)
        self.progress.add(number, signs)
        self.events.forget()
        for stream in self.streams.values():
            stream.matched.clear()
        self.reading.went_on(self.name, signs)

    def match_line(self, number: int, text: str, stream: Stream) -> None:
        """Adds a line as evidence if further patterns of the catalogue match it."""
        rank = self._rank(stream, text)
        search = self.searches.logs.matching
        text = max((text, *behind_header(text)), key=lambda part: len(search(part)))
        matches = {(pattern, rank) for pattern in search(text)}
        if matches <= stream.matched:
            return
        stream.matched |= matches
        self._add(
            Evidence(
                FailureRecord(
                    rank,
                    float(number),
                    message=text,
                    log_tail=tuple(text for _, text in self.texts),
                    finished=self.is_finished,
                ),
                self.name,
                ((number, text),),
            )
        )

    def _rank(self, stream: Stream, text: str) -> int | None:
        """The rank from c10d's text, a prefix, or the file's name."""
        if named := RANK_IN_TEXT.search(text):
            return int(named[1])
        return self.rank if stream.rank is None else stream.rank

    def _add(self, event: Evidence) -> None:
        if self.events.add(event):
            self.progress.forget_steps()
            self.has_said_end = False

    def _exception(self, stream: Stream, trace: Trace) -> None:
        """Adds a complete exception: a worker's, or a launcher's about its workers."""
        if self.progress.since(trace.raised_at) >= ENOUGH:
            return  # it is complete only some lines later: the training has survived it meanwhile
        files = tuple(frame.file for frame in trace.frames)
        if reports_failed_workers(trace.raised.exception, trace.raised.message, files):
            self._give_up(trace.raised_at)
            return
        if self.is_cancelled and not is_of_stopping(trace.raised.exception, trace.raised.message):
            self.events.settle(0, self.reading)
            self._begin()
        if is_of_launcher(files):
            self._give_up(trace.raised_at)
        named = None if trace.bare is None else trace.bare.rank
        rank = self._rank(stream, trace.raised.message) if named is None else named
        since = self.progress.steps_since(trace.raised_at)
        self._add(of_exception(trace, rank, self.name, tuple(self.texts), since))
