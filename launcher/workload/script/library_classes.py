"""The dataclasses that installed libraries bring for a script's parser, as syntax."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .files import package_folders
from .source_files import SourceFile
from .user_files import tree_of

LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "transformers": ("training_args.py", "training_args_seq2seq.py"),
    "trl": ("trainer/*_config.py", "trainer/utils.py", "scripts/utils.py"),
}
"""Where packages that bring dataclasses for a parser define them."""


@cache
def library_class(name: str) -> tuple[SourceFile, ast.ClassDef] | None:
    """The definition of a class in the installed libraries that bring such classes."""
    for package, patterns in LIBRARIES.items():
        for folder in package_folders(package):
            for pattern in patterns:
                for path in sorted(folder.glob(pattern)):
                    if f"class {name}" in path.read_text(encoding="utf-8", errors="replace"):
                        found = _defined(path, name)
                        if found is not None:
                            return found
            break
    return None


def _defined(path: Path, name: str) -> tuple[SourceFile, ast.ClassDef] | None:
    tree = tree_of(path)
    for node in tree.body if tree is not None else ():
        if tree is not None and isinstance(node, ast.ClassDef) and node.name == name:
            return SourceFile(path, tree, is_script=False), node
    return None
