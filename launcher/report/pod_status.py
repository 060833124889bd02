"""The line on how a run ended, for a pod's status: the container's termination message."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import ExitCode, LaunchError, meaning
from ..core.quotation import cleaned
from ..system.redaction import redacted

if TYPE_CHECKING:
    from ..catalogue.entry import Finding
    from ..core.script import SourceLocation
    from ..core.workload import Workload
    from ..planning.plan import NoPlan

VARIABLE = "SAFE_LAUNCH_TERMINATION_LOG"
"""Environment variable that names the file; empty for none."""
PATH = Path("/dev/termination-log")
"""The default of `terminationMessagePath` in a container's manifest."""
LIMIT = 4096
"""Bytes that the kubelet keeps (`MaxContainerTerminationMessageLength`)."""
MESSAGE = 2000
"""Bytes of an exception's message at most, to leave room for the line that raised it."""


def failure_line(
    code: int, finding: Finding, workload: Workload, spots: Sequence[SourceLocation] = ()
) -> str:
    """A failed training as one line: the root cause, the user's line, and what to do."""
    from ..catalogue.situation import scheduled_by, traits_of
    from ..evidence.failure_record import death_text
    from . import explain_failure

    record, entry = finding.record, finding.entry
    parts = [death_text(record)]
    if entry is not None:
        parts[0] += f": {entry.subject} ({entry.id})"
    elif record.message:
        parts[0] += f": {_cut(record.message, MESSAGE)}"
    parts += explain_failure.where_texts(record, spots)[:1]
    if entry is not None:
        traits = traits_of(record, workload) | scheduled_by(os.environ)
        advice = explain_failure.advice_on(entry, record, traits).text
        parts += [f"do: {advice}"] if advice else []
    return _line(code, parts)


def dead_end_line(refused: NoPlan) -> str:
    """A training without a plan: the causes that rule out all presets, and alternatives."""
    from . import explain_plan

    rows = explain_plan.dead_end_rows(refused)
    because = [text for label, text in rows if label == "because"]
    helps = [f"alternative: {text}" for label, text in rows if label == "alternatives"]
    kept = [text for label, text in rows if label == "kept"]
    return _line(ExitCode.NO_PLAN, [*because, *helps, *kept])


def stop_line(number: int) -> str:
    """A training that was stopped by a signal."""
    return _line(128 + number, [f"stopped from outside by {signal.Signals(number).name}"])


def error_line(error: LaunchError) -> str:
    """An error that prevents the launch."""
    return _line(error.code, [error.problem, *([f"do: {error.hint}"] if error.hint else [])])


def end_line(code: int, why: str) -> str:
    """Any other end than success."""
    return _line(code, [why])


def _line(code: int, parts: Sequence[str]) -> str:
    text = f"safe-launch: exit code {code} ({meaning(code)}): {'; '.join(filter(None, parts))}"
    return _cut(" ".join(cleaned(text).split()), LIMIT)


def _cut(text: str, size: int) -> str:
    """The start of a text, in at most so many bytes; never splits a character."""
    whole = text.encode(errors="replace")
    if len(whole) <= size:
        return text
    return whole[: size - 3].decode(errors="ignore") + "…"


def place(environment: Mapping[str, str], default: Path = PATH) -> Path | None:
    """The file for the line; None outside a pod."""
    if VARIABLE in environment:
        return Path(environment[VARIABLE]) if environment[VARIABLE] else None
    is_pod = "KUBERNETES_SERVICE_HOST" in environment
    return default if is_pod and default.is_file() and os.access(default, os.W_OK) else None


def write(text: str, environment: Mapping[str, str]) -> None:
    """Writes the line for the pod's status; a file that can't be written doesn't change the end.

    The file is written in place: it is mounted into the container, and a new file of the same name
    wouldn't be the kubelet's.
    """
    path = place(environment)
    if path is not None:
        with suppress(OSError):
            path.write_text(redacted(text), "utf-8", "replace")
