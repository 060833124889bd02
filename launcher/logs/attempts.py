"""What the logs tell of each attempt: evidence, no judgement yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..record import FailureRecord
from .launchers import Death

ENOUGH = 5
"""Signs of a training that goes on, after which an exception counts as survived."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One event of a log.

    Attributes:
        record: what is known of the death, as a worker's own record would say it.
        file: the file that tells it.
        lines: numbers and texts of the lines that show it.
        is_ignored: Python printed it and went on.
        is_bare: an exception without a traceback.
        progress: how often the training was seen to go on after it in the same file.
    """

    record: FailureRecord
    file: str
    lines: tuple[tuple[int, str], ...]
    is_ignored: bool = False
    is_bare: bool = False
    progress: int = 0


@dataclass(slots=True)
class Reading:
    """What one attempt left in the logs.

    Attributes:
        events: evidence in the order of its lines.
        deaths: what the launcher said of its workers.
        shuffled: files, numbers and texts of lines that may be two ranks' at once.
        has_failed: a launcher said that the attempt has failed.
        is_complete: the training said that it has come to its end.
        first_rank: the rank whose failure torchrun says that it has seen first.
        progress: signs of a training that went on, as far as they were looked for.
    """

    events: list[Evidence] = field(default_factory=list)
    deaths: list[Evidence] = field(default_factory=list)
    shuffled: list[tuple[str, int, str]] = field(default_factory=list)
    has_failed: bool = False
    is_complete: bool = False
    first_rank: int | None = None
    progress: int = 0


def of_death(death: Death, file: str, text: str, finished: bool) -> Evidence:
    """What a launcher's line on the end of a worker is evidence of.

    Args:
        death: what the line says.
        file: where it stands.
        text: the line.
        finished: the training had come to its end before.
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
