"""Installed versions, without parsing metadata."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
from safe_launch.frameworks.installed import installed


def test_they_are_those_of_the_metadata() -> None:
    """For all installed packages, by any spelling of the name."""
    names = ("torch", "transformers", "PyYAML", "google_re2", "pytest-xdist", "no-such-package")
    expected = {name: metadata.version(name) for name in names[:-1]}
    assert installed(names) == expected


def test_old_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An egg's folder or its metadata has the version; the first on the path counts."""
    for name in ("apex-0.1-py3.11.egg-info", "torch_npu-2.1.0.post3.dist-info", "own.egg-info"):
        (tmp_path / name).mkdir()
    (tmp_path / "own.egg-info" / "PKG-INFO").write_text("Name: own\nVersion: 7\n")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "apex-9.dist-info").mkdir()
    paths = [str(tmp_path), str(tmp_path / "gone"), str(tmp_path / "later")]
    monkeypatch.setattr(sys, "path", paths)
    assert installed(["apex", "torch-npu", "own"]) == {
        "apex": "0.1",
        "torch-npu": "2.1.0.post3",
        "own": "7",
    }
