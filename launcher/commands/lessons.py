"""`safe-launch lessons`: the lessons of earlier runs, which later launches use."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence

import msgspec

from ..core.errors import ExitCode, LaunchError, Refused
from ..core.nearest import near
from ..options.parser import Parser
from ..planning.budget import gib
from ..session.lessons import store
from ..session.lessons.store import Kept
from ..system import terminal
from ..system.terminal import Row
from .arguments import add_json, meant

NONE = "no lesson is kept: a run that succeeds leaves one, corrected or with its memory measured"


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    parser.epilog = (
        f"{store.SHARED}=FOLDER is read and written too, {store.TRUSTED}FOLDER also with other "
        "users' lessons."
    )
    parser.add_argument("do", choices=("list", "show", "forget"), nargs="?", default="list")
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="a lesson's name, or a unique part of it"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Lists, shows or forgets lessons; returns the exit code.

    Raises:
        LaunchError: there is no such lesson, or it can't be removed.
    """
    if options.do != "list" and options.name is None:
        raise LaunchError(f"{options.do} which lesson?", "`safe-launch lessons` lists their names")
    kept: list[Kept] = []
    for lesson in store.find(store.folders(os.environ)):
        if isinstance(lesson, Refused):
            terminal.say(lesson.sentence)
        else:
            kept.append(lesson)
    if options.do == "list":
        listed = [lesson for lesson in kept if (options.name or "") in lesson.path.stem]
        _show(listed, as_json=options.json)
        return ExitCode.SUCCESS
    lesson = _named(options.name, kept)
    if options.do == "show":
        table = terminal.table(_rows(lesson), indent=0)
        terminal.show(_document([lesson]) if options.json else "\n".join(table))
    else:
        refused = store.forget(lesson.path)
        if refused is not None:
            raise LaunchError(refused.sentence, code=ExitCode.CANNOT_WRITE)
        terminal.show(f"forgotten: {lesson.path}")
    return ExitCode.SUCCESS


def _named(text: str, kept: Sequence[Kept]) -> Kept:
    """The lesson that a user means.

    Raises:
        LaunchError: there is none, or there are several.
    """
    known = {lesson.path.stem: lesson for lesson in kept}
    if name := meant(text, known, "lesson"):
        return known[name]
    hint = near(text, known)
    raise LaunchError(f"there is no lesson `{text}`", hint if known else NONE)


def _show(kept: Sequence[Kept], *, as_json: bool) -> None:
    if as_json:
        terminal.show(_document(kept))
        return
    latest = sorted(kept, key=lambda entry: entry.lesson.date, reverse=True)
    lines = [f"{entry.lesson.date[:16].replace('T', ' ')}  {entry.path.stem}" for entry in latest]
    terminal.show("\n".join(lines) or NONE)


def _document(kept: Sequence[Kept]) -> str:
    documents = [
        {
            "name": entry.path.stem,
            "path": str(entry.path),
            "owner": entry.owner,
            **msgspec.to_builtins(entry.lesson),
        }
        for entry in kept
    ]
    return json.dumps(documents, indent=1)


def _rows(kept: Kept) -> list[Row]:
    """A lesson in full."""
    lesson = kept.lesson
    rows = [("lesson", kept.path.stem), ("of", f"{lesson.script}, learnt in {lesson.source}")]
    if kept.owner:
        rows.append(("by", kept.owner))
    if lesson.failure:
        rows += [("failure", lesson.failure), ("seen", lesson.evidence)]
    known = [f"{name}: {value}" for name, value in sorted(lesson.known.items())]
    rows += [("known", "\n".join(known))] if known else []
    for each in lesson.forbidden:
        terms = ", ".join(f"{name}={'|'.join(map(str, v))}" for name, v in each.terms.items())
        rows.append(("not", f"{terms}: {each.summary}"))
    if lesson.trained:
        rows.append(("memory", f"a rank needed {gib(lesson.trained.needed)} GiB"))
    if lesson.machine:
        rows.append(("on", lesson.machine))
    if lesson.installed:
        rows.append(("versions", _versions(lesson.installed)))
    versions = _versions(lesson.versions)
    holds = (
        "as long as the script, its own files, the model and the deciding arguments are the same"
    )
    rows.append(("holds", f"{holds}{f', with {versions}' if versions else ''}"))
    return [*rows, ("file", str(kept.path))]


def _versions(installed: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in installed.items())
