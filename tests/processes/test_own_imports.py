"""Modules in the current folder or beside the script don't shadow the launcher's imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.launches import environment
from support.stacks import CURRENT

THIRD = ("safe_launch", "torch", "yaml", "msgspec", "wrapt", "psutil", "prometheus_client", "numpy")
SAFE_LAUNCH = CURRENT.bin / "safe-launch"
SCRIPT = """\
import subprocess
import sys

flags = [sys.flags.safe_path, subprocess._args_from_interpreter_flags(), sys.path[0]]
print("its own:", flags, flush=True)
"""
COMMANDS = {
    "forked": (),
    "spawned": ("--start-method=spawn",),
    "kept warm": ("--keep-warm=5",),
    "with metrics": ("--metrics=numbers.prom",),
    "restarted": ("--max-restarts=1",),
    "planned": ("plan",),
}


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with a module of every name, each of which records its execution."""
    mark = tmp_path / "executed"
    code = f'with open({str(mark)!r}, "a") as file:\n    file.write(__name__ + "\\n")\n'
    (tmp_path / "here").mkdir()
    for name in (*sys.stdlib_module_names, *THIRD):
        (tmp_path / "here" / f"{name}.py").write_text(code)
    return mark


def executed(mark: Path) -> set[str]:
    """The planted modules that ran."""
    return set(mark.read_text().split()) if mark.exists() else set()


def run(folder: Path, *command: str | Path) -> str:
    """A command's output; it must succeed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("its own:"))


@pytest.mark.parametrize("options", COMMANDS.values(), ids=COMMANDS)
def test_the_current_folders_modules_arent_ours(
    planted: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """In every process; the script finds its interpreter as under python."""
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    theirs = run(planted.parent / "here", CURRENT.bin / "python", script)
    assert theirs.startswith("its own:")
    ours = run(
        planted.parent / "here", SAFE_LAUNCH, *options, "--nproc=1", "--log-dir=runs", script
    )
    assert ours == ("" if options == ("plan",) else theirs)
    assert executed(planted) == set()


@pytest.mark.parametrize("options", [(), ("--start-method=spawn",)])
def test_what_lies_beside_the_script_is_the_scripts(
    planted: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Such a module shadows none of ours; the script's imports find it."""
    (tmp_path / "here" / "train.py").write_text("import colorsys\n")
    run(tmp_path, SAFE_LAUNCH, *options, "--nproc=1", "--log-dir=runs", "here/train.py")
    assert executed(planted) == {"colorsys"}
