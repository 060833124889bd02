"""Detects misplaced words: launcher options after the script, or a command's name."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ..core.errors import LaunchError
from ..core.nearest import meant, near
from ..core.request import LaunchRequest
from ..frameworks.arguments import PARSERS
from ..frameworks.installed import package_folders
from ..workload.script.source_files import source_files
from ..workload.script.user_files import tree_of

RUNNING = {"__import__", "exec", "execl", "execv", "execve", "execvp", "execvpe", "system"}
"""Functions that run other code."""
TRAINING_ARGUMENTS = ("training_args.py", "training_args_seq2seq.py")
"""Files of transformers with the arguments of its parser."""


def line(request: LaunchRequest, spellings: Collection[str]) -> str:
    """A warning about misplaced options; empty if none."""
    strange = unknown(request, spellings)
    if not strange:
        return ""
    them = "it" if len(strange) == 1 else "them"
    return (
        f"{', '.join(strange)}: handed to {request.script}, which doesn't know {them}; "
        "safe-launch's own options must precede the script"
    )


def unknown(request: LaunchRequest, spellings: Collection[str]) -> tuple[str, ...]:
    """The script's arguments with these spellings that it doesn't know.

    Empty if uncertain, as other code may read the arguments.
    """
    arguments = itertools.takewhile(lambda argument: argument != "--", request.arguments)
    names = dict.fromkeys(argument.partition("=")[0] for argument in arguments)
    alike = [name for name in names if name in spellings]
    words = _words(request) if alike else None
    if words is None:
        return ()
    return tuple(name for name in alike if not any(_is_named_by(name, word) for word in words))


def _is_named_by(option: str, word: str) -> bool:
    """Whether a word of a source file begins with the option's name."""
    if option.startswith("--"):
        option, word = option.lstrip("-"), word.lstrip("-")
    return word.replace("-", "_").startswith(option.replace("-", "_"))


def _words(request: LaunchRequest) -> set[str] | None:
    """All names and strings of the script's files; None if other code may parse too.

    Follows imports of the user's files, not of installed packages.
    """
    sources = source_files(request)
    if not sources.is_all or any(_passes_on(file.tree) for file in sources.files):
        return None
    words = {word for file in sources.files for word in _mentioned(file.tree)}
    if words & PARSERS:
        folder = next(package_folders("transformers"), Path())
        trees = [tree_of(folder / name) for name in TRAINING_ARGUMENTS]
        if None in trees:
            return None
        words.update(word for tree in trees if tree for word in _mentioned(tree))
    return words


def _mentioned(tree: ast.Module) -> Iterator[str]:
    """Texts, and names that are set, parameters, imported, or attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=names):
                yield from (alias.name for alias in names)


def _passes_on(tree: ast.Module) -> bool:
    """Whether a file runs code that isn't searched, or declares options with computed names."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in RUNNING:
                return True
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names):
                if not all(isinstance(name, ast.Constant) for name in names):
                    return True
    return False


def refuse_misspelt_command(word: str, commands: Sequence[str]) -> None:
    """Refuses a script that doesn't exist and has nearly a command's name, or no suffix at all.

    Raises:
        LaunchError: it has.
    """
    if meant(word, commands) or word.isalpha():
        problem = f"there is no script `{word}`, nor a command of that name"
        raise LaunchError(problem, near(word, commands))
