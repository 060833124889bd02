"""Recognizes calls between two imports that can't affect the later import."""

from __future__ import annotations

import ast

HARMLESS = (
    {"bool", "dict", "float", "int", "list", "set", "str", "tuple"}
    | {"getattr", "hasattr", "len", "open", "print"}
    | {"argparse", "collections", "datetime", "functools", "json", "logging", "os", "pathlib"}
    | {"Path", "random", "re", "sys", "time", "typing", "uuid", "warnings"}
    | {"np", "numpy", "torch"}
)
"""First part of the names of calls without an effect on later imports. Calls that change the
environment are in `WRITERS`."""
WRITERS = {
    "os.environ.clear",
    "os.environ.pop",
    "os.environ.popitem",
    "os.environ.setdefault",
    "os.environ.update",
    "os.environ.__setitem__",
    "os.putenv",
    "os.unsetenv",
}
"""Calls that change the environment."""
FINDERS = ("sys.path", "sys.modules", "sys.meta_path")
"""Names that affect where modules are found: afterwards a name may mean another module."""
COLLECTIVES = "torch.distributed"
"""Prefix of calls after which a worker can't be re-executed for an environment variable."""
SEEDS = ("seed", "manual_seed", "manual_seed_all")
"""Calls that seed a random generator, which a later import may use."""
SEARCHED_LAST = ("sys.path.append", "sys.path.extend")
"""Calls that don't affect where installed modules are found."""


def is_harmless(value: ast.expr) -> bool:
    """Whether no call in an expression can affect a later import."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    return all(
        _is_harmless_name(dotted(call.func)) and not writes_environment(call) for call in calls
    )


def _is_harmless_name(name: str) -> bool:
    """Whether a call of that name can't affect a later import."""
    return name in SEARCHED_LAST or (
        name.partition(".")[0] in HARMLESS
        and name.rpartition(".")[2] not in SEEDS
        and not name.startswith((*FINDERS, COLLECTIVES))
    )


def dotted(node: ast.expr) -> str:
    """The name that an expression of names and attributes spells; empty for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            head = dotted(value)
            return f"{head}.{name}" if head else ""
    return ""


def writes_environment(node: ast.AST) -> bool:
    """Whether a statement or call changes the environment."""
    match node:
        case ast.Assign(targets=targets):
            return any("environ" in ast.unparse(target) for target in targets)
        case ast.Call(func=function):
            return ast.unparse(function) in WRITERS
    return False
