"""`safe-launch diagnose`: the root cause of a failed training, from its logs and dumps alone."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

from ..catalogue.entry import KnownFailure
from ..core.errors import LaunchError, Refused
from ..core.script import SourceLocation
from ..diagnosis.root_cause import diagnose
from ..hangs import attribution, flight_recorder
from ..hangs.report import HangReport, failure_records
from ..logs import files, report, sources
from ..logs.headline import headline
from ..logs.judgement import Judgement, Verdict
from ..logs.plain import MOST_PASTED, restored
from ..logs.reader import Reader
from ..logs.report import diagnosis_document
from ..logs.sources import Resumed
from ..logs.verdict import decisive, judge
from ..options.parser import Parser
from ..report import explain_hang
from ..system import terminal
from ..system.redaction import redacted
from ..workload.script.line_searches import spots
from .arguments import add_catalogue, add_json
from .catalogue import known_failures

CODES = {Verdict.HEALTHY: 0, Verdict.KNOWN: 1, Verdict.UNKNOWN: 2, Verdict.UNFINISHED: 3}
"""Exit codes of `safe-launch diagnose`."""


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    parser.epilog = "exit codes: " + ", ".join(f"{code} {name}" for name, code in CODES.items())
    add_catalogue(parser)
    add_json(parser)
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help="a log, a folder of logs, or - for standard input"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the diagnosis of logs and flight recorders' dumps; returns the verdict's exit code.

    Raises:
        LaunchError: a path, or the catalogue, can't be read.
    """
    paths, as_json = options.paths, options.json
    catalogue = known_failures(options.catalogue)
    dumped = flight_recorder.find(paths)
    stood = flight_recorder.standings(dumped)
    hang = stood if isinstance(stood, Refused) else attribution.report_on(stood)
    chosen = files.find_logs(paths, dumped)
    if not chosen.paths:
        return _show_hang(hang, catalogue, as_json=as_json)
    bare = [f"{path} {why}" for path in chosen.paths if (why := files.without_text(path))]
    notes = [*chosen.notes, *bare]
    if len(chosen.paths) == 1 and not as_json:
        _show_first(chosen.paths[0], catalogue)
    attempts = read(chosen.paths, catalogue)
    last = decisive(attempts)
    places = _spots(last)
    if as_json:
        document = diagnosis_document(last, attempts, notes, places)
        if isinstance(hang, HangReport):
            document["hang"] = asdict(hang)
        _show(json.dumps(document, indent=1))
        return CODES[last.verdict]
    lines = [headline(last, places)]
    if last.verdict is Verdict.UNFINISHED and len(bare) == len(chosen.paths):
        lines[0] = f"unfinished: {notes.pop()}" if len(bare) == 1 else "unfinished: no log has text"
    if len(attempts) > 1:
        lines[0] = f"attempt {last.attempt} of {len(attempts)}: {lines[0]}"
    lines += terminal.table(report.rows(last, places))
    lines += terminal.table(report.attempt_rows(attempts, last))
    lines += terminal.table(("note", note) for note in notes)
    if dumped:
        lines += _hang_lines(hang)
    _show("\n".join(lines))
    return CODES[last.verdict]


def _show_first(path: str, catalogue: Sequence[KnownFailure]) -> None:
    """Shows the diagnosis of a long log's end, before all of it is read."""
    if end := sources.end_of(path):
        reader = Reader(catalogue)
        reader.read(path, BytesIO(end))
        diagnosis = headline(decisive(judge(reader.attempts, catalogue)))
        terminal.say(f"by the end of {path}, while all of it is being read: {diagnosis}")


def _show(text: str) -> None:
    """Prints a document on stdout, without the secrets that a log may quote."""
    terminal.show(redacted(text))


def read(paths: Sequence[str], catalogue: Sequence[KnownFailure]) -> tuple[Judgement, ...]:
    """The judgement on each attempt in the logs.

    In a log that seems copied by hand, wrapped lines are joined first; if that shows no known
    failure, it is read as it is.

    Raises:
        LaunchError: a path can't be read.
    """
    reader = Reader(catalogue)
    texts: dict[str, tuple[bytes, ...]] = {}
    for path in paths:
        with sources.opened(path) as file:
            head = file.read(MOST_PASTED + 1)
            if len(head) > MOST_PASTED:
                reader.read(path, Resumed(head, file))
            else:
                texts[path] = restored(head)
                reader.read(path, BytesIO(texts[path][0]))
    attempts = judge(reader.attempts, catalogue)
    is_joined = any(len(each) > 1 for each in texts.values())
    if not is_joined or len(texts) < len(paths) or _is_known(attempts):
        return attempts
    again = Reader(catalogue)
    for path, each in texts.items():
        again.read(path, BytesIO(each[-1]))
    as_it_is = judge(again.attempts, catalogue)
    return as_it_is if _is_known(as_it_is) else attempts


def _hang_lines(hang: HangReport | Refused) -> list[str]:
    if isinstance(hang, Refused):
        return terminal.table([("note", hang.sentence)])
    return [explain_hang.headline(hang), *terminal.table(explain_hang.rows(hang))]


def _show_hang(
    hang: HangReport | Refused, catalogue: Sequence[KnownFailure], *, as_json: bool
) -> int:
    """Prints the diagnosis from dumps alone; returns the verdict's exit code.

    Raises:
        LaunchError: no dump can be read.
    """
    if isinstance(hang, Refused):
        raise LaunchError(hang.sentence)
    entry = diagnose(failure_records(hang, 0.0), catalogue).root.entry
    verdict = Verdict.UNKNOWN if entry is None else Verdict.KNOWN
    if as_json:
        document = {"verdict": verdict.value, "id": entry and entry.id, "hang": asdict(hang)}
        _show(json.dumps(document, indent=1))
        return CODES[verdict]
    lines = _hang_lines(hang)
    if entry is not None:
        lines += terminal.table([("more", f"safe-launch explain {entry.id}")])
    _show("\n".join(lines))
    return CODES[verdict]


def _is_known(attempts: Sequence[Judgement]) -> bool:
    return decisive(attempts).verdict is Verdict.KNOWN


def _spots(judgement: Judgement) -> tuple[SourceLocation, ...]:
    """The user's lines that the failure is about, if their files are on this machine."""
    root = judgement.root
    if root is None or root.finding.entry is None or root.finding.entry.points_at is None:
        return ()
    here = [file for file in root.finding.record.user_files if Path(file).is_file()]
    return spots(root.finding.entry.points_at, here)
