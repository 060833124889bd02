"""What a case's last run has shown, kept for the table in docs/using/frameworks.md."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from frameworks.cases import Case

FOLDER = Path(__file__).resolve().parent / "records"


@dataclass(frozen=True)
class Record:
    """A case that has passed.

    Attributes:
        case: its name.
        versions: of its packages.
        healthy: losses of the healthy run under the framework's own launcher.
        through_safe_launch: those through safe-launch.
        reference: losses that the corrected run should have.
        corrected: those that it had.
        attempts: of the corrected run.
        seconds: all runs together.
    """

    case: str
    versions: dict[str, str]
    healthy: list[float]
    through_safe_launch: list[float]
    reference: list[float]
    corrected: list[float]
    attempts: int
    seconds: int


def versions_of(case: Case) -> dict[str, str]:
    """The installed versions of a case's packages."""
    code = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"
    done = case.run(Path.cwd(), "python", "-c", code, *case.packages)
    return dict(zip(case.packages, done.output.split(), strict=True))


def write(record: Record) -> None:
    """Keeps a record in the place of the case's last one."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(asdict(record), indent=2)
    (FOLDER / f"{record.case}.json").write_text(text + "\n", encoding="utf-8")


def read(case: Case) -> Record | None:
    """A case's record; None where it has none."""
    path = FOLDER / f"{case.name}.json"
    return Record(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
