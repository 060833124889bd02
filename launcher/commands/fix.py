"""`safe-launch fix`: makes a run's corrections permanent, as a patch of the user's files."""

from __future__ import annotations

import argparse
import difflib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from ..core.errors import ExitCode, LaunchError, Refused, reason_of
from ..options.parser import Parser
from ..report.lasting import Edit
from ..report.run_status import RunStatus
from ..system import private_files, regular_files, terminal
from ..system.run_directory import named
from . import config_patch, run_search
from .arguments import add_json, add_run, root_of


@dataclass(frozen=True, slots=True)
class FilePatch:
    """A user's file, before and after the edits.

    Attributes:
        after: the text with the edits; the same as before if they have already been made.
        refused: the edits that can't be made safely, and why.
    """

    path: Path
    before: str
    after: str
    refused: tuple[tuple[Edit, str], ...] = field(default=())

    def diff(self) -> str:
        """A unified diff, which `patch -p1` takes in the current directory."""
        name = os.path.relpath(self.path)
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    add_run(parser, "; by default the latest run")
    parser.add_argument(
        "--apply",
        action="store_true",
        help="write JSON and YAML; each file is copied to FILE.orig before",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Shows or writes the edits that make corrections permanent; returns the exit code.

    Raises:
        LaunchError: there is no such run, or a file can't be written.
    """
    status = run_search.status_of(run_search.named_or_latest(options.run, root_of(options)))
    if options.apply:
        _require_ownership(status.folder)
    edits = _edits(status)
    patches = [*_patches(edits)]
    words = [edit for edit in edits if not edit.is_written]
    copies = [_applied(patch) for patch in patches] if options.apply else []
    if options.json:
        terminal.show(json.dumps(_document(status, patches, words), indent=1))
        return ExitCode.SUCCESS
    if not options.apply and (diff := "".join(patch.diff() for patch in patches)):
        terminal.show(diff.removesuffix("\n"))
    terminal.say(*_sentences(status, patches, words, copies))
    is_left = any(patch.refused for patch in patches) or any(edit.is_python for edit in words)
    is_done = any(patch.after != patch.before or not patch.refused for patch in patches)
    return ExitCode.USAGE if options.apply and is_left and not is_done else ExitCode.SUCCESS


def _require_ownership(run: Path) -> None:
    """Checks that a run is this user's, as its record names the files to write.

    Raises:
        LaunchError: another user could have written it.
    """
    owner = run.stat().st_uid
    if owner != os.geteuid():
        problem = (
            f"{run} belongs to {regular_files.owner(owner)}, whose record names the files to write"
        )
        raise LaunchError(problem, "without --apply, the patch is only shown")


def _edits(status: RunStatus) -> list[Edit]:
    """The edits that a run has recorded.

    Raises:
        LaunchError: it can't be read.
    """
    try:
        return msgspec.convert((status.outcome or {}).get("lasting", []), list[Edit])
    except msgspec.ValidationError as error:
        problem = f"{status.folder / 'outcome.json'} isn't of this version: {error}"
        raise LaunchError(problem) from error


def _patches(edits: Sequence[Edit]) -> Iterator[FilePatch]:
    """A patch for each file, with all edits of it."""
    for path in dict.fromkeys(edit.file for edit in edits if edit.is_written):
        target = Path(os.path.realpath(path))  # the target of a link is written
        yield _patch(target, [edit for edit in edits if edit.file == path])


def _patch(path: Path, edits: Sequence[Edit]) -> FilePatch:
    """The patch of a file.

    Raises:
        LaunchError: the file can't be read.
    """
    try:
        before = text = regular_files.read(path).decode()
    except (OSError, ValueError) as error:
        raise LaunchError(f"{path} can't be read: {reason_of(error)}") from error
    refused = []
    for edit in edits:
        changed: str | Refused = text
        for key, value in edit.values.items():
            if isinstance(changed, str):
                change = partial(config_patch.patched, key=key, value=value)
                changed = _with_line_ends(changed, change)
        if isinstance(changed, Refused):
            refused.append((edit, changed.sentence))
        else:
            text = changed
    return FilePatch(path, before, text, tuple(refused))


def _with_line_ends(text: str, change: Callable[[str], str | Refused]) -> str | Refused:
    """The text changed; if all of its lines end as on Windows, the new ones do too."""
    if "\r\n" not in text or re.search(r"(?<!\r)\n", text):
        return change(text)
    changed = change(text.replace("\r\n", "\n"))
    return changed.replace("\n", "\r\n") if isinstance(changed, str) else changed


def _applied(patch: FilePatch) -> Path | None:
    """Writes a file after a copy of it; returns the copy, None if nothing changes.

    Raises:
        LaunchError: it can't be written, or has changed meanwhile.
    """
    if patch.after == patch.before:
        return None
    old, new = (text.encode() for text in (patch.before, patch.after))
    try:
        mode = patch.path.stat().st_mode & 0o7777
        if regular_files.read(patch.path) != old:
            raise LaunchError(f"{patch.path} is being changed", "try it again")
        if not os.access(patch.path, os.W_OK):
            raise PermissionError(13, "it is write-protected")
        copy = _copy(patch.path, old, mode)
        regular_files.overwrite(patch.path, new)
    except OSError as error:
        problem = f"{patch.path} can't be written: {reason_of(error)}"
        raise LaunchError(problem, "the file is unchanged", code=ExitCode.CANNOT_WRITE) from error
    return copy


def _copy(path: Path, content: bytes, mode: int) -> Path:
    """Keeps a file beside itself; an earlier copy stays.

    Raises:
        OSError: it can't be written.
    """
    for number in itertools.count():
        copy = path.with_name(f"{path.name}.orig{number or ''}")
        with suppress(FileExistsError), private_files.create(copy) as file:
            try:
                private_files.write_all(file, content)
                os.fchmod(file.fileno(), mode)
            except OSError:
                copy.unlink()
                raise
            return copy
    raise AssertionError("there is no last number")


def _sentences(
    status: RunStatus,
    patches: Sequence[FilePatch],
    words: Sequence[Edit],
    copies: Sequence[Path | None],
) -> Iterator[str]:
    """The edits made, and those left to the user."""
    for patch, copy in zip(patches, copies, strict=False):
        if copy is not None:
            yield f"written: {patch.path}; as it was: {copy.name}"
    for patch in patches:
        for edit, why in patch.refused:
            yield f"edit by hand: {edit}: {why}"
        if patch.after == patch.before and not patch.refused:
            yield f"{patch.path} already has this change"
    arguments = " ".join(edit.text for edit in words if edit.is_argument)
    if arguments:
        commands = [launcher.command for launcher in status.launchers[:1]]
        yield f"pass to the script: {arguments}"
        yield from (f"full command: {command} {arguments}" for command in commands)
    yield from (f"edit by hand: {edit}" for edit in words if not edit.is_argument)
    if any(patch.after != patch.before for patch in patches) and not copies:
        yield f"to write it: safe-launch fix {named(status.folder)} --apply"
    if not patches and not words:
        yield f"{status.folder.name}: no correction to make permanent: {status.state_text()}"


def _document(
    status: RunStatus, patches: Sequence[FilePatch], words: Sequence[Edit]
) -> dict[str, object]:
    return {
        "run": status.folder.name,
        "patches": [
            {
                "file": str(patch.path),
                "diff": patch.diff(),
                "refused": [{"edit": str(edit), "why": why} for edit, why in patch.refused],
            }
            for patch in patches
        ],
        "arguments": [edit.text for edit in words if edit.is_argument],
        "others": [str(edit) for edit in words if not edit.is_argument],
    }
