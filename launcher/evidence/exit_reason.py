"""Describes the end of a worker or a node in one line."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from ..core.quantities import count_of
from .failure_record import HANG, FailureRecord, ToldBy


def death_text(record: FailureRecord) -> str:
    """Describes the worker or node and its end."""
    who = "a worker" if record.rank is None else f"rank {record.rank}"
    if record.host:
        who += f" on {record.host}"
    done = ""
    if record.step is not None:
        steps = record.step - record.start
        done = f" after {count_of(steps, 'step')}"
        done += f" from step {record.start} on" if record.start else ""
    if record.exception == HANG:
        return f"{'the run' if record.rank is None else who} stood still{done}"
    left = f"{who} left with exit code {record.exit_code}"
    if record.told_by is ToldBy.EXIT_CODE and record.signal is not None:
        return f"{left}{done}, as after {signal_text(record.signal)}"
    if record.told_by is not ToldBy.WORKER:
        aborted = f"{who} was ended by {signal.Signals.SIGABRT.name}"
        return f"{left if record.signal is None else aborted}{done}; {_shown(record)}"
    if record.exception.endswith("SystemExit"):
        return f"{left}{done}"
    if record.exception:
        return f"{who} raised {record.exception.rpartition('.')[2]}{done}"
    if record.signal is not None:
        if record.signal == signal.SIGKILL and record.oom_kills:
            text = "the kernel's out-of-memory killer struck on this host meanwhile"
            return f"{who} was ended by SIGKILL ({text})"
        return f"{who} was ended by {signal_text(record.signal)}"
    if record.exit_code is None and record.message:
        return record.message  # a node, not a worker
    return left


def title_of(record: Mapping[str, Any]) -> str:
    """The exception with its message, else the exit code, of a record in JSON."""
    kind = str(record.get("exception") or "").rpartition(".")[2]
    message = str(record.get("message") or "").strip()
    return ": ".join(filter(None, (kind, message))) or f"exit code {record.get('exit_code')}"


def _shown(record: FailureRecord) -> str:
    """The reason for a worker's end, from its output."""
    if record.told_by is ToldBy.LAST_LINE or not record.exception:
        return "its last output says why"
    return f"its output shows {record.exception.rpartition('.')[2]}"


def signal_text(number: int) -> str:
    """Describes a fatal signal with its usual sender or cause."""
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
    meaning = {
        "SIGKILL": "from outside: the kernel's or the container's out-of-memory killer, the "
        "scheduler, or a person; `dmesg` or the cgroup's memory.events shows",
        "SIGTERM": "from outside: the scheduler or a person",
        "SIGSEGV": "invalid memory access in native code",
        "SIGABRT": "native code gave up; its message is the last in the log",
        "SIGBUS": "often /dev/shm is full: data loaders need a larger --shm-size",
        "SIGFPE": "arithmetic error in native code",
        "SIGILL": "an instruction that this processor doesn't have",
    }.get(name)
    return f"{name} ({meaning})" if meaning else name
