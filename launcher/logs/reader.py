"""Reads log files line by line, and collects the evidence of each attempt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..catalogue.entry import KnownFailure
from ..system.terminal import MARK
from .attempts import End, Evidence, Reading
from .complaints import before_report, last_words
from .cut_tracebacks import of_cut
from .file_evidence import TAIL, FileEvidence, Stream
from .interleaved import keep_interleaved
from .lines import FILLER, FOLLOWING, Line, interesting
from .prefixes import FilePrefixes, unfolded
from .progress_signs import MOST, Written, reported_end
from .searches import searches_for
from .sources import Resumed, Source
from .untrained import lost_loss, nothing_learned

MOST_STREAMS = 1024
HEAD, OPENING = 1 << 16, 1 << 10
"""Bytes of a file to search for a common prefix."""
MOST_LAST = 80
"""Last lines of a file to keep."""
WARNING = re.compile(r"\S+\.py:\d+: \w*Warning: |\s*warnings?\.warn\(|\S+Warning: ")


class Reader:
    """Reads log files in sequence; `attempts` has the evidence."""

    def __init__(self, catalogue: Sequence[KnownFailure]) -> None:
        self.searches = searches_for(catalogue)
        self.attempts: dict[int, Reading] = {}

    def read(self, name: str, file: Source) -> None:
        """Reads one file to its end."""
        head = file.read(HEAD)
        part = _File(name, head, FileEvidence(self.attempts, self.searches, name))
        source = interesting(Resumed(head, file), part.automaton)
        try:
            line = next(source)
            while True:
                line = source.send(part.take(line))
        except StopIteration as stop:
            part.finish(stop.value)


class _File:
    """The reading of one file: each line goes to the stream of its process."""

    def __init__(self, name: str, head: bytes, evidence: FileEvidence) -> None:
        self.name, self.evidence, self.searches = name, evidence, evidence.searches
        self.prefixes = FilePrefixes(head)
        lines = head[:OPENING].decode(errors="replace").split("\n")
        opening = enumerate(lines[:-1] if len(head) > OPENING else lines, 1)
        self.opening = tuple(Written(name, at, text) for at, text in opening if text.strip())

    def automaton(self) -> Any:
        """The patterns to search, with signs of progress after a failure or an end."""
        evidence = self.evidence
        is_watchful = (
            evidence.attempt > evidence.first
            or evidence.events
            or evidence.reading.events
            or evidence.reading.deaths
            or self.name in evidence.reading.ends
            or evidence.wants_more
        )
        return self.searches.watchful if is_watchful else self.searches.quiet

    def take(self, line: Line) -> bool:
        """Reads a line; returns whether it was used, so the next lines are read too."""
        evidence = self.evidence
        if line.text == FILLER:
            return evidence.wants_more
        pieces = unfolded(line.text)
        if len(pieces) > 1:
            return max(self.take(Line(line.number, piece, line.is_match)) for piece in pieces)
        inner = self.prefixes.stripped(line.text)
        text, collapsed = inner.text, " ".join(inner.text.split())
        if text.startswith(MARK):
            return line.is_match and evidence.read_message(line.number, text)
        if not collapsed and not inner.stream:
            # An empty line may belong to any stream with an unfinished traceback.
            for other in list(evidence.streams.values()):
                evidence.feed(other, line.number, "")
            return evidence.wants_more
        name = inner.stream if len(evidence.streams) < MOST_STREAMS else ""
        stream = evidence.streams.setdefault(name, Stream(rank=inner.rank))
        before = len(evidence.events)
        is_part = evidence.feed(stream, line.number, text)
        evidence.events.follow(text)
        is_mark = line.is_match and evidence.read_message(line.number, collapsed)
        if line.is_match and not is_part and not WARNING.match(text):
            evidence.match_line(line.number, collapsed, stream)
        has_come = is_mark or len(evidence.events) > before
        evidence.events.settle(FOLLOWING, evidence.reading)
        if not is_part or stream.tracebacks.has_just_raised(line.number):
            evidence.texts.append((line.number, text))
        is_interleaved = keep_interleaved(
            evidence.reading, self.name, line, (text for _, text in evidence.texts)
        )
        if line.is_match:
            evidence.look_for_progress(line.number, collapsed)
        return has_come or is_interleaved or evidence.wants_more

    def finish(self, last: Sequence[tuple[int, str]]) -> None:
        """Ends the file with its last lines, which complete or cut off tracebacks."""
        evidence = self.evidence
        for stream in evidence.streams.values():
            if cut := stream.tracebacks.cut():
                rank = evidence.rank if stream.rank is None else stream.rank
                evidence.reading.cut.append(of_cut(*cut, rank, self.name))
        evidence.close()
        whole = [
            Written(self.name, number, line.text, line.rank)
            for number, raw in last[-MOST:]
            if (line := self.prefixes.stripped(raw)).text.strip()
        ]
        before = before_report(whole)
        evidence.reading.complaints += last_words(before)
        evidence.reading.context[self.name] = tuple(line.text for line in before[-TAIL:])
        written = [line for line in whole if line.number >= evidence.begun]
        is_first = evidence.attempt == evidence.first
        evidence.reading.first_lines[self.name] = self.opening if is_first else ()
        evidence.reading.last_lines[self.name] = tuple(written[-MOST_LAST:])
        if (lost := lost_loss(written)) is not None:
            evidence.reading.events.append(_with_tail(lost, written))
        elif (still := nothing_learned(written)) is not None:
            evidence.reading.untrained.append(_with_tail(still, written))
        if (end := reported_end(written)) and self.name not in evidence.reading.ends:
            evidence.reading.ends[self.name] = End(end)
        if (
            len(last) <= MOST
            and last[:1]
            and last[0][0] == 1
            and self.name in evidence.reading.ends
        ):
            evidence.look_for_training(whole)


def _with_tail(evidence: Evidence, lines: Sequence[Written]) -> Evidence:
    """Evidence with the last lines of its file."""
    tail = tuple(line.text for line in lines[-MOST_LAST:])
    return replace(evidence, record=replace(evidence.record, log_tail=tail))
