"""The catalogue's single automaton drops no signature that would match."""

from __future__ import annotations

from dataclasses import replace

from safe_launch.catalogue.prefilter import FEW, prefilter
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.diagnosis.root_cause import diagnose, finding_of
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.logs.reader import Reader
from support.stacks import TESTS

FOLDER = TESTS / "logs"
CATALOGUE = read_catalogue()


def corpus() -> list[FailureRecord]:
    """All records of the corpus; every third as a death with its text as the tail."""
    records = []
    for path in sorted(FOLDER.glob("*.log")):
        reader = Reader(CATALOGUE)
        with path.open("rb") as file:
            reader.read(path.name, file)
        events = [event for reading in reader.attempts.values() for event in reading.events]
        records += [event.record for event in events]
        for event in events[::3]:
            tail = tuple(text for _, text in event.lines)
            died = FailureRecord(0, 0.0, exit_code=134, signal=6, log_tail=tail)
            records += [replace(event.record, log_tail=tail), died]
    return records


def test_the_findings_are_the_same() -> None:
    """The findings on real logs are the same, with exceptions and without."""
    records = corpus()
    narrowed = prefilter(CATALOGUE, len(records))
    findings = [finding_of(record, CATALOGUE) for record in records]
    assert sum(one.entry is not None for one in findings) > 200
    assert [finding_of(record, narrowed(record)) for record in records] == findings
    left = sum(len(narrowed(record)) for record in records) / len(records)
    assert left < len(CATALOGUE) / 10


def test_few_records_need_no_automaton() -> None:
    """For few records the automaton isn't built; the findings are the same."""
    records = [FailureRecord(rank, float(rank), exit_code=1) for rank in range(FEW - 1)]
    narrowed = prefilter(CATALOGUE, len(records))
    assert narrowed(records[0]) == CATALOGUE
    assert diagnose(records, CATALOGUE, narrowed) == diagnose(records, CATALOGUE)
