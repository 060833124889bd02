"""The user's lines that set the Trainer's arguments: calls, dicts and assignments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from ..frameworks.framework import TRAINING
from ..workload.script.calls import called, dotted
from ..workload.script.source_files import SourceFile

QUESTION_AT = re.compile(r", (?P<file>[^,]+):(?P<line>\d+)(?:, in a later training)?")
"""The user's line at which a worker asked, at the end of a source."""
HANDING_ON = ("dict", "partial", "replace", "set_defaults", "update")
"""Functions whose keywords can be the Trainer's arguments elsewhere."""
READING = ("parse_dict", "create", "Namespace", "SimpleNamespace")
"""Functions that make arguments of a dict: transformers', omegaconf's, argparse's."""
Arguments = Mapping[str, str | int | bool | dict[str, bool]]
"""Values by the names of a function's arguments."""
Maker = tuple[SourceFile, ast.Call]
"""A user's call that makes the Trainer's arguments, and its file."""
Line = tuple[SourceFile, int, Arguments]
"""A file, the line in it that sets an argument, and the arguments to set there."""


def lines_that_set(
    files: Sequence[SourceFile], made: Sequence[Maker], arguments: Arguments
) -> list[Line]:
    """The lines that set the last of the arguments that any line sets; none if none does.

    In a call or a dict all are to be set; by an assignment, that one and those after it, which
    nothing sets yet. Only calls count that make the Trainer's arguments or hand them on, not those
    of other functions of packages. Attributes of `self` only count in classes of such arguments.
    """
    in_classes = {node for definition in _argument_classes(files) for node in ast.walk(definition)}
    taken = set(_taken_by_packages(files, {call for _, call in made}))
    handing_on = [
        (file, call)
        for file, call in calls_of(files)
        if called(call) in HANDING_ON and call not in taken
    ]
    nodes: list[tuple[SourceFile, ast.AST]] = [
        (file, keyword)
        for file, call in dict.fromkeys((*made, *handing_on))
        for keyword in call.keywords
    ]
    for file in files:
        others = (node for node in ast.walk(file.tree) if not isinstance(node, ast.keyword))
        counted = (node for node in others if node not in taken)
        nodes += [(file, node) for node in counted if node in in_classes or not _is_of_self(node)]
    names = [*arguments]
    for place in reversed(range(len(names))):
        rest = {name: arguments[name] for name in names[place:]}
        lines = [
            (file, line, stated)
            for file, node in nodes
            for line, stated in _setting(node, names[place], rest, arguments)
        ]
        if lines:
            return lines
    return []


def _taken_by_packages(files: Sequence[SourceFile], made: Set[ast.Call]) -> Iterator[ast.AST]:
    """Nodes within calls that neither make nor hand on the Trainer's arguments.

    The user's functions and classes may do either.
    """
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = (node for file in files for node in ast.walk(file.tree))
    users = {node.name for node in nodes if isinstance(node, functions)}
    waiting: list[tuple[ast.AST, bool]] = [(file.tree, False) for file in files]
    while waiting:
        node, is_taken = waiting.pop()
        if is_taken:
            yield node
        if isinstance(node, ast.Call):
            waiting.append((node.func, is_taken))
            name = called(node)
            if node in made or name in users or name in READING:
                is_taken = False
            elif name not in HANDING_ON:
                is_taken = True
            waiting += [(child, is_taken) for child in (*node.args, *node.keywords)]
        else:
            waiting += [(child, is_taken) for child in ast.iter_child_nodes(node)]


def _setting(
    node: ast.AST, name: str, rest: Arguments, all_: Arguments
) -> Iterator[tuple[int, Arguments]]:
    """The line at which a node sets an argument, and the arguments to set there."""
    match node:
        case ast.keyword(arg=found) if found == name:
            yield node.lineno, all_
        case ast.Dict(keys=keys):
            yield from (
                (key.lineno, all_)
                for key in keys
                if isinstance(key, ast.Constant) and key.value == name
            )
        case ast.Attribute(attr=found, ctx=ast.Store()) | ast.Name(id=found, ctx=ast.Store()):
            if found == name:
                yield node.lineno, rest


def _is_of_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and dotted(node.value) == "self"


def makers(files: Sequence[SourceFile], source: str, names: Set[str]) -> list[Maker]:
    """The user's calls that make the Trainer's arguments: the one that asked, else all.

    The `source` of the old value may end with the line at which a worker asked. A call at that line
    with one of these argument names counts, whichever function it calls.
    """
    classes = {item.name for item in _argument_classes(files)}
    made = [
        (file, call)
        for file, call in calls_of(files)
        if called(call) in classes or _is_training(file, called(call))
    ]
    question = QUESTION_AT.search(source)
    if question is None:
        return made
    path, line = Path(question["file"]).resolve(), int(question["line"])
    there = [
        (file, call)
        for file, call in calls_of(files)
        if call.lineno == line and file.path.resolve() == path
        if (file, call) in made or not names.isdisjoint(item.arg for item in call.keywords)
    ]
    return there or made


def _argument_classes(files: Sequence[SourceFile]) -> Iterator[ast.ClassDef]:
    """The user's classes of the Trainer's arguments."""
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef) and any(
                _is_training(file, dotted(base)) for base in node.bases
            ):
                yield node


def _is_training(file: SourceFile, name: str) -> bool:
    """Whether a name in a file denotes a class of the Trainer's arguments."""
    _, original = file.names.get(name, ("", name))
    return bool(TRAINING.search(original.rpartition(".")[2]))


def calls_of(files: Sequence[SourceFile]) -> Iterator[Maker]:
    """All calls in some files."""
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Call):
                yield file, node
