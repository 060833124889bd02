"""The layout: its map, printing, and packaging. import-linter checks imports."""

from __future__ import annotations

import ast
import re
import tomllib

import grimp
from safe_launch.commands.registry import COMMANDS
from support.stacks import ROOT

LAUNCHER = ROOT / "launcher"
MODULES = sorted(LAUNCHER.rglob("*.py"))
FOLDERS = {path.parent.name for path in LAUNCHER.glob("*/__init__.py")}
ROW = re.compile(r"^\|[^|]*\| `([a-z_]+)/` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
"""A row of the map: the folder, its contents, its imports."""
ARROWS = (r"(\w*) ?-+([a-z]+)-+>(?= (\w+))", r"(\w+) <-+([a-z]+)-+(?= (\w+))")
"""Arrows of the drawing: a value, the folder, another value."""


def test_the_map_is_the_house() -> None:
    """The architecture page lists every folder with its actual imports."""
    graph = grimp.build_graph("safe_launch")
    rows = ROW.findall((ROOT / "docs" / "design" / "architecture.md").read_text())
    assert {folder for folder, _ in rows} == FOLDERS
    for folder, cell in rows:
        package = f"safe_launch.{folder}"
        imported = {
            other
            for other in FOLDERS - {folder}
            if graph.direct_import_exists(
                importer=package, imported=f"safe_launch.{other}", as_packages=True
            )
        }
        assert set(re.findall(r"[a-z_]+", cell)) - {"nothing"} == imported, folder


def test_the_drawing_is_the_loop() -> None:
    """Each arrow is a folder; one of its modules has the values at both ends."""
    drawing = (ROOT / "docs" / "design" / "architecture.md").read_text().split("```")[1]
    arrows = [found for pattern in ARROWS for found in re.findall(pattern, drawing)]
    assert len(arrows) == len(re.findall("[a-z]-+>|<-+[a-z]", drawing)) > 0
    for left, folder, right in arrows:
        assert folder in FOLDERS
        values = {value for value in (left, right) if value[:1].isupper()}
        texts = (path.read_text() for path in (LAUNCHER / folder).rglob("*.py"))
        assert any(values <= set(re.findall(r"\w+", text)) for text in texts), (left, right)


def test_the_entry_points_are_listed() -> None:
    """Modules that run as a process, without those of a single line and Python's hook."""
    page = (ROOT / "docs" / "design" / "architecture.md").read_text()
    (listed,) = re.findall(r"are entry points of processes:(.+?)\n\n", page, re.DOTALL)
    runs = re.compile(r'^if __name__ == "__main__":$|^main\(', re.MULTILINE)
    found = {
        path.relative_to(LAUNCHER).with_suffix("").as_posix()
        for path in MODULES
        if runs.search(path.read_text())
    }
    assert set(re.findall(r"`([\w/]+)`", listed)) - {"wrap"} == (found | {"worker"}) - {"__main__"}


def test_every_command_is_a_module_of_its_name() -> None:
    """No other file has a command's name or arguments."""
    for name in COMMANDS:
        assert (LAUNCHER / "commands" / f"{name}.py").is_file()


def test_the_house_is_small() -> None:
    """The top level has few folders and few files."""
    assert len(FOLDERS) <= 22
    assert len(list(LAUNCHER.glob("*.*"))) <= 8


def test_every_folder_says_what_comes_in_and_what_goes_out() -> None:
    """Each `__init__` holds a docstring and no code."""
    for path in LAUNCHER.glob("*/**/__init__.py"):
        tree = ast.parse(path.read_text())
        assert len(tree.body) == 1, path
        text = ast.get_docstring(tree) or ""
        assert path.parent.name == "hook" or re.search(r"\bIn: .+\bOut: ", text, re.DOTALL), path


def test_one_module_prints() -> None:
    """`terminal` writes to the console; a worker may print the interpreter's messages."""
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


UNCHECKED = {
    "terminal.py": "/dev/null",
    "failed_workers.py": "a temporary file of our own",
    "metrics.py": "a file of our own, beside the page that is served",
    "reader.py": "the entries that are installed with us",
    "proven.py": "measurements that are installed with us",
    "detect.py": "the machine's own libraries and their cache",
    "host.py": "the kernel's files",
    "cgroups.py": "the kernel's files",
    "proc.py": "the kernel's files",
    "answering.py": "the kernel's files",
    "from_memory.py": "the kernel's files",
    "orphans.py": "the kernel's files",
    "handover.py": "the kernel's files",
    "server.py": "the kernel's files",
    "stacks.py": "the kernel's files",
    "cluster_files.py": "the templates that are installed with us",
    "version_skew.py": "the history of names that is installed with us",
}
"""Modules that open files themselves, and which files."""


def test_one_module_opens_what_users_name() -> None:
    """A pipe would block its reader: `regular_files` checks first and bounds reads."""
    for path in MODULES:
        if path.name in {"regular_files.py", *UNCHECKED}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                text = ast.unparse(node.func.value)
                is_kernels = "/proc/" in text or "/sys/" in text
                is_read = node.func.attr in ("read_text", "read_bytes", "open") and not is_kernels
                is_ours = text.startswith(("os", "regular_files", "Store", "output", "self"))
                assert not is_read or is_ours, f"{path}:{node.lineno}: {ast.unparse(node)}"


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
    """Most folders are small, and no module has more than 350 lines."""
    sizes = sorted(len(path.read_text().splitlines()) for path in MODULES)
    assert sizes[-1] <= 350
    assert sizes[len(sizes) // 2] <= 200


def test_no_test_imports_another() -> None:
    """Shared code is in tests/support, so that each file can be moved and run alone."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.startswith("test_") or ".test_" in name for name in names), path


def test_each_tier_is_a_folder() -> None:
    """tests/unit has the launcher's folders; each test module is in a tier."""
    tiers = {"unit", "commands", "processes", "clusters", "training", "frameworks", "project"}
    for path in (ROOT / "tests").rglob("test_*.py"):
        tier, *below = path.relative_to(ROOT / "tests").parts
        assert tier in tiers, path
        if tier == "unit":
            assert below[0] in FOLDERS, path


def test_no_check_reads_a_worker_variable_while_it_is_installed() -> None:
    """The fork server installs checks before workers have variables: such a read costs a server."""
    for path in (LAUNCHER / "guards" / "checks").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name == "install":
                inner = {
                    called
                    for part in ast.walk(node)
                    if isinstance(part, ast.FunctionDef | ast.Lambda) and part is not node
                    for called in ast.walk(part)
                }
                read = {
                    part.id if isinstance(part, ast.Name) else part.attr
                    for part in ast.walk(node)
                    if isinstance(part, ast.Name | ast.Attribute) and part not in inner
                }
                assert not read & {"is_on", "environ"}, path
