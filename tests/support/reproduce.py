"""Provokes known failures with the real frameworks: one script each, forked from warm imports.

    python tests/support/reproduce.py [--advised] [--verbose] ID...

runs `tests/reproductions/ID.py` on its ranks with the frameworks of this Python and says what each
rank died of and which entry explains it. The scripts are ordinary training scripts; `--advised`
makes them follow the entry's advice. They may set, at their top level:

    RANKS = 2           how many ranks
    STACKS = ("current", "older")   environments in which the failure lives; where no framework
                        is named but torch, which is the same in both, ("current",)
    FRESH = False       whether it needs an interpreter that has imported nothing yet
    SECONDS = 60        how long it may take
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # in a Python that has no pytest
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from support.warm_python import FRAMEWORKS, Training, preload, run, versions

FOLDER = Path(__file__).resolve().parents[1] / "reproductions"


@dataclass(frozen=True)
class Script:
    """A reproduction and what it says of itself."""

    path: Path
    ranks: int = 2
    stacks: tuple[str, ...] = ("current", "older")
    fresh: bool = False
    seconds: float = 60

    @property
    def id(self) -> str:
        """The known failure that it provokes."""
        return self.path.stem

    def training(self, *, is_advised: bool) -> Training:
        """How it is run."""
        arguments = ["--advised"] * is_advised
        return Training(
            str(self.path), arguments, self.ranks, fresh=self.fresh, seconds=self.seconds
        )


def read_script(path: Path) -> Script:
    """The script's own settings, read without running it."""
    names = {"RANKS": "ranks", "STACKS": "stacks", "FRESH": "fresh", "SECONDS": "seconds"}
    text = path.read_text()
    _, *differing = FRAMEWORKS  # torch doesn't
    said: dict[str, Any] = {}
    if not any(name in text for name in differing):
        said["stacks"] = ("current",)
    said |= {
        names[target.id]: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in names
    }
    return Script(path, **said)


def scripts() -> tuple[Script, ...]:
    """All reproductions by name."""
    return tuple(read_script(path) for path in sorted(FOLDER.glob("*.py")))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--advised", action="store_true", help="follow the entry's advice")
    parser.add_argument("--verbose", action="store_true", help="show what the ranks printed")
    parser.add_argument("ids", nargs="+")
    options = parser.parse_args()
    preload()
    import msgspec
    from safe_launch.catalogue.reader import concerns, read_catalogue
    from safe_launch.diagnosis.root_cause import diagnose
    from safe_launch.evidence.failure_record import FailureRecord

    catalogue = [entry for entry in read_catalogue() if concerns(entry, versions())]
    for name in options.ids:
        ended = run(read_script(FOLDER / f"{name}.py").training(is_advised=options.advised))
        print(f"{name}: exit codes {ended.codes}")
        records = msgspec.convert(ended.records, list[FailureRecord])
        for finding in diagnose(records, catalogue).findings:
            record = finding.record
            entry = finding.entry.id if finding.entry else "NOTHING KNOWN"
            print(
                f"  rank {record.rank}: {finding.role}: {entry}: "
                f"{record.exception} {record.message[:160]!r}"
            )
            if record.frames:
                frame = record.frames[-1]
                print(f"    raised in {frame.file}:{frame.line} {frame.function}: {frame.source}")
        if options.verbose:
            for rank, output in enumerate(ended.outputs):
                print(f"--- rank {rank}\n{output}")


if __name__ == "__main__":
    main()
