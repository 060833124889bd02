"""What the readers find in real command lines, beside what a person has read in their sources.

    scripts/read-commands FILE REPOSITORIES [--differences] [--plan] [--hardware NAME]

FILE has a JSON object a line: `repo`, `cwd` in it, `script`, `args`, `env`, the launcher's
`options`, and `checked_by_hand` where somebody has: S stage, B micro batch, A accumulation, L
tokens, R and T rank and targets of LoRA, C checkpointing, P precision, O optimizer. REPOSITORIES
holds the sources as OWNER/NAME.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safe_launch.core.errors import LaunchError
from safe_launch.core.workload import Workload
from safe_launch.planning.plan import NoPlan, Plan
from safe_launch.planning.search import contradiction
from safe_launch.system import terminal

from support import command_lines
from support.command_lines import CHECKED, CommandLine, models_in, verdict, words_of


def line_of(row: Mapping[str, Any], repositories: Path) -> CommandLine:
    """The command line in a row."""
    words = words_of(row["options"], row["script"], row["args"])
    return CommandLine(words, row["env"], repositories / row["repo"] / row["cwd"])


def lines(workload: Workload) -> Iterator[str]:
    """All that was read of one command line, each value with its origin."""
    for name, known in sorted(workload.known.items(), key=lambda item: str(item[0])):
        yield f"{name.value} = {known.value} [{known.origin.name}: {known.source}]"
    yield from (f"note: {note}" for note in (*workload.notes, *workload.unmodelled))
    if workload.not_understood:
        yield f"not understood: {' '.join(workload.not_understood)}"


def plan_lines(found: Plan | NoPlan) -> Iterator[str]:
    """What would be refused or changed, why, and what is in doubt."""
    if isinstance(found, NoPlan):
        for constraint in contradiction(found):
            yield f"REFUSED {constraint.cause.summary}"
        return
    for change in found.changes:
        cause = change.constraint.cause
        yield (
            f"CHANGED {change.setting.value} {change.old} ({change.source}) -> {change.new}: "
            f"{cause.kind.value} {cause.name}: {cause.summary}"
        )
    if found.doubt is not None:
        withheld = ", ".join(f"{c.setting.value} -> {c.new}" for c in found.doubt.withheld)
        yield f"DOUBT {withheld or 'refused'}: {', '.join(found.doubt.missing)}"


def main() -> None:
    """Prints each line, and how many of the checked values are right, unknown and wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("repositories", type=Path)
    parser.add_argument("--differences", action="store_true", help="only what isn't right")
    parser.add_argument("--plan", action="store_true", help="what would be refused and changed")
    parser.add_argument("--hardware", default="dgx-a100-80gb")
    options = parser.parse_args()
    terminal.be_quiet(wanted=True)
    counts: Counter[str] = Counter()
    folder = options.repositories.absolute()
    with tempfile.TemporaryDirectory() as models:
        for text in options.file.read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            title = f"{row['id']} {row['repo']} {row['path']}"
            line = line_of(row, folder)
            try:
                with models_in(Path(models), row["path"]):
                    found = command_lines.plan(line, options.hardware)
            except LaunchError as error:
                counts["refused: an error"] += 1
                print(f"{title}: ERROR: {error}")
                continue
            workload = found.workload
            told = list(plan_lines(found)) if options.plan else []
            counts.update([word for each in told if (word := each.partition(" ")[0])])
            counts["read"] += 1
            counts["with a model"] += workload.model is not None
            counts.update(f"of origin {known.origin.name}" for known in workload.known.values())
            if told or not options.differences:
                own = [] if options.differences else lines(workload)
                print(title, *told, *own, sep="\n  ")
            for key, name in CHECKED.items():
                checked = row.get("checked_by_hand", {}).get(key)
                if checked is not None:
                    read = workload.value(name)
                    word = verdict(key, str(checked), read)
                    counts[word] += 1
                    if word != "right":
                        print(f"{title}: {name.value}: {word}: read {read}, by hand {checked}")
    print(*(f"{count} {word}" for word, count in sorted(counts.items())), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
