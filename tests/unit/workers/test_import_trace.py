"""The inputs of imports, and detecting their changes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safe_launch.workers.forkserver.import_trace import signature

BEGIN = """
import sys, time
from safe_launch.workers.forkserver.import_trace import ImportTrace
from safe_launch.workers.forkserver.preload import Preloaded
from safe_launch.workload.script.imports import Import
def steps():
    open("script.py").close()
    list(sys.argv)
    yield Import("module", (), 1)
trace, preloaded, begun = ImportTrace(), Preloaded(), time.time_ns()
trace.watch()
preloaded.run(trace.during(steps()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module whose import can be traced, and a script."""
    (tmp_path / "module.py").write_text("")
    (tmp_path / "script.py").write_text("")
    time.sleep(0.05)  # older files haven't changed during the imports
    return tmp_path


def shown(folder: Path, after: str) -> str:
    """A program's output after the module's import."""
    return subprocess.check_output(
        [sys.executable, "-c", BEGIN + after],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        text=True,
    ).strip()


def test_files_that_imports_open_count_and_those_of_the_search_dont(folder: Path) -> None:
    """Nor do files they write, later reads, or kernel files."""
    (folder / "module.py").write_text(
        "import os\nopen('/proc/self/stat').close()\nos.close(os.open('by_number', os.O_RDONLY))\n"
        "open('written', 'w').close()\nopen('written').close()\nopen(os.dup(0)).close()\n"
        "try:\n    open('absent')\nexcept OSError:\n    pass\n"
    )
    (folder / "by_number").touch()
    time.sleep(0.05)
    after = (
        "open('script.py').close()\nprint(trace.settle(begun))\n"
        "print(sorted(path for path in trace.signatures if path.startswith(sys.path[1])))\n"
        "print(trace.changed())\n"
    )
    names = [str(folder / name) for name in ("absent", "by_number", "module.py")]
    assert shown(folder, after).splitlines() == ["None", str(names), "None"]


@pytest.mark.parametrize(
    ("change", "noticed"),
    [
        ("open('module.py', 'a').close()", "None"),
        ("open('module.py', 'a').write('#')", "module.py has changed"),
        ("import os; os.remove('module.py')", "module.py has changed"),
        ("open('torch.py', 'w')", "has other modules: torch"),
        ("import os; os.mkdir('torch')", "None"),
        ("import os; os.mkdir('torch'); open('torch/__init__.py', 'w')", "other modules: torch"),
        ("open('torch.cpython-311-x86_64-linux-gnu.so', 'w')", "has other modules: torch"),
        ("open('notes.txt', 'w'); open('a.copy', 'w')", "None"),
    ],
)
def test_what_would_be_imported_otherwise_is_noticed(
    folder: Path, change: str, noticed: str
) -> None:
    """In files and in folders on the search path."""
    assert noticed in shown(folder, f"trace.settle(begun)\n{change}\nprint(trace.changed())\n")


def test_what_changes_while_it_is_imported_isnt_known(folder: Path) -> None:
    """The imported version is unknown; earlier notes stay valid."""
    (folder / "module.py").write_text("import os\nos.utime(__file__)\n")
    assert "module.py has changed while it was imported" in shown(
        folder, "print(trace.settle(begun))"
    )


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("import sys\nsys.argv[0]", False),
        ("import sys\nsys.argv[1:]", True),
        ("import sys\nprint(end=' '.join(sys.argv)[:0])", True),
        ("from sys import argv", True),
    ],
)
def test_whether_an_import_reads_the_arguments(folder: Path, text: str, *, reads: bool) -> None:
    """The import search's own reads don't count; the script gets a plain list."""
    (folder / "module.py").write_text(text)
    time.sleep(0.05)
    after = (
        "print(trace.reads_arguments, 'argv' in vars(sys.modules['module']) or type(sys.argv))\n"
    )
    kept = "True" if text.startswith("from") else "<class 'list'>"
    assert shown(folder, after) == f"{reads} {kept}"


def test_a_signature_tells_a_file_from_its_successor(tmp_path: Path) -> None:
    """Name, size and modification time may be equal."""
    path = tmp_path / "file"
    path.write_text("a")
    before = path.stat()
    known = signature(str(path))
    time.sleep(0.02)
    path.write_text("b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert signature(str(path)) != known
    assert signature(str(tmp_path / "none")) is None
