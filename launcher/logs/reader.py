"""Reads log files and collects the evidence of each attempt."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..catalogue.entry import KnownFailure
from ..evidence.failure_record import FailureRecord
from ..system.terminal import MARK
from .attempts import ENOUGH, End, Evidence, Reading, of_death, of_exception
from .collected import MOST_EVENTS, PendingEvents, Progress, keep_interleaved
from .exception_lines import behind_header
from .file_prefixes import FilePrefixes
from .files import attempt_of, rank_of
from .last_words import last_words
from .launcher_messages import (
    CANCELLED,
    ROOT_CAUSE,
    SUMMARY_RANK,
    death_of,
    is_launchers_own,
    is_of_launcher,
    is_of_stopping,
)
from .lines import FILLER, FOLLOWING, Line, Resumed, Source, interesting
from .lost_loss import lost_loss
from .prefixes import unfolded
from .progress_signs import COUNT, IS_SAID, MOST, STEP, SUMMARY, Written, said_end
from .searches import searches_for
from .tracebacks import Trace, Tracebacks

MOST_STREAMS = 1024
HEAD, OPENING = 1 << 16, 1 << 10
"""Bytes of a file to search for a common prefix."""
TAIL = 60
"""Lines before an event to keep as context."""
MOST_LAST = 80
"""Last lines of a file to keep."""
WARNING = re.compile(r"\S+\.py:\d+: \w*Warning: |\s*warnings?\.warn\(|\S+Warning: ")
RANK_IN_TEXT = re.compile(r"\[(?:PG [^\]]*?)?Rank (\d+)\]")


@dataclass(slots=True)
class _Stream:
    """The lines of one process in a file.

    Attributes:
        tracebacks: the parser of its exceptions.
        rank: its rank, if known from a prefix.
        found: catalogue patterns matched by its lines since the last progress, with the ranks in
            those lines.
    """

    tracebacks: Tracebacks = field(default_factory=Tracebacks)
    rank: int | None = None
    found: set[tuple[str, int | None]] = field(default_factory=set)


class Reader:
    """Reads log files in sequence; `attempts` has the evidence."""

    def __init__(self, catalogue: Sequence[KnownFailure]) -> None:
        self.searches = searches_for(catalogue)
        self.attempts: dict[int, Reading] = {}

    def read(self, name: str, file: Source) -> None:
        """Reads one file to its end."""
        head = file.read(HEAD)
        part = _File(self, name, head)
        source = interesting(Resumed(head, file), part.automaton)
        try:
            line = next(source)
            while True:
                line = source.send(part.take(line))
        except StopIteration as stop:
            part.finish(stop.value)


class _File:
    """The reading of one file: the streams of its processes, and the current attempt.

    A file may contain several attempts in sequence; the first is that of its folder.

    Attributes:
        first: the attempt at the beginning of the file.
        attempt: the current attempt.
        begun: line number of its beginning or failure.
        is_finished: whether the training reported its end.
        is_cancelled: whether the scheduler has ended the job.
        is_over: whether a launcher has given up the attempt.
        is_root: whether the next rank in torchrun's summary is its root cause.
        summary_rank: the last rank in torchrun's summary.
        texts: the last lines that aren't part of a traceback.
    """

    def __init__(self, reader: Reader, name: str, head: bytes) -> None:
        self.reader, self.name, self.rank = reader, name, rank_of(name)
        self.first = self.attempt = attempt_of(name)
        self.begun = 0
        self.is_finished = self.is_cancelled = self.is_over = self.is_root = False
        self.summary_rank: int | None = None
        self.prefixes = FilePrefixes(head)
        opening = enumerate(head[:OPENING].decode(errors="replace").split("\n"), 1)
        self.opening = tuple(Written(name, at, text) for at, text in opening if text.strip())
        self.streams: dict[str, _Stream] = {}
        self.texts: deque[str] = deque(maxlen=TAIL)
        self.events = PendingEvents()
        self.progress = Progress()

    @property
    def reading(self) -> Reading:
        """The evidence of the current attempt."""
        return self.reader.attempts.setdefault(self.attempt, Reading())

    def automaton(self) -> Any:
        """The patterns to search, with signs of progress after a failure or an end."""
        is_watchful = (
            self.attempt > self.first
            or self.events
            or self.reading.events
            or self.reading.deaths
            or self.name in self.reading.ends
            or self._wants_more()
        )
        return self.reader.searches.watchful if is_watchful else self.reader.searches.quiet

    def take(self, line: Line) -> bool:
        """Reads a line; returns whether it was used, so the next lines are read too."""
        if line.text == FILLER:
            return self._wants_more()
        pieces = unfolded(line.text)
        if len(pieces) > 1:
            return max(self.take(Line(line.number, piece, line.is_found)) for piece in pieces)
        inner = self.prefixes.stripped(line.text)
        text, collapsed = inner.text, " ".join(inner.text.split())
        if text.startswith(MARK):
            return line.is_found and self._read_message(line.number, text)
        if not collapsed and not inner.stream:
            # An empty line may belong to any stream with an unfinished traceback.
            for other in list(self.streams.values()):
                self._feed(other, line.number, "")
            return self._wants_more()
        name = inner.stream if len(self.streams) < MOST_STREAMS else ""
        stream = self.streams.setdefault(name, _Stream(rank=inner.rank))
        before = len(self.events)
        is_part = self._feed(stream, line.number, text)
        self.events.follow(text)
        is_mark = line.is_found and self._read_message(line.number, collapsed)
        if line.is_found and not is_part and not WARNING.match(text):
            self._match_line(line.number, collapsed, stream)
        has_come = is_mark or len(self.events) > before
        self.events.settle(FOLLOWING, self.reading)
        if not is_part or stream.tracebacks.has_just_said(line.number):
            self.texts.append(text)
        is_interleaved = keep_interleaved(self.reading, self.name, line, self.texts)
        if line.is_found:
            self._look_for_progress(line.number, collapsed)
        return has_come or is_interleaved or self._wants_more()

    def _wants_more(self) -> bool:
        """Whether a traceback is unfinished or may continue."""
        return any(stream.tracebacks.wants_more for stream in self.streams.values())

    def _feed(self, stream: _Stream, number: int, text: str) -> bool:
        """Feeds a process's line to its tracebacks; returns whether it is part of a traceback."""
        is_part, whole = stream.tracebacks.feed(number, text)
        for trace in whole:
            self._exception(stream, trace)
        return is_part

    def finish(self, last: Sequence[tuple[int, str]]) -> None:
        """Ends the file with its last lines, which complete or cut off tracebacks."""
        opened = [stream.tracebacks.opened for stream in self.streams.values()]
        self.reading.cut += [(self.name, number) for number in opened if number is not None]
        self._close()
        whole = [
            Written(self.name, number, line.text, line.rank)
            for number, raw in last[-MOST:]
            if (line := self.prefixes.stripped(raw)).text.strip()
        ]
        self.reading.complaints += last_words(whole)
        written = [line for line in whole if line.number >= self.begun]
        self.reading.first_lines[self.name] = self.opening
        self.reading.last_lines[self.name] = tuple(written[-MOST_LAST:])
        if (lost := lost_loss(written)) is not None:
            tail = tuple(line.text for line in written[-MOST_LAST:])
            lost = replace(lost, record=replace(lost.record, log_tail=tail))
            self.reading.events.append(lost)
        if (end := said_end(written)) and self.name not in self.reading.ends:
            self.reading.ends[self.name] = End(end)

    def _close(self) -> None:
        """Completes unfinished tracebacks and events."""
        for stream in list(self.streams.values()):
            for trace in stream.tracebacks.end():
                self._exception(stream, trace)
        self.events.settle(0, self.reading)

    def _read_message(self, number: int, text: str) -> bool:
        """Handles launchers' messages about attempts and workers; returns whether it was one."""
        is_start = self.reader.searches.starts.search(text) is not None
        is_end = self.reader.searches.ends.search(text) is not None
        if is_end:
            self._give_up(number)
        if is_start:
            self._close()
            self._void_end(number)
        if is_start and self.is_over:
            self._begin()
        if CANCELLED.search(text):
            self.is_cancelled = True
        if self.reader.searches.completions.search(text):
            self.is_finished = True
            self._progress(number, ENOUGH)
            self.reading.ends[self.name] = End(Written(self.name, number, text))
        self.is_finished |= IS_SAID.search(text) is not None
        self.reading.is_ended |= self.reader.searches.hangs.search(text) is not None
        self.is_root |= ROOT_CAUSE in text
        if found := SUMMARY_RANK.match(text):
            self.summary_rank = int(found["rank"])
            if self.is_root:
                self.reading.first_rank, self.is_root = self.summary_rank, False
        said = (death_of(number, part, self.summary_rank) for part in (text, *behind_header(text)))
        death = next(filter(None, said), None)
        if death is not None and len(self.reading.deaths) < MOST_EVENTS:
            evidence = of_death(
                death,
                self.name,
                text,
                finished=self.is_finished,
                is_asked=self.reading.is_ended,
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

    def _look_for_progress(self, number: int, text: str) -> None:
        """Counts signs of progress; several ranks' signs of one step are one sign."""
        if self.reader.searches.endings.search(text):
            self._progress(number, ENOUGH - 2)
        if self.reader.searches.progress.search(text) and not text.startswith(SUMMARY):
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
            stream.found.clear()
        self.reading.went_on(self.name, signs)

    def _match_line(self, number: int, text: str, stream: _Stream) -> None:
        """Adds a line as evidence if further patterns of the catalogue match it."""
        rank = self._rank(stream, text)
        search = self.reader.searches.logs.found
        text = max((text, *behind_header(text)), key=lambda part: len(search(part)))
        found = {(pattern, rank) for pattern in search(text)}
        if found <= stream.found:
            return
        stream.found |= found
        self._add(
            Evidence(
                FailureRecord(
                    rank,
                    float(number),
                    message=text,
                    log_tail=tuple(self.texts),
                    finished=self.is_finished,
                ),
                self.name,
                ((number, text),),
            )
        )

    def _rank(self, stream: _Stream, text: str) -> int | None:
        """The rank from c10d's text, a prefix, or the file's name."""
        if named := RANK_IN_TEXT.search(text):
            return int(named[1])
        return self.rank if stream.rank is None else stream.rank

    def _add(self, event: Evidence) -> None:
        if self.events.add(event):
            self.progress.forget_steps()

    def _exception(self, stream: _Stream, trace: Trace) -> None:
        """Adds a complete exception: a worker's, or a launcher's about its workers."""
        if self.progress.since(trace.said) >= ENOUGH:
            return  # it is complete only some lines later: the training has survived it meanwhile
        files = tuple(frame.file for frame in trace.frames)
        if is_launchers_own(trace.raised.exception, trace.raised.message, files):
            self._give_up(trace.said)
            return
        if self.is_cancelled and not is_of_stopping(trace.raised.exception, trace.raised.message):
            self.events.settle(0, self.reading)
            self._begin()
        if is_of_launcher(files):
            self._give_up(trace.said)
        named = None if trace.bare is None else trace.bare.rank
        rank = self._rank(stream, trace.raised.message) if named is None else named
        self._add(of_exception(trace, rank, self.name, tuple(self.texts)))
