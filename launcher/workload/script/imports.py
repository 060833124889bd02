"""Finds a script's imports before its own work, from its syntax tree.

The search ends at the first statement that may affect a later import (`Unknowable`).
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...system import regular_files
from .calls import HARMLESS, dotted, is_harmless, writes_environment

FIRST = "unsloth"
"""A module that must be imported before all others, which it patches."""
READ_RANK = ("swift",)
"""Packages that read the rank on import (ms-swift's). Later imports of the script may have to stay
after them."""
STANDARD = ("frozen", "built-in", sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
"""Prefixes of the files of Python's own modules."""


@dataclass(frozen=True, slots=True)
class Import:
    """An installed module that the script imports.

    Attributes:
        names: names imported from it.
        line: line of the script that causes the import, directly or through a user's module.
    """

    module: str
    names: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that the script sets to a literal before an import."""

    name: str
    value: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """A call of `warnings.filterwarnings` or `simplefilter`."""

    function: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)


Step = Import | Variable | Filter
"""A step of the script before its own work."""


class Unknowable(Exception):  # noqa: N818 - it isn't an error: the search ends here
    """Raised where the effect of later imports is unknown without running the script."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a statement.

    Attributes:
        package: the file's package, for relative imports.
        line: line of the script, if the file is a user's module; None in the script itself.
        visited: files and functions already searched.
        functions: bodies of the file's functions, by name.
    """

    package: str
    line: int | None
    visited: set[object]
    functions: dict[str, list[ast.stmt]] = field(default_factory=dict)


def steps(script: str) -> Iterator[Step]:
    """The steps of a file up to the first statement with unknown effects.

    The user's own modules are searched too, since importing them runs the user's code. The script's
    folder is on `sys.path`.
    """
    with suppress(Unknowable):
        _refuse_first(script)
        yield from _file(Path(script), _Place("", None, set()))


def module_steps(name: str) -> Iterator[Step]:
    """The steps of `python -m name`; the folder with the module is on `sys.path`."""
    with suppress(Unknowable):
        _refuse_first(name)
        first = name.partition(".")[0]
        spec = PathFinder.find_spec(first)
        if spec is None or spec.origin is None or first in READ_RANK:
            return
        place = _Place("", None, set())
        if is_installed(spec.origin):
            yield from _installed_module(name, place)
        elif spec.submodule_search_locations is None:
            yield from _file(Path(spec.origin), place)
        else:
            yield from _users_module(name, Path(spec.origin).parent, place)


def _refuse_first(target: str) -> None:
    """Ends the search if the command line names a module that must be imported first."""
    if any(FIRST in word for word in (target, *sys.argv)):
        raise Unknowable


def _installed_module(name: str, place: _Place) -> Iterator[Step]:
    """Imports of an installed module's parent packages, then the steps of its file."""
    yield Import(name.rpartition(".")[0] or name, (), 1)
    spec = None
    with suppress(ImportError, ValueError, AttributeError):
        spec = find_spec(name)  # imports the parent packages, so not earlier
        if spec is not None and spec.submodule_search_locations is not None:
            yield Import(name, (), 1)
            spec = find_spec(f"{name}.__main__")
    if spec is not None and spec.origin is not None:
        yield from _file(Path(spec.origin), replace(place, package=spec.parent or ""))


def _users_module(name: str, folder: Path, place: _Place) -> Iterator[Step]:
    """Steps of a user's module, parent packages first."""
    first, *rest = name.split(".")
    for depth, part in enumerate(["", *rest]):
        folder = folder / part
        if (folder / "__init__.py").is_file():
            package = ".".join([first, *rest[:depth]])
            yield from _file(folder / "__init__.py", _Place(package, 1, place.visited))
    is_package = folder.is_dir()
    last = folder / "__main__.py" if is_package else folder.with_suffix(".py")
    package = name if is_package else name.rpartition(".")[0]
    yield from _file(last, replace(place, package=package))


def is_installed(path: str | None) -> bool:
    """Whether a module's file is installed or Python's; None for modules without a file."""
    return path is None or "-packages" in path or path.startswith(STANDARD)


def _file(path: Path, place: _Place) -> Iterator[Step]:
    if path in place.visited:
        return
    place.visited.add(path)
    try:
        tree = ast.parse(regular_files.read(path))
    except (OSError, SyntaxError, ValueError, RecursionError):
        raise Unknowable from None
    functions = {node.name: node.body for node in tree.body if isinstance(node, ast.FunctionDef)}
    yield from _statements(tree.body, replace(place, functions=functions))


def _statements(body: Sequence[ast.stmt], place: _Place) -> Iterator[Step]:
    for node in body:
        yield from _statement(node, place)


def _statement(node: ast.stmt, place: _Place) -> Iterator[Step]:
    line = place.line or node.lineno
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield from _import(alias.name, (), place, line)
        case ast.ImportFrom(module="__future__"):
            pass
        case ast.ImportFrom(module=module, names=names, level=level):
            parents = place.package.split(".")[: -(level - 1) or None] if level else []
            name = ".".join(filter(None, [*parents, module]))
            taken = tuple(alias.name for alias in names if alias.name != "*")
            _require(bool(name))
            yield from _import(name, taken, place, line)
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            yield from _statements(node.orelse, place)
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            if place.line is None:
                yield from _statements(node.body, place)
        case ast.If():
            _require(not any(map(writes_environment, ast.walk(node))))
        case ast.Try(body=inner, orelse=after):
            yield from _statements([*inner, *after], place)
        case ast.Assign(targets=[ast.Subscript(value=where, slice=ast.Constant(value=str(name)))]):
            _require(dotted(where) == "os.environ" and isinstance(node.value, ast.Constant))
            yield Variable(name, str(ast.literal_eval(node.value)), is_default=False)
        case ast.Assign(targets=targets):
            # A later import may read values stored in another module.
            _require(all(isinstance(target, ast.Name | ast.Tuple) for target in targets))
            _require(is_harmless(node.value))
        case ast.AnnAssign(target=ast.Name(), value=value):
            _require(value is None or is_harmless(value))
        case ast.Expr(value=ast.Call() as call):
            yield from _call(call, place, line)
        case ast.Expr() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            pass
        case ast.Pass() | ast.Assert():
            pass
        case _:
            raise Unknowable


def _require(condition: object) -> None:
    """Ends the search if the condition doesn't hold."""
    if not condition:
        raise Unknowable


def _call(call: ast.Call, place: _Place, line: int) -> Iterator[Step]:
    """The steps of a call that is a statement; a function of the same file is searched."""
    name = dotted(call.func)
    visit = (name, id(place.functions))
    if name in place.functions.keys() - HARMLESS and visit not in place.visited:
        place.visited.add(visit)
        yield from _statements(place.functions[name], replace(place, line=line))
        return
    try:
        arguments = [ast.literal_eval(argument) for argument in call.args]
        keywords = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    except ValueError:  # some aren't plain values
        _require(is_harmless(call))
        return
    if name == "os.environ.setdefault" and len(arguments) == 2:
        yield Variable(str(arguments[0]), str(arguments[1]), is_default=True)
        return
    if name in ("warnings.filterwarnings", "warnings.simplefilter"):
        yield Filter(name.partition(".")[2], tuple(arguments), keywords)
    _require(is_harmless(call))


def _import(name: str, taken: tuple[str, ...], place: _Place, line: int) -> Iterator[Step]:
    """The import of an installed module, or the steps of a user's own module."""
    first, *rest = name.split(".")
    _require(first not in READ_RANK)
    try:
        spec = None if first in sys.builtin_module_names else PathFinder.find_spec(first)
    except (ImportError, ValueError):
        raise Unknowable from None
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    origin = spec.origin if spec is not None else None
    if is_installed(origin or (folders[0] if folders else None)):
        yield Import(name, taken, line)
        return
    files = [] if origin is None else [(Path(origin), first if folders else "")]
    for folder in map(Path, folders[:1]):
        for part in rest:
            folder = folder / part
            files += _module_files(folder, ".".join([first, *rest]))
        for submodule in taken:
            files += _module_files(folder / submodule, name)
    for path, package in files:
        if path.is_file():
            yield from _file(path, _Place(package, line, place.visited))


def _module_files(stem: Path, package: str) -> list[tuple[Path, str]]:
    """The possible files of a module, each with its package."""
    return [
        (stem / "__init__.py", package),
        (stem.with_suffix(".py"), package.rpartition(".")[0] or package),
    ]
