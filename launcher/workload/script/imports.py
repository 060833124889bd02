"""What a script imports before anything else of it is done, found from its syntax tree."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HARMLESS = {
    *("bool", "dict", "float", "getattr", "hasattr", "int", "len", "list", "open", "print", "set"),
    *("str", "tuple", "argparse", "collections", "datetime", "functools", "json", "logging", "np"),
    *("numpy", "os", "pathlib", "Path", "random", "re", "sys", "time", "torch", "typing", "uuid"),
    "warnings",
}
"""What may be called between two imports without a consequence for the later one: the first part of
a name. What changes the environment is told apart."""
WRITERS = {
    *(f"os.environ.{one}" for one in ("clear", "pop", "popitem", "setdefault", "update")),
    *("os.environ.__setitem__", "os.putenv", "os.unsetenv"),
}
"""What changes the environment when it is called."""
FINDERS = ("sys.path", "sys.modules", "sys.meta_path")
"""What says where a module is found: another one of the same name may be meant afterwards."""
MEETING = "torch.distributed"
"""Where workers meet: one that has can't begin once more for what it sets afterwards."""
SEEDS = ("seed", "manual_seed", "manual_seed_all")
"""What begins a sequence of random numbers, of which a later import may draw some."""
BEHIND = ("sys.path.append", "sys.path.extend")
"""What is found before is still found first."""
FIRST = "unsloth"
"""A module that wants to be imported before all others, since it changes them."""
RANKED = ("swift",)
"""Packages that look up a worker's own rank when they are imported, ms-swift's: known, so that
nobody has to find out. What follows may have to come after them."""
STANDARD = ("frozen", "built-in", sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
"""How the files of Python's own modules begin."""


@dataclass(frozen=True, slots=True)
class Import:
    """An installed module that the script imports.

    Attributes:
        module: its name.
        names: what is taken from it.
        line: line of the script at which that happens, also where a module of the user's does it.
    """

    module: str
    names: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that the script sets to a text before it imports something.

    Attributes:
        name: of the variable.
        value: its text.
        is_default: only where nobody has set it.
    """

    name: str
    value: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """A call of `warnings.filterwarnings` or `simplefilter`.

    Attributes:
        function: which of the two.
        arguments: positional.
        keywords: by name; only plain values.
    """

    function: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)


Step = Import | Variable | Filter
"""What the script does before its own work."""
Steps = Generator[Step, None, bool]
"""Steps in their order; its result says whether later imports depend on what can't be known."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands.

    Attributes:
        package: of the file, for relative imports.
        line: of the script, where the file is a module of the user's; None in the script itself.
        visited: files and functions that were looked at already.
        functions: bodies of those that the file defines, by name.
    """

    package: str
    line: int | None
    visited: set[object]
    functions: dict[str, list[ast.stmt]] = field(default_factory=dict)


def steps(script: str) -> Steps:
    """What the file does up to the first statement whose consequences can't be known.

    Modules of the user's own are looked into, since importing one runs the user's code.

    Args:
        script: its path; its folder is on `sys.path`.
    """
    if any(FIRST in one for one in sys.argv):
        return True
    return (yield from _file(Path(script), _Place("", None, set())))


def module_steps(name: str) -> Steps:
    """As `steps`, of what `python -m name` runs; the folder it is found in is on `sys.path`."""
    if any(FIRST in one for one in sys.argv):
        return True
    first, *rest = name.split(".")
    spec = PathFinder.find_spec(first)
    if spec is None or spec.origin is None or first in RANKED:
        return True
    top = Path(spec.origin)
    place = _Place("", None, set())
    if is_installed(spec.origin):
        yield Import(name.rpartition(".")[0] or name, (), 1)
        with suppress(ImportError, ValueError, AttributeError):
            spec = find_spec(name)
            if spec is not None and spec.submodule_search_locations is not None:
                yield Import(name, (), 1)
                spec = find_spec(f"{name}.__main__")
        origin, parent = (None, None) if spec is None else (spec.origin, spec.parent)
        if origin is None:
            return True
        return (yield from _file(Path(origin), replace(place, package=parent or "")))
    folder = top.parent
    if spec.submodule_search_locations is None:
        return (yield from _file(top, place))
    for depth, part in enumerate(["", *rest]):
        folder = folder / part
        package = ".".join([first, *rest[:depth]])
        if (folder / "__init__.py").is_file():
            inner = _Place(package, 1, place.visited)
            if (yield from _file(folder / "__init__.py", inner)):
                return True
    is_package = folder.is_dir()
    last = folder / "__main__.py" if is_package else folder.with_suffix(".py")
    package = name if is_package else name.rpartition(".")[0]
    return (yield from _file(last, replace(place, package=package)))


def is_installed(path: str | None) -> bool:
    """Whether a module's file, or None for one without, is Python's own or an installed one."""
    return path is None or "-packages" in path or path.startswith(STANDARD)


def _file(path: Path, place: _Place) -> Steps:
    if path in place.visited:
        return False
    place.visited.add(path)
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return True
    own = {one.name: one.body for one in tree.body if isinstance(one, ast.FunctionDef)}
    return (yield from _statements(tree.body, replace(place, functions=own)))


def _statements(body: Sequence[ast.stmt], place: _Place) -> Steps:
    for node in body:
        if (yield from _statement(node, place)):
            return True
    return False


def _statement(node: ast.stmt, place: _Place) -> Steps:
    line = place.line or node.lineno
    match node:
        case ast.Import(names=names):
            for alias in names:
                if (yield from _import(alias.name, (), place, line)):
                    return True
            return False
        case ast.ImportFrom(module=module, names=names, level=level):
            parents = place.package.split(".")[: -(level - 1) or None] if level else []
            name = ".".join(filter(None, [*parents, module]))
            taken = tuple(alias.name for alias in names if alias.name != "*")
            if not name or name == "__future__":
                return not name
            return (yield from _import(name, taken, place, line))
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return (yield from _statements(node.orelse, place))
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return place.line is None and (yield from _statements(node.body, place))
        case ast.If():
            return any(_writes_environment(one) for one in ast.walk(node))
        case ast.Try(body=inner, orelse=after):
            return (yield from _statements([*inner, *after], place))
        case ast.Assign(targets=[ast.Subscript(value=where, slice=ast.Constant(value=str(name)))]):
            if _dotted(where) == "os.environ" and isinstance(node.value, ast.Constant):
                yield Variable(name, str(node.value.value), is_default=False)
                return False
            return True
        case ast.Assign(targets=targets):
            # What is put into another module may be taken from there by a later import.
            is_own = all(isinstance(one, ast.Name | ast.Tuple) for one in targets)
            return not is_own or not _is_harmless(node.value)
        case ast.AnnAssign(target=ast.Name(), value=value):
            return value is not None and not _is_harmless(value)
        case ast.Expr(value=ast.Call() as call):
            return (yield from _call(call, place, line))
        case ast.Expr() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return False
        case ast.Pass() | ast.Assert():
            return False
        case _:
            return True


def _call(call: ast.Call, place: _Place, line: int) -> Steps:
    """A call that is a statement; a function of the same file is looked into."""
    name = _dotted(call.func)
    visit = (name, id(place.functions))
    if name in place.functions.keys() - HARMLESS and visit not in place.visited:
        place.visited.add(visit)
        return (yield from _statements(place.functions[name], replace(place, line=line)))
    try:
        arguments = [ast.literal_eval(one) for one in call.args]
        keywords = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}
    except ValueError:
        return not _is_harmless(call)
    if name == "os.environ.setdefault" and len(arguments) == 2:
        yield Variable(str(arguments[0]), str(arguments[1]), is_default=True)
        return False
    if name in ("warnings.filterwarnings", "warnings.simplefilter"):
        yield Filter(name.partition(".")[2], tuple(arguments), keywords)
    return not _is_harmless(call)


def _is_harmless(value: ast.expr) -> bool:
    """Whether no call in an expression can have a consequence for a later import."""
    calls = [one for one in ast.walk(value) if isinstance(one, ast.Call)]
    names = [_dotted(one.func) for one in calls]
    return all(
        name in BEHIND
        or (
            name.partition(".")[0] in HARMLESS
            and name.rpartition(".")[2] not in SEEDS
            and not name.startswith((*FINDERS, MEETING))
        )
        for name in names
    ) and not any(map(_writes_environment, calls))


def _import(name: str, taken: tuple[str, ...], place: _Place, line: int) -> Steps:
    """An installed module as it is; one of the user's own by what it imports in turn."""
    first, *rest = name.split(".")
    if first in RANKED:
        return True
    try:
        spec = None if first in sys.builtin_module_names else PathFinder.find_spec(first)
    except (ImportError, ValueError):
        return True
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    origin = spec.origin if spec is not None else None
    if is_installed(origin or (folders[0] if folders else None)):
        yield Import(name, taken, line)
        return False
    files = [] if origin is None else [(Path(origin), first if folders else "")]
    for folder in folders[:1]:
        place_of = Path(folder)
        for part in rest:
            place_of = place_of / part
            files += _module_files(place_of, ".".join([first, *rest]))
        for one in taken:
            files += _module_files(place_of / one, name)
    for path, package in files:
        inner = _Place(package, line, place.visited)
        if path.is_file() and (yield from _file(path, inner)):
            return True
    return False


def _module_files(stem: Path, package: str) -> list[tuple[Path, str]]:
    """The files that a module's name may stand for, each with the package that it belongs to."""
    return [
        (stem / "__init__.py", package),
        (stem.with_suffix(".py"), package.rpartition(".")[0] or package),
    ]


def _dotted(node: ast.expr) -> str:
    """The name that an expression of names and attributes spells; empty for any other."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            head = _dotted(value)
            return f"{head}.{name}" if head else ""
    return ""


def _writes_environment(node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=targets):
            return any("environ" in ast.unparse(one) for one in targets)
        case ast.Call(func=function):
            return ast.unparse(function) in WRITERS
    return False
