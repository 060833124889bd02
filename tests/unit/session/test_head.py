"""Requirements of a launch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.session.head import refusal_of, require_torch


def test_an_old_torch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is read from the metadata folder's name, without an import."""
    (tmp_path / "torch-2.2.2.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(LaunchError) as refused:
        require_torch()
    assert refused.value.problem == "torch 2.2.2 is installed: safe-launch needs 2.3 or newer"
    assert refused.value.code is ExitCode.USAGE


@pytest.mark.parametrize("version", ["2.3.0", "2.10.0", "3.0.1", "2.15.0+cpu", "", "unknown"])
def test_what_is_new_enough_or_unknown_is_not_refused(version: str) -> None:
    """Numbers are compared as numbers; a custom build may have none."""
    assert refusal_of(version) is None
