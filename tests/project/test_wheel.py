"""The built wheel has all files of the folders."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

from safe_launch.core.version import VERSION
from support.stacks import ROOT

FOLDERS = ("launcher", "presets", "hardware", "scripts/*.py", "scripts/slurm", "scripts/kubernetes")


def test_the_wheel_is_whole(tmp_path: Path) -> None:
    """Every module, entry, profile and the license, with one version and without torch."""
    names = subprocess.run(
        ["git", "ls-files", *FOLDERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    source = tmp_path / "source"
    for name in [*names, "pyproject.toml", "README.md", "LICENSE", "man/safe-launch.1"]:
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", tmp_path, source]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("safe_launch/")}
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
        pages = [name for name in archive.namelist() if name.endswith("man1/safe-launch.1")]
        licenses = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
    required = [
        line for line in lines if line.startswith("Requires-Dist: torch") and "extra ==" not in line
    ]
    expected = {name.replace("launcher/", "safe_launch/", 1) for name in names}
    expected = {
        name if name.startswith("safe_launch/") else f"safe_launch/{name}" for name in expected
    }
    assert inside == expected
    assert required == []
    assert (len(licenses), len(pages)) == (1, 1)
    assert f"Version: {VERSION}" in lines
    assert version("safe-launch") == VERSION, "the environment has another one: scripts/environment"
    assert "License-Expression: Apache-2.0" in lines
