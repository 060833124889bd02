"""The results of a campaign as lines of JSON, and as tables by fault and by moment."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from support.faults.checks import CHECKS, Result
from support.faults.trial import FAULTS, MOMENTS, Trial


def line_of(result: Result) -> str:
    """A result as a line of JSON."""
    return json.dumps({**asdict(result), "wrong": dict(result.wrong)})


def results_in(path: Path | None) -> list[Result]:
    """The results that a file has; a last line may have been cut off."""
    found = []
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    for line in lines:
        told = json.loads(line)
        codes = tuple(told.pop("codes"))
        found.append(Result(**{**told, "trial": Trial(**told["trial"]), "codes": codes}))
    return found


def tables(results: Sequence[Result]) -> list[str]:
    """All results in Markdown: by fault, by moment, by check."""
    ways = list(dict.fromkeys(result.way for result in results))
    columns = "".join(f" {way}: right | s (median) | s (90 %) |" for way in ways)
    head = [f"| {{}} |{columns}", "|---|" + "---:|---:|---:|" * len(ways)]
    rows: list[str] = []
    by: list[tuple[str, dict[str, str], Callable[[Trial], str]]] = [
        ("fault", {name: fault.text for name, fault in FAULTS.items()}, lambda trial: trial.fault),
        ("moment", {name: name for name in MOMENTS}, lambda trial: trial.moment),
        ("all", {"": "**all**"}, lambda _trial: ""),
    ]
    for title, names, key in by:
        rows += [head[0].format(title), head[1]]
        for name, text in names.items():
            own = [result for result in results if key(result.trial) == name]
            rows += [_row(text, own, ways)] if own else []
        rows.append("")
    return [*rows, *_by_check(results, ways)]


def _row(text: str, results: Sequence[Result], ways: Sequence[str]) -> str:
    cells = []
    for way in ways:
        own = [result for result in results if result.way == way]
        seconds = sorted(result.seconds for result in own if result.is_struck)
        right = sum(not result.wrong for result in own)
        cells.append(f"{right} of {len(own)}" if own else "")
        cells.append(f"{statistics.median(seconds):.1f}" if seconds else "")
        most = seconds[min(len(seconds) - 1, int(len(seconds) * 0.9))] if seconds else 0
        cells.append(f"{most:.1f}" if seconds else "")
    return f"| {text} | {' | '.join(cells)} |"


def _by_check(results: Sequence[Result], ways: Sequence[str]) -> list[str]:
    rows = [f"| what didn't hold | {' | '.join(ways)} |", "|---|" + "---:|" * len(ways)]
    for name in CHECKS:
        counts = [
            sum(name in result.wrong for result in results if result.way == way) for way in ways
        ]
        rows.append(f"| {name} | {' | '.join(map(str, counts))} |")
    return rows
