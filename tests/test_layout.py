"""The shape of the house: who may import whom, who prints, what is installed."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest
from stacks import ROOT

LAUNCHER = ROOT / "launcher"
LAYERS = {
    "values": {
        "attempt",
        "constraint",
        "estimate",
        "exit_code",
        "failure",
        "machine",
        "messages",
        "model",
        "options",
        "placement",
        "plan",
        "ranks",
        "preset",
        "record",
        "request",
        "saved",
        "settings",
        "signature",
        "streams",
        "workload",
    },
    "reasoning": {
        "activations",
        "adapters",
        "agreement",
        "allocation",
        "bounds",
        "budget",
        "calibrate",
        "catalogue_page",
        "catalogue_search",
        "cores",
        "cost",
        "deaths",
        "diagnose",
        "doubts",
        "explain",
        "hostfile",
        "inventory",
        "job",
        "lost_nodes",
        "macros",
        "memory",
        "pattern_text",
        "plan_report",
        "planning",
        "progress",
        "remedies",
        "resolve",
        "retries",
        "states",
        "suspects",
        "worker_count",
    },
    "edges": {
        "accelerate_config",
        "catalogue",
        "channel",
        "checkpoints",
        "conversion",
        "deepspeed_config",
        "detection",
        "documents",
        "evidence",
        "exports",
        "guards",
        "hook",
        "host",
        "joining",
        "journal",
        "leftovers",
        "lessons",
        "narrowing",
        "links",
        "local_rank",
        "misplaced",
        "logs",
        "memory_evidence",
        "named_presets",
        "output",
        "patterns",
        "peers",
        "preload",
        "afresh",
        "later_imports",
        "probes",
        "profiles",
        "readers",
        "remote",
        "remote_hosts",
        "scene",
        "schedulers",
        "script_imports",
        "shapes",
        "source",
        "ssh",
        "stopping",
        "stops",
        "store",
        "supervise",
        "suspicions",
        "terminal",
        "termination",
        "universal",
        "warm",
        "warm_server",
        "worker",
        "workers",
    },
    "session": {
        "closing",
        "follower",
        "nodes",
        "over_ssh",
        "postmortem",
        "preview",
        "restart",
        "session",
        "verdict",
    },
    "cli": {
        "__init__",
        "__main__",
        "cli",
        "cluster_options",
        "commands",
        "host_options",
        "output_options",
        "process_options",
        "templates",
        "wrap",
        "wrapped",
    },
}
ORDER = list(LAYERS)
LIGHT = {"values", "reasoning"}
MODULES = sorted(LAUNCHER.rglob("*.py"))


def room(path: Path) -> str:
    """The module, or the folder of modules, that a file belongs to."""
    return path.relative_to(LAUNCHER).parts[0].removesuffix(".py")


def layer(name: str) -> str:
    """The layer of a module."""
    return next(one for one, names in LAYERS.items() if name in names)


def imports(path: Path) -> list[tuple[str, bool, bool]]:
    """What a file imports: first part of the name, whether it is ours, whether at the top."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and ast.unparse(test.test) == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [(one.name.partition(".")[0], False, node in tree.body) for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            here = len(path.relative_to(LAUNCHER).parts)
            if node.level == 0:
                found.append((str(node.module).partition(".")[0], False, node in tree.body))
            elif node.level == here and node.module:
                found.append((node.module.partition(".")[0], True, node in tree.body))
            elif node.level == here:
                found += [(one.name, True, node in tree.body) for one in node.names]
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(LAUNCHER)))
def test_imports_go_one_way(path: Path) -> None:
    """Values <- reasoning <- edges <- session <- cli; values need the standard library alone."""
    own = layer(room(path))
    for name, is_ours, at_top in imports(path):
        if is_ours and name in {one for names in LAYERS.values() for one in names}:
            assert ORDER.index(layer(name)) <= ORDER.index(own), f"{path.name} imports {name}"
        elif not is_ours:
            assert name not in ("launcher", "presets", "hardware", "safe_launch")
            if own in LIGHT:
                assert name in sys.stdlib_module_names, f"{path.name} imports {name}"
            assert not (at_top and name in ("torch", "transformers", "deepspeed", "omegaconf"))


def test_every_module_has_a_layer_and_a_sentence() -> None:
    """A new module is put in its place, and says in its docstring's first line what it holds."""
    rooms = {room(path) for path in MODULES}
    assert rooms == {one for names in LAYERS.values() for one in names}
    for path in MODULES:
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        assert first.endswith((".", ":")), path


def test_one_module_prints() -> None:
    """`terminal` writes to the console; a worker may say what the interpreter would say."""
    for path in MODULES:
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
            and (
                ast.unparse(node.func) == "print"
                or ast.unparse(node.func) in ("sys.stdout.write", "sys.stderr.write")
            )
        ]
        if path.name != "terminal.py":
            assert len(calls) == (path.name == "worker.py"), path


def test_the_packages_are_those_that_are_there() -> None:
    """The explicit list in pyproject.toml matches the folders."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    roots = {"launcher": "safe_launch", "presets": "safe_launch.presets"}
    roots |= {"hardware": "safe_launch.hardware", "scripts": "safe_launch.scripts"}
    there = {
        ".".join([package, *path.parent.relative_to(ROOT / folder).parts])
        for folder, package in roots.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert set(project["packages"]) == there


def test_no_module_is_a_hall() -> None:
    """Most rooms are small, and none has more than 350 lines."""
    sizes = sorted(len(path.read_text().splitlines()) for path in MODULES)
    assert sizes[-1] <= 350
    assert sizes[len(sizes) // 2] <= 150


def test_every_workings_document_is_true() -> None:
    """docs/architecture.md names every module."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name in {one for names in LAYERS.values() for one in names} - {"__init__", "__main__"}:
        assert f"`{name}" in text, name
