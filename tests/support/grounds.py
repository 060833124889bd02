"""What a training or a slow launch in the tests hangs on: digests of code, data and versions.

Code is found by its imports, from where a process begins: what a worker runs, what a launch runs.
What nothing imports by name, as it may be hooked by a string, counts for all.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from itertools import chain
from pathlib import Path

import grimp
from safe_launch.commands.registry import COMMANDS

from support.stacks import CURRENT, OLDER, RELEASING, ROOT, TORCH_2_6, Stack

WORKER = "safe_launch.worker_entry"
LAUNCH = (
    *("safe_launch.__main__", "safe_launch.cli", "safe_launch.inner_launch", WORKER),
    *("safe_launch.commands.hook.sitecustomize", "safe_launch.commands.launch"),
    "safe_launch.conversion",
)
"""Where the processes of a launch begin."""
TABLED = {name: f"safe_launch.commands.{name}" for name in COMMANDS}
"""Commands are imported by string, but only for who types their names."""
OF_ALL = ("scripts/environment", "tests/conftest.py")
OF_LAUNCHES = (
    *("tests/scenarios", "tests/programs", "tests/standins", "examples", "hardware", "presets"),
    *("benchmarks/device", "benchmarks/launch", "benchmarks/memory", "scripts/device-check"),
)
"""What launches are made of beside code. A known failure counts if it forbids something; how the
others are diagnosed is judged by the records that are kept."""
PARSED = (
    *("launcher/", "tests/support/", "tests/training/", "tests/conftest.py", "benchmarks/"),
    *("tests/clusters", "tests/commands", "tests/processes"),
)
"""Code whose docstrings and line breaks change no result. A script's line numbers are results."""
VERSIONED = (
    *("accelerate", "deepspeed", "numpy", "peft", "safetensors", "tokenizers", "torch"),
    "transformers",
)
STACKS = (CURRENT, RELEASING, OLDER, TORCH_2_6)


@cache
def graph() -> grimp.ImportGraph:
    """Who imports whom in the launcher and the tests' support, also within functions."""
    return grimp.build_graph("safe_launch", "support", cache_dir=None)


class Grounds:
    """The digests of a checkout, each computed once; the graph is that of the installed code."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._tests: dict[str, tuple[str, str]] = {}

    def of_reproduction(self, script: str, stack: Stack) -> str:
        """What a reproduction hangs on that no launcher runs.

        Args:
            script: its path in the checkout.
            stack: the versions that it runs on.
        """
        own = self._digest((script, *self._named_in(script), *self._reproducing))
        return f"own:{own} code:{self._worker} versions:{versions((stack,))}"

    def of_launch(self, test: str, stacks: Iterable[Stack] = STACKS, script: str = "") -> str:
        """What a test hangs on that launches.

        Args:
            test: the path of its module in the checkout.
            stacks: the versions that it runs on.
            script: a script of its own.
        """
        if test not in self._tests:
            self._tests[test] = self._of_test(test)
        own, code = self._tests[test]
        own += self._digest([script]) if script else ""
        return f"own:{own} code:{code} versions:{versions(tuple(stacks))} worker:{self._worker}"

    def of_all(self, test: str) -> str:
        """What a test hangs on that may run any command.

        Args:
            test: the path of its module in the checkout.
        """
        own = self._digest((test, *self._support(*self._supporting(test)), *OF_ALL))
        return f"own:{own} code:{self._all} versions:{versions(STACKS)} worker:{self._worker}"

    def _of_test(self, test: str) -> tuple[str, str]:
        """Digests of a test with its support, and of what it launches."""
        text, modules = self._text(test), self._supporting(test)
        typed = [module for name, module in TABLED.items() if f'"{name}"' in text]
        code = f"{self._launch}{self._digest(self._reached(*typed)) if typed else ''}"
        return self._digest((test, *self._support(*modules), *OF_ALL)), code

    def _supporting(self, test: str) -> list[str]:
        """Names that a test imports from its support."""
        pattern = r"^from support(?:\.(\w+))? import (.*)"
        names = re.findall(pattern, self._text(test), re.MULTILINE)
        return re.findall(r"\w+", " ".join(chain(*names)))

    @cached_property
    def _all(self) -> str:
        return self._digest(("launcher", *OF_LAUNCHES))

    @cached_property
    def _reproducing(self) -> list[str]:
        return [*self._support("reproduce"), *OF_ALL]

    @cached_property
    def _worker(self) -> str:
        return self._digest(self._reached(WORKER, *self._unplaced))

    @cached_property
    def _launch(self) -> str:
        return self._digest((*self._reached(*LAUNCH, *self._unplaced), *OF_LAUNCHES))

    @cached_property
    def _unplaced(self) -> list[str]:
        """Modules of the launcher that nothing imports by name, and no process begins with."""
        return [
            module
            for module in graph().modules
            if module.startswith("safe_launch.")
            and not graph().find_modules_that_directly_import(module)
            and not self._path_of(module).endswith("__init__.py")
            and module not in {*TABLED.values(), *LAUNCH}
        ]

    def _reached(self, *roots: str) -> list[str]:
        """The files of modules and of all that they import, also within functions."""
        reached = set(roots).union(*map(graph().find_upstream_modules, roots))
        packages = {name[: place.start()] for name in reached for place in re.finditer(r"\.", name)}
        return [self._path_of(name) for name in {*reached, *packages}]

    def _support(self, *names: str) -> list[str]:
        """The files of modules of `tests/support`, and of those of it that they import."""
        known = {f"support.{name}" for name in names} & graph().modules
        reached = known.union(*map(graph().find_upstream_modules, known))
        return [self._path_of(name) for name in reached if name.startswith("support.")]

    def _path_of(self, module: str) -> str:
        package, _, rest = module.partition(".")
        path = Path({"safe_launch": "launcher", "support": "tests/support"}[package])
        path = path.joinpath(*rest.split(".")) if rest else path
        is_package = (self._root / path).is_dir()
        return str(path / "__init__.py" if is_package else path.with_suffix(".py"))

    def _named_in(self, script: str) -> Iterator[str]:
        """The modules beside a script that it imports."""
        for node in ast.walk(ast.parse(self._text(script))):
            named = [node.module] if isinstance(node, ast.ImportFrom) else []
            named += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            for name in filter(None, named):
                beside = Path(script).with_name(f"{name}.py")
                if (self._root / beside).exists():
                    yield str(beside)

    def _text(self, path: str) -> str:
        return (self._root / path).read_text(errors="replace")

    def _digest(self, paths: Iterable[str]) -> str:
        """Of files, and of those in folders, by their contents."""
        total = hashlib.sha256()
        files = {file for path in paths for file in self._files(self._root / path)}
        for file in sorted(files):
            name, content = str(file.relative_to(self._root)), file.read_bytes()
            is_code = name.startswith(PARSED) and file.suffix == ".py"
            total.update(f"{name}\n".encode() + (statements(content) if is_code else content))
        return total.hexdigest()[:12]

    def _files(self, path: Path) -> Iterator[Path]:
        if not path.is_dir():
            yield path
            return
        for file in path.rglob("*"):
            is_source = file.is_file() and "__pycache__" not in file.parts
            is_made = file.name == "failures.json"  # of the entries, which count themselves
            is_left = file.parent.name == "failures" and is_idle(file)
            if is_source and not is_made and not is_left:
                yield file


@cache
def statements(code: bytes) -> bytes:
    """Code without what no run depends on: comments, docstrings, line breaks."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not is_docstring(each)]
    return ast.dump(tree).encode()


def is_docstring(statement: ast.stmt) -> bool:
    """Whether it is a string by itself, of a module, class, function or attribute."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def is_idle(entry: Path) -> bool:
    """Whether a known failure forbids nothing, so that no plan hangs on it."""
    return entry.suffix == ".md" and "\nforbids:" not in entry.read_text()


@cache
def versions(stacks: tuple[Stack, ...]) -> str:
    """A digest of what is installed in environments, of the packages that results hang on."""
    found = set()
    for stack in stacks:
        places = [*stack.packages, *(stack.bin.parent / "lib").glob("python*/site-packages")]
        for place in places:
            for info in place.glob("*.dist-info"):
                package, _, version = info.name.removesuffix(".dist-info").partition("-")
                if package in VERSIONED:
                    found.add(f"{stack.name} {place.parent.name} {package} {version}")
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()[:12]
