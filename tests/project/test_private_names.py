"""Other packages' private names are used through one module only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stacks import ROOT

LAUNCHER = ROOT / "launcher"
MODULES = sorted(set(LAUNCHER.rglob("*.py")) - {LAUNCHER / "core" / "private_names.py"})
DOCUMENTED = {"os._exit", "sys._getframe", "row._value_", "setting._value_"}
"""Names in the standard library's documentation, underscore or not."""
PRIVATE = re.compile(r"^(\w+\.)*_[A-Za-z]\w*(\.\w+)*$")
BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "import_module", "wrap_function_wrapper"}


def typing_alone(node: ast.AST) -> Iterator[ast.AST]:
    """The parts for type checkers only: annotations and their imports."""
    if isinstance(node, ast.arg) and node.annotation is not None:
        yield from ast.walk(node.annotation)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        for statement in node.body:
            yield from ast.walk(statement)


def uses(path: Path) -> Iterator[str]:
    """The private names of other packages in a module, by its syntax."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.startswith("_")
    } | {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls")
    }
    unread = {id(part) for node in ast.walk(tree) for part in typing_alone(node)}
    for node in ast.walk(tree):
        found = ""
        if isinstance(node, ast.Attribute) and not node.attr.startswith("__"):
            found = ast.unparse(node) if node.attr.startswith("_") and node.attr not in own else ""
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported = (f"{node.module}.{alias.name}" for alias in node.names)
            found = next(filter(PRIVATE.match, imported), "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_NAME:
            texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
            found = next((one for one in map(str, texts) if PRIVATE.match(one)), "")
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "HOOKED":
            texts = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
            found = next((one for one in map(str, texts) if PRIVATE.match(one)), "")
        if found and found not in DOCUMENTED and id(node) not in unread:
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {found}"


@pytest.mark.parametrize(
    "line",
    [
        "from torch._C import _WorkerServer",
        "import os; os._Environ()",
        "engine._config.load_universal_checkpoint",
        'getattr(config, "_attn_implementation", "")',
        'wrapt.wrap_function_wrapper(module, "Trainer._inner_training_loop", loop)',
        'HOOKED = ("torch._dynamo.eval_frame",)',
    ],
)
def test_such_a_use_is_seen(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every form of use that the launcher once had is found."""
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "module.py").write_text(line)
    assert len(list(uses(tmp_path / "module.py"))) == 1


def test_private_names_are_used_by_way_of_their_list() -> None:
    """All names that a new version may lack are in one place."""
    assert [use for path in MODULES for use in uses(path)] == []
