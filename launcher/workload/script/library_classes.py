"""The dataclasses that installed libraries bring for a script's parser, as syntax."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ...system import regular_files
from .files import package_folders
from .source_files import SourceFile
from .user_files import parsed_text

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
                    found = _defined(path, name)
                    if found is not None:
                        return found
            break
    return None


def _defined(path: Path, name: str) -> tuple[SourceFile, ast.ClassDef] | None:
    """The definition of a class at the top level of a file."""
    text = regular_files.read(path).decode(errors="replace")
    start = re.search(rf"^class {name}\b", text, re.MULTILINE)
    if start is None:
        return None
    methods = re.compile(r"^    def ", re.MULTILINE).search(text, start.end())
    # Without the methods, which declare no options, that is half the work.
    tree = parsed_text(text[: methods and methods.start()]) or parsed_text(text)
    for node in tree.body if tree is not None else ():
        if tree is not None and isinstance(node, ast.ClassDef) and node.name == name:
            return SourceFile(path, tree, is_script=False), node
    return None
