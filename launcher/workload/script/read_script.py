"""Reads the script's arguments and the words of its source without running it."""

from __future__ import annotations

import ast
import os
import re

from ...core.request import LaunchRequest
from ...core.workload import FRAMEWORKS
from .files import module_file, parsed, script_file
from .flags import arguments_file, flags_of
from .given import Flags
from .script import Script
from .source_files import source_files
from .source_words import SourceWords, words_of
from .versions import installed

OWNERS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("swift", r"(^|[./])swift[./]cli[./]", frozenset({"sft_main", "pt_main", "rlhf_main"})),
    ("llamafactory", r"(^|[./])(llamafactory|llmtuner)([./-]|$)", frozenset({"run_exp"})),
    ("FlagEmbedding", r"^FlagEmbedding\.", frozenset()),
)
"""Frameworks whose programs take all arguments from the command line: a pattern of the program's
name, and the functions that a custom script calls instead."""

_PACKAGES = {
    "swift": {"swift"},
    "llamafactory": {"llamafactory", "llmtuner"},
    "FlagEmbedding": {"FlagEmbedding"},
}
"""Packages of the frameworks, with older names."""


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
        versions=installed(FRAMEWORKS),
        environment=dict(os.environ),
        world=request.world,
        owner=owner,
        program=request.script,
        words=words,
    )


def owner_of(program: str, names: frozenset[str]) -> str:
    """The framework that owns a program; empty if none."""
    for owner, pattern, functions in OWNERS:
        if re.search(pattern, program) or (functions & names and _PACKAGES[owner] & names):
            return owner
    return ""


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
