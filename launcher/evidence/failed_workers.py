"""Reports this node's failed workers to the process that started the launcher.

That process names a file in the launcher's environment. Callers of torch elastic expect the failed
workers and their ends, which an exit code doesn't contain.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..system import run_directory
from .failure_record import FailureRecord

VARIABLE = "SAFE_LAUNCH_FAILED_WORKERS"
"""Environment variable with the file; empty for none."""


@dataclass(frozen=True, slots=True)
class FailedWorker:
    """A failed worker.

    Attributes:
        local_rank: its index among its launcher's workers.
        exit_code: its exit code, or -N if signal N ended it.
        error_file: the error file of a script under torch elastic's `record`.
        time: time of the failure, in seconds since the epoch.
    """

    rank: int
    local_rank: int
    pid: int
    exit_code: int
    error_file: str
    time: float

    @property
    def process(self) -> tuple[int, int, int, str]:
        """The arguments of torch elastic's `ProcessFailure`."""
        return self.local_rank, self.pid, self.exit_code, self.error_file


def write(records: Iterable[FailureRecord], folder: Path) -> None:
    """Writes this node's failed workers to the file, if any, earliest first."""
    path = os.environ.get(VARIABLE)
    if path:
        now = time.time() - time.monotonic()
        rows = [
            FailedWorker(
                rank=record.rank,
                local_rank=record.local_rank,
                pid=record.pid,
                exit_code=-record.signal if record.signal else record.exit_code or 1,
                error_file=str(run_directory.error_file(folder, record.rank)),
                time=now + record.at,
            )
            for record in records
            if record.rank is not None and record.local_rank is not None and record.pid
            if not record.host
        ]
        with suppress(OSError):  # the process that has named it is gone
            Path(path).write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")


def read(path: Path) -> tuple[FailedWorker, ...]:
    """Reads the workers in the file; none if no worker failed."""
    text = path.read_text(encoding="utf-8")
    return tuple(FailedWorker(**row) for row in json.loads(text or "[]"))
