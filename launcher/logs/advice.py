"""Advice on a failure in logs."""

from __future__ import annotations

import signal
from dataclasses import replace

from ..catalogue.advice import Advice, advised
from ..catalogue.entry import Finding, KnownFailure
from ..catalogue.situation import prose_for, traits_of
from ..core.quotation import shortened
from ..core.workload import Workload
from ..diagnosis.next_step.choose import next_step
from ..diagnosis.next_step.step import Basis, Step
from ..evidence.failure_record import FailureRecord
from ..report.explain_failure import advice_on
from ..system.redaction import redacted
from .failures import Failure
from .judgement import Judgement
from .last_words import most_telling

LONGEST_QUOTED = 160
"""Maximum characters to quote of an error."""


def reason_of(entry: KnownFailure, record: FailureRecord) -> str:
    """An entry's explanation, for a record's situation."""
    return prose_for(entry.sections["What happens"], traits_of(record, Workload()))


def step_of(judgement: Judgement, record: FailureRecord) -> Step:
    """The next step; a line with a possible reason precedes an exit code."""
    if judgement.complaints and record.signal in (None, signal.SIGABRT):
        complaint = most_telling(judgement.complaints).text.strip()
        record = replace(record, exception="", exit_code=None, signal=None, message=complaint)
    return next_step(record)


def advice_on_failure(failure: Failure, judgement: Judgement) -> Advice:
    """Advice on a known or unknown failure."""
    record, entry = failure.finding.record, failure.finding.entry
    if entry is None:
        advice = advised(redacted(step_of(judgement, record).do))
    else:
        advice = advice_on(entry, record, traits_of(record, Workload()))
    if failure is not judgement.root or judgement.suspect is None:
        return advice
    first = _on_suspect(judgement.suspect)
    return replace(first, others=(*first.others, advice.text))


def _on_suspect(suspect: Finding) -> Advice:
    """Advice on an error before the root cause, which may be the true one."""
    record, entry = suspect.record, suspect.entry
    kind = record.exception.rpartition(".")[2]
    error = f"{kind}: {record.message}" if kind else record.message
    error = shortened(redacted(" ".join(error.split())), LONGEST_QUOTED)
    text = f"Fix the earlier error in the log first: “{error}”."
    if entry is not None:
        return advised(text, advice_on(entry, record, traits_of(record, Workload())).text)
    step = next_step(record)
    return advised(text, "" if step.basis is Basis.OPEN else redacted(step.do))
