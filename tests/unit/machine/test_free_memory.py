"""Free memory of the host and under cgroup limits, versions 1 and 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.machine import host

GIB = 1 << 30


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup folder on a host with half of its memory free."""
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 500 kB\n")
    monkeypatch.setattr(host, "MEMORY", tmp_path / "meminfo")
    (tmp_path / "job").mkdir()
    (tmp_path / "memory").mkdir()
    (tmp_path / "of").write_text("0::/job\n")
    return tmp_path


def test_without_limits_the_hosts_counts(groups: Path) -> None:
    """Reclaimable memory is free; `max` is no limit."""
    assert host.free_memory(groups, groups / "of") == 0.5
    (groups / "job" / "memory.max").write_text("max\n")
    (groups / "job" / "memory.current").write_text(f"{GIB}\n")
    assert host.free_memory(groups, groups / "of") == 0.5


@pytest.mark.parametrize(
    ("folder", "most", "used"),
    [
        ("job", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
)
def test_a_groups_limit_counts_less_its_files(
    groups: Path, folder: str, most: str, used: str
) -> None:
    """Cached file pages aren't used memory; the smallest share counts."""
    (groups / folder / most).write_text(f"{4 * GIB}\n")
    (groups / folder / used).write_text(f"{3 * GIB}\n")
    assert host.free_memory(groups, groups / "of") == 0.25
    (groups / folder / "memory.stat").write_text(f"anon 1\ninactive_file {2 * GIB}\n")
    assert host.free_memory(groups, groups / "of") == 0.5


def test_where_nothing_can_be_read_all_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unreadable files mean no limit."""
    monkeypatch.setattr(host, "MEMORY", tmp_path / "none")
    assert host.free_memory(tmp_path, tmp_path / "none") == 1.0
