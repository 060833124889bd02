"""A script's first imports, read without running it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from safe_launch.workload.script.calls import is_harmless
from safe_launch.workload.script.imports import Filter, Import, Step, Variable, module_steps, steps
from support.tables import table


def found(text: str, tmp_path: Path) -> list[Step]:
    """The steps of a script."""
    (tmp_path / "script.py").write_text(text)
    return list(steps(str(tmp_path / "script.py")))


@table(
    ("text", "expected"),
    [
        ("'''doc'''\nimport json, yaml\n", [Import("json", (), 2), Import("yaml", (), 2)]),
        ("from yaml import safe_load as a, dump\n", [Import("yaml", ("safe_load", "dump"), 1)]),
        ("try:\n    import yaml\nexcept ImportError:\n    import json\n", [Import("yaml", (), 2)]),
        ("if TYPE_CHECKING:\n    import yaml\nimport json\n", [Import("json", (), 3)]),
        ("if a():\n    import yaml\nimport json\n", [Import("json", (), 3)]),
        ("def f():\n    import yaml\n", []),
        ("if __name__ == '__main__':\n    import yaml\n", [Import("yaml", (), 2)]),
        ("patch()\nimport yaml\n", []),
        ("import json\njson.dumps = 1\nimport yaml\n", [Import("json", (), 1)]),
        ("print(1)\nlogging.info('a')\nimport yaml\n", [Import("yaml", (), 3)]),
        ("os.environ['A'] = x()\nimport yaml\n", []),
        ("if x:\n    os.environ['A'] = '1'\nimport yaml\n", []),
        ("os.environ['A'] = '1'\n", [Variable("A", "1", False)]),
        ("warnings.filterwarnings('ignore')\n", [Filter("filterwarnings", ("ignore",))]),
        ("import nowhere_to_be_found\n", [Import("nowhere_to_be_found", (), 1)]),
        ("x = patched()\nimport yaml\n", []),
        ("sys.path.insert(0, 'vendored')\nimport yaml\n", []),
        ("torch.distributed.init_process_group()\nimport yaml\n", []),
        ("torch.manual_seed(0)\nimport yaml\n", []),
        ("from swift.pipelines import sft_main\nimport yaml\n", []),
        ("sys.path.append('..')\nimport yaml\n", [Import("yaml", (), 2)]),
        ("def main():\n    import yaml\nmain()\n", [Import("yaml", (), 3)]),
        ("def main():\n    patch()\nimport json\nmain()\nimport yaml\n", [Import("json", (), 3)]),
        ("try:\n    patch()\nexcept E:\n    pass\nimport yaml\n", []),
        ("import json\nwhile True:\n    break\nimport yaml\n", [Import("json", (), 1)]),
        ("x: int = patched()\nimport yaml\n", []),
        ("del sys.modules['json']\nimport yaml\n", []),
        ("os.environ.setdefault('A', '1')\n", [Variable("A", "1", True)]),
        ("os.environ.setdefault('A', x)\nimport yaml\n", []),
        ("this is no Python", []),
    ],
)
def test_what_a_script_does_first(tmp_path: Path, text: str, expected: list[Step]) -> None:
    """Imports in order, up to a line that may affect a later import."""
    assert found(text, tmp_path) == expected


def test_the_users_own_modules_are_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the script's line, as lines in modules don't show the order."""
    (tmp_path / "own").mkdir()
    texts = {
        "__init__": "import json\nfrom .data import x\n",
        "data": "import yaml\nfrom . import other\n",
        "other": "import csv\n",
        "__main__": "import zipfile\nfrom own.data import x\n",
    }
    for name, text in texts.items():
        (tmp_path / "own" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    expected = [Import("json", (), 2), Import("yaml", (), 2), Import("csv", (), 2)]
    assert found("import sys\nimport own\n", tmp_path)[1:] == expected
    (first, *rest) = list(module_steps("own"))
    assert first == Import("json", (), 1)
    assert Import("zipfile", (), 1) in rest


def test_what_cant_be_known_in_a_module_of_the_users_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any imports, at any depth."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "outer.py").write_text("import json\nimport inner\nimport csv\n")
    (tmp_path / "inner.py").write_text("import yaml\npatch()\nimport zipfile\n")
    expected = [Import("json", (), 1), Import("yaml", (), 1)]
    assert found("import outer\nimport xml\n", tmp_path) == expected


def test_a_module_that_is_run_comes_after_the_packages_that_hold_it() -> None:
    """This is Python's order; a missing module ends the search."""
    first, *_ = module_steps("json.tool")
    assert first == Import("json", (), 1)
    assert list(module_steps("nowhere_to_be_found")) == []
    assert list(module_steps("swift.cli.sft")) == []


def test_nothing_is_imported_before_what_wants_to_be_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arguments name it, for example as a framework's backend."""
    monkeypatch.setattr(sys, "argv", ["train.py", "--backend=unsloth"])
    assert found("import yaml\n", tmp_path) == []
    assert list(module_steps("json.tool")) == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + len(x)", True),
        ("torch.device('cpu')", True),
        ("patched(1)", False),
        ("[patched(x) for x in y]", False),
        ("torch.manual_seed(0)", False),
        ("sys.path.append('x')", True),
        ("sys.path.insert(0, 'x')", False),
        ("os.environ.pop('A')", False),
        ("os.environ.get('A')", True),
        ("torch.distributed.init_process_group()", False),
        ("f()()", False),
    ],
)
def test_which_expressions_have_no_consequence_for_an_import(
    expression: str, expected: bool
) -> None:
    """All calls are of known names without patches, seeds or path changes."""
    assert is_harmless(ast.parse(expression, mode="eval").body) == expected
