"""Finds the user's source files: the script and the modules it imports from its folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ...core.request import LaunchRequest
from ...system.regular_files import read
from .files import is_installed, module_file


def user_files(request: LaunchRequest) -> Iterator[Path]:
    """The script and the modules it imports from its folder; empty for framework programs."""
    if not request.is_program:
        yield from files_of(request.script, is_module=request.is_module)


def files_of(script: str, *, is_module: bool) -> Iterator[Path]:
    """Source files of a script, or of a module by name."""
    path = module_file(script) if is_module else Path(script)
    if path is None or not path.is_file() or is_installed(path):
        return
    yield path
    tree = tree_of(path)
    if tree is None:
        return
    roots = (path.parent, Path()) if is_module else (path.parent,)
    for name in imported(tree):
        for root in roots:
            stem = root.joinpath(*name.split("."))
            yield from filter(Path.is_file, (stem.with_suffix(".py"), stem / "__init__.py"))


def tree_of(path: Path) -> ast.Module | None:
    """A file's syntax tree; None if it is missing or isn't Python."""
    try:
        return parsed_text(read(path))
    except OSError:
        return None


@cache
def parsed_text(source: str | bytes) -> ast.Module | None:
    """The cached, read-only syntax tree of a source; None if it isn't Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of imported modules, including names that may be submodules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level < 2:
            head = [node.module] if node.module else []
            yield from head
            yield from (".".join([*head, alias.name]) for alias in node.names)
