"""Options that the script itself takes, by its source: its local rank, and misplaced ones."""

from __future__ import annotations

import argparse
import ast
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..core.request import LaunchRequest
from ..frameworks.framework import PARSERS
from ..frameworks.installed import package_folders
from ..workload.script.files import files_of, imported, tree_of
from .foreign_options import HOSTS, WORKERS
from .option import DEEPSPEED

LOCAL_RANK = "${local_rank}"
"""The placeholder that a worker replaces, as under torchrun."""
SPELLINGS = ("--local_rank", "--local-rank")
"""The spelling of deepspeed, then of torch.distributed.launch."""
FORM = [
    option.key
    for option in (*HOSTS, *WORKERS)
    if option.tools == (DEEPSPEED,) and not option.instead
]
"""Options that identify a deepspeed command line."""
OTHERS = {"parse_known_args", "parse_known_intermixed_args", "HfArgumentParser", "TrlParser"}
"""Parsers that accept any option, or a library's options: TrainingArguments has it."""
RUNNING = {"__import__", "exec", "execl", "execv", "execve", "execvp", "execvpe", "system"}
"""Functions that run other code."""
TRAINING_ARGUMENTS = ("training_args.py", "training_args_seq2seq.py")
"""Files of transformers with the arguments of its parser."""


def with_local_rank(options: argparse.Namespace) -> list[str]:
    """The script's arguments, after its local rank for a deepspeed command line.

    As torchrun passes no local rank and deepspeed always does, the form of the command line
    decides. Scripts seen to refuse the option don't get it.
    """
    arguments: list[str] = list(options.arguments)
    is_stated = any(argument.partition("=")[0] in SPELLINGS for argument in arguments)
    if options.script is None or options.no_local_rank or is_stated:
        return arguments
    if not any(getattr(options, key) for key in FORM):
        return arguments
    spelling = (
        SPELLINGS[0] if options.no_python else _spelling(options.script, is_module=options.module)
    )
    return [f"{spelling}={LOCAL_RANK}", *arguments] if spelling else arguments


def _spelling(script: str, *, is_module: bool) -> str:
    """A script's spelling of the option; empty if it is seen to lack it."""
    trees = [tree_of(path) for path in dict.fromkeys(files_of(script, is_module=is_module))]
    seen = _Seen()
    for tree in trees:
        if tree is not None:
            seen.note(tree)
    if seen.names & OTHERS:
        return SPELLINGS[0]
    stated = [spelling for spelling in SPELLINGS if spelling in seen.texts]
    if stated:
        return stated[0]
    is_parameter = "local_rank" in seen.parameters
    if "typer" in seen.names:  # which makes an option with dashes of a parameter
        return SPELLINGS[1] if is_parameter else ""
    if seen.names & {"fire", "click"}:
        return SPELLINGS[0] if is_parameter else ""
    is_refused = "parse_args" in seen.names
    is_refused |= "argv" in seen.names and not any("local_rank" in text for text in seen.texts)
    return "" if is_refused else SPELLINGS[0]


@dataclass
class _Seen:
    """Words in source files.

    Attributes:
        names: modules, names and attributes.
        parameters: parameters of functions.
        texts: strings.
    """

    names: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def note(self, tree: ast.Module) -> None:
        """Adds a file's words."""
        self.names.update(imported(tree))
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    self.names.add(name)
                case ast.arg(arg=name):
                    self.parameters.add(name)
                case ast.Constant(value=str() as text):
                    self.texts.add(text)


def misplaced_line(request: LaunchRequest, spellings: Collection[str]) -> str:
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
    from ..workload.script.source_files import source_files

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
