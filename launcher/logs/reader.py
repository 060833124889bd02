"""From files of log to the evidence of each attempt."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..catalogue.entry import KnownFailure
from ..evidence.failure_record import FailureRecord
from .attempts import ENOUGH, End, Evidence, Reading, of_death, of_exception
from .files import attempt_of, rank_of
from .interleaved import IS_SHUFFLED
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
from .prefixes import Stripped, common, learned, stripped, unfolded
from .progress_signs import COUNT, IS_SAID, MOST, STEP, SUMMARY, Written, said_end
from .searches import searches_for
from .tracebacks import BOX_TOP, HEADER, NOTEBOOK, Trace, Tracebacks

RANKS = 64
"""Signs of progress that are remembered, so that each counts once."""
OWN = "[safe-launch] "
"""What our own launcher says begins with; it quotes the failures that it knows."""
MOST_EVENTS, MOST_STREAMS, MOST_LEARNED = 2000, 1024, 8
HEAD = 1 << 16
"""Bytes of a file in which a prefix of all its lines is looked for."""
MOST_SHUFFLED = 6
"""Lines of two ranks at once that are read together."""
MOST_AT_ONCE = 40
TAIL = 60
"""Lines before an event that are kept as its context."""
WARNING = re.compile(r"\S+\.py:\d+: \w*Warning: |\s*warnings?\.warn\(|\S+Warning: ")
RANK_IN_TEXT = re.compile(r"\[(?:PG [^\]]*?)?Rank (\d+)\]")


@dataclass(slots=True)
class _Stream:
    """One process's part of a file."""

    tracebacks: Tracebacks = field(default_factory=Tracebacks)
    rank: int | None = None
    told: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Pending:
    """An event and the lines that have followed it so far."""

    event: Evidence
    after: list[str] = field(default_factory=list)


class Reader:
    """Reads files of log one after the other; `attempts` is what they tell.

    Args:
        catalogue: the known failures, whose patterns of lines are searched for.
    """

    def __init__(self, catalogue: Sequence[KnownFailure]) -> None:
        self.searches = searches_for(catalogue)
        self.attempts: dict[int, Reading] = {}

    def read(self, name: str, file: Source) -> None:
        """Reads one file to its end."""
        head = file.read(HEAD)
        part = _File(self, name, attempt_of(name), rank_of(name))
        part.learned += filter(None, [common(head)])
        file = Resumed(head, file)
        source = interesting(file, part.triggers)
        try:
            line = next(source)
            while True:
                line = source.send(part.take(line))
        except StopIteration as stop:
            part.finish(stop.value)


class _File:
    """The reading of one file: its processes' streams and where we are in its attempts."""

    def __init__(self, reader: Reader, name: str, attempt: int, rank: int | None) -> None:
        self.reader, self.name, self.rank = reader, name, rank
        self.first = self.attempt = attempt
        self.begun = 0
        self.streams: dict[str, _Stream] = {}
        self.pending: list[_Pending] = []
        self.summary_rank: int | None = None
        self.is_finished = self.is_cancelled = self.is_over = self.is_root = False
        self.texts: deque[str] = deque(maxlen=TAIL)
        self.learned: list[re.Pattern[str]] = []
        self.signs: deque[tuple[int, int]] = deque(maxlen=RANKS)
        self.kept: set[object] = set()
        self.steps: deque[str] = deque(maxlen=RANKS)

    @property
    def reading(self) -> Reading:
        return self.reader.attempts.setdefault(self.attempt, Reading())

    def triggers(self) -> Any:
        """What to search for: after a failure or an end also whether the training goes on."""
        waits = (
            self.attempt > self.first
            or self.pending
            or self.reading.events
            or self.reading.deaths
            or self.name in self.reading.ends
            or any(stream.tracebacks.wants_more for stream in self.streams.values())
        )
        return self.reader.searches.watchful if waits else self.reader.searches.quiet

    def take(self, line: Line) -> bool:
        """Takes a line; says whether something came of it."""
        if line.text == FILLER:
            return self._wants_more()
        pieces = unfolded(line.text)
        if len(pieces) > 1:
            return max(self.take(Line(line.number, piece, line.is_found)) for piece in pieces)
        inner = self._stripped(line.text)
        if inner.text.startswith(OWN):
            return line.is_found and self._marks(line.number, inner.text)
        if not inner.text.strip() and not inner.stream:
            # An empty line may belong to whoever is in the middle of something.
            for other in list(self.streams.values()):
                self._feed(other, line.number, "")
            return self._wants_more()
        name = inner.stream if len(self.streams) < MOST_STREAMS else ""
        stream = self.streams.setdefault(name, _Stream(rank=inner.rank))
        collapsed = " ".join(inner.text.split())
        before = len(self.pending)
        is_part = self._feed(stream, line.number, inner.text)
        for event in self.pending:
            event.after.append(inner.text)
        is_mark = line.is_found and self._marks(line.number, collapsed)
        if line.is_found and not is_part and not WARNING.match(inner.text):
            self._native(line.number, collapsed, stream)
        has_come = is_mark or len(self.pending) > before
        self._settle(FOLLOWING)
        if not is_part:
            self.texts.append(inner.text)
        is_shuffled = self._shuffled(line)
        if line.is_found:
            self._progress(line.number, collapsed)
        return has_come or is_shuffled or self._wants_more()

    def _stripped(self, text: str) -> Stripped:
        """A line without its prefixes, also those that this file alone has."""
        line = stripped(text)
        for number, known in enumerate(self.learned):
            if found := known.match(line.text):
                inner = stripped(line.text[found.end() :])
                rank = line.rank if inner.rank is None else inner.rank
                return Stripped(inner.text, rank, f"{line.stream} {number} {inner.stream}")
        header = HEADER.search(line.text)
        if header and header.start() and len(self.learned) < MOST_LEARNED:
            pattern = learned(line.text[: header.start()])
            found = pattern.match(line.text) if pattern else None
            is_drawn = BOX_TOP.match(line.text.strip()) or NOTEBOOK.match(line.text)
            if pattern and found and not is_drawn:
                self.learned.append(pattern)
                return self._stripped(text)
        return line

    def _settle(self, most: int) -> None:
        """The events after which so many lines have come are whole."""
        waiting = []
        for pending in self.pending:
            if len(pending.after) < most:
                waiting.append(pending)
            elif len(self.reading.events) < MOST_EVENTS:
                record = pending.event.record
                tail = (*record.log_tail, *pending.after)
                event = replace(pending.event, record=replace(record, log_tail=tail))
                self.reading.events.append(event)
        self.pending = waiting

    def _shuffled(self, line: Line) -> bool:
        """Keeps a line that looks like two ranks' at once, and the few that follow it."""
        kept = self.reading.shuffled
        if kept and kept[-1][0] == self.name and line.number - kept[-1][1] < MOST_SHUFFLED:
            _, number, text = kept[-1]
            kept[-1] = (self.name, number, text + line.text)
            return False
        if not line.is_found or not IS_SHUFFLED.search(line.text):
            return False
        kept.append((self.name, line.number, f"{''.join(self.texts)}{line.text}"))
        del kept[:-MOST_AT_ONCE]
        return True

    def _wants_more(self) -> bool:
        return any(stream.tracebacks.wants_more for stream in self.streams.values())

    def _feed(self, stream: _Stream, number: int, text: str) -> bool:
        is_part, shown = stream.tracebacks.feed(number, text)
        for trace in shown:
            self._exception(stream, trace)
        return is_part

    def finish(self, last: Sequence[tuple[int, str]]) -> None:
        """The file's end, and its last lines: what was begun is whole now, or cut off."""
        opened = [stream.tracebacks.opened for stream in self.streams.values()]
        self.reading.cut += [(self.name, number) for number in opened if number is not None]
        self._close()
        written = [
            Written(self.name, number, text)
            for number, raw in last[-MOST:]
            if number >= self.begun and (text := self._stripped(raw).text).strip()
        ]
        self.reading.last_lines += written[-1:]
        if (end := said_end(written)) and self.name not in self.reading.ends:
            self.reading.ends[self.name] = End(end)

    def _close(self) -> None:
        """What was begun is whole now."""
        for stream in list(self.streams.values()):
            for trace in stream.tracebacks.end():
                self._exception(stream, trace)
        self._settle(0)

    def _marks(self, number: int, text: str) -> bool:
        """Where attempts begin and end, and how the launcher says that workers ended."""
        is_start = self.reader.searches.starts.search(text) is not None
        is_end = self.reader.searches.ends.search(text) is not None
        if is_end:
            self._has_failed(number)
        if is_start:
            self._close()
            self._void_end(number)
        if is_start and self.is_over:
            self._begin()
        if CANCELLED.search(text):
            self.is_cancelled = True
        if self.reader.searches.completions.search(text):
            self.is_finished = True
            self._progressed(number, ENOUGH)
            self.reading.ends[self.name] = End(Written(self.name, number, text))
        self.is_finished |= IS_SAID.search(text) is not None
        self.is_root |= ROOT_CAUSE in text
        if found := SUMMARY_RANK.match(text):
            self.summary_rank = int(found["rank"])
            if self.is_root:
                self.reading.first_rank, self.is_root = self.summary_rank, False
        death = death_of(number, text, self.summary_rank)
        if death is not None and len(self.reading.deaths) < MOST_EVENTS:
            self.reading.deaths.append(of_death(death, self.name, text, finished=self.is_finished))
        return is_start or is_end or death is not None

    def _begin(self) -> None:
        """Another attempt begins."""
        self.streams.clear()
        self.texts.clear()
        self.steps.clear()
        self.kept.clear()
        self.attempt += 1
        self.is_finished = self.is_cancelled = self.is_over = False

    def _has_failed(self, number: int) -> None:
        """The launcher whose output this is has given the attempt up."""
        self.reading.has_failed = self.is_over = True
        self.reading.progress = 0
        self._void_end(number)

    def _void_end(self, number: int) -> None:
        """An end that was seen above a line isn't the attempt's."""
        self.begun = number
        self.reading.ends.pop(self.name, None)

    def _progress(self, number: int, text: str) -> None:
        """The training may go on; several ranks' signs of one step are one sign."""
        if self.reader.searches.endings.search(text):
            self._progressed(number, ENOUGH - 2)
        if self.reader.searches.progress.search(text) and not text.startswith(SUMMARY):
            found = COUNT.search(text)
            step = found[0] if found else text
            if step not in self.steps:
                self.steps.append(step)
                self._progressed(number, 1)
                if STEP.search(text):
                    self.reading.went_past_end(self.name)

    def _progressed(self, number: int, signs: int) -> None:
        """The training goes on: what it has survived is no failure."""
        self._settle(0)
        self.signs.append((number, signs))
        self.kept.clear()
        for stream in self.streams.values():
            stream.told.clear()
        self.reading.went_on(self.name, signs)

    def _native(self, number: int, text: str, stream: _Stream) -> None:
        """A line in which the catalogue's own patterns may find something."""
        told = [pattern.pattern for pattern in self.reader.searches.logs if pattern.search(text)]
        if all(pattern in stream.told for pattern in told):
            return
        stream.told.update(told)
        self._add(
            Evidence(
                FailureRecord(
                    self._rank(stream, text),
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
        """The rank by what c10d says of itself, by its prefix, or by the file's name."""
        if named := RANK_IN_TEXT.search(text):
            return int(named[1])
        return self.rank if stream.rank is None else stream.rank

    def _add(self, event: Evidence) -> None:
        """Keeps an event, unless the same one is kept already."""
        record = event.record
        key = (record.rank, record.exception, record.message, record.frames[-1:], event.is_ignored)
        if key not in self.kept:
            self.kept.add(key)
            self.pending.append(_Pending(event))
            self.steps.clear()

    def _exception(self, stream: _Stream, trace: Trace) -> None:
        if sum(signs for number, signs in self.signs if number > trace.said) >= ENOUGH:
            return
        files = tuple(frame.file for frame in trace.frames)
        if is_launchers_own(trace.raised.exception, trace.raised.message, files):
            self._has_failed(trace.said)
            return
        if self.is_cancelled and not is_of_stopping(trace.raised.exception, trace.raised.message):
            self._settle(0)
            self._begin()
        if is_of_launcher(files):
            self._has_failed(trace.said)
        rank = self._rank(stream, trace.raised.message)
        self._add(of_exception(trace, rank, self.name, tuple(self.texts)))
