"""Which parts of a script's files its run can reach, told by the names that they mention."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from .source_files import LIBRARIES, SourceFile
from .statements import Function, Site, sites


@dataclass(frozen=True)
class _Definition:
    """A function or class at the top level of a file."""

    file: SourceFile
    node: Function | ast.ClassDef


def reached(files: Sequence[SourceFile]) -> list[Site]:
    """The statements and calls at top level, and of functions and classes that are mentioned.

    What is left out can't be reached, and what is kept may be.
    """
    defined: dict[str, list[_Definition]] = {}
    waiting: list[tuple[SourceFile, str]] = []
    for file in files:
        for node in file.tree.body:
            if isinstance(node, Function | ast.ClassDef):
                defined.setdefault(node.name, []).append(_Definition(file, node))
                waiting += [(file, name) for name in _mentioned(node.decorator_list)]
            elif file.is_script or not _is_main(node):
                waiting += [(file, name) for name in _mentioned([node])]
    found: set[tuple[int, str]] = set()
    for file, name in waiting:  # which grows meanwhile
        for each in _meant(name, file, defined):
            key = (id(each.file), each.node.name)
            if key not in found:
                found.add(key)
                waiting += [(each.file, inner) for inner in _mentioned([each.node])]
    return [site for file in files for site in sites(file, _names_in(file, found).__contains__)]


def _names_in(file: SourceFile, found: Set[tuple[int, str]]) -> set[str]:
    return {name for place, name in found if place == id(file)}


def _meant(name: str, file: SourceFile, defined: dict[str, list[_Definition]]) -> list[_Definition]:
    """What a name may stand for in a file: its own, what it imports, else all of that name."""
    module, original = file.names.get(name, ("", name))
    places = defined.get(original, [])
    own = [place for place in places if place.file is file]
    last = module.rpartition(".")[2]
    imported = [
        place for place in places if last in (place.file.path.stem, place.file.path.parent.name)
    ]
    is_library = module.partition(".")[0] in LIBRARIES
    return own or imported or ([] if is_library else places)


def _is_main(node: ast.stmt) -> bool:
    """Whether a statement is there for a file that is run, not imported."""
    return isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)


def _mentioned(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for top in nodes:
        for node in ast.walk(top):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                    yield name
