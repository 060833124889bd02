"""Reads the script's arguments and the words of its source without running it."""

from __future__ import annotations

import ast
import os
import re

from ...core.request import LaunchRequest
from ...core.workload import VERSIONED
from ...frameworks.arguments import Flags
from ...frameworks.framework import FrameworkRow, Script, SourceWords
from ...frameworks.installed import installed
from ...frameworks.registry import FRAMEWORKS
from .files import module_file, parsed, script_file
from .flags import arguments_file, flags_of
from .source_files import source_files
from .source_words import words_of


def read_script(request: LaunchRequest) -> Script:
    """Reads everything known about the script without running it.

    Raises:
        LaunchError: the script is missing or has a syntax error, or its argument file can't be
            read.
    """
    path = module_file(request.script) if request.is_module else script_file(request.script)
    tree = None if path is None else parsed(path)
    names = frozenset() if tree is None else frozenset(_names(tree))
    if request.is_module:
        names |= {request.script.partition(".")[0]}
    owner = owner_of(request.script, names)
    arguments = [*arguments_file(path, names), *request.arguments]
    # The framework's reader covers its own program.
    words = SourceWords() if owner else words_of(source_files(request))
    flags = flags_of(arguments, names, owner)
    return Script(
        flags=Flags({name: each for name, each in flags.items() if name not in words.assigned}),
        replaced={name: each for name, each in flags.items() if name in words.assigned},
        names=names,
        versions=installed(VERSIONED),
        environment=dict(os.environ),
        world=request.world,
        owner=owner,
        program=request.script,
        words=words,
        tree=tree,
    )


def owner_of(program: str, names: frozenset[str]) -> FrameworkRow | None:
    """The framework that takes all of a program's arguments; None if there is none."""
    return next((row for row in FRAMEWORKS if _owns(row, program, names)), None)


def _owns(row: FrameworkRow, program: str, names: frozenset[str]) -> bool:
    called = not names.isdisjoint(row.functions) and not names.isdisjoint(row.packages)
    return called or bool(row.program and re.search(row.program, program))


def _names(tree: ast.Module) -> set[str]:
    """Top-level packages that are imported, and the names imported from them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(node.attr)  # `transformers.HfArgumentParser(...)`
    return names
