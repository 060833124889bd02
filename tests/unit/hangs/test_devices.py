"""Device utilization by the vendors' tools."""

from __future__ import annotations

import pytest
from safe_launch.hangs import asking
from support.stacks import TESTS

TABLES = TESTS / "fixtures" / "npu-smi"
BUSY = """
| 0     910B4               | OK            | 88.2        30                0    / 0             |
| 0                         | 0000:C1:00.0  | 97          0    / 0          26838/ 32768         |
| 1     910B4               | OK            | 87.0        30                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          29356/ 32768         |
"""


@pytest.mark.parametrize(("file", "chips"), [("310p3", 2), ("910b4", 2), ("910c", 4)])
def test_tables_that_users_posted(file: str, chips: int) -> None:
    """A number for each chip; all of them were idle."""
    found = list(asking.of_npu_smi((TABLES / f"{file}.txt").read_text()))
    assert found == [0.0] * chips


def test_a_busy_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a device for each rank, ranks map to devices in order."""
    assert list(asking.of_npu_smi(BUSY)) == [0.97, 0.0]
    monkeypatch.setattr(asking, "has_nvidia_driver", lambda: False)
    monkeypatch.setattr(asking, "output_of", lambda _command: BUSY)
    assert asking.utilization([70, 80]) == {70: 0.97, 80: 0.0}
    assert asking.utilization([70, 80, 90]) == {}


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The use is unknown without a driver or with a failing one."""
    monkeypatch.setattr(asking, "has_nvidia_driver", lambda: False)
    monkeypatch.setattr(asking, "output_of", lambda _command: None)
    assert asking.utilization([70]) == {}

    def trouble() -> bool:
        raise RuntimeError("Uninitialized")

    monkeypatch.setattr(asking, "has_nvidia_driver", trouble)
    assert asking.utilization([70]) == {}
