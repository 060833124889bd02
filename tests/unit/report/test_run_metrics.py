"""A run's metrics: names, labels and numbers, as documented."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from safe_launch.progress.board import Phase, RankProgress
from safe_launch.report.run_metrics import json_line, openmetrics
from safe_launch.report.run_status import RankStatus, RunStatus
from safe_launch.system.kept_runs import LauncherRecord, recorded, records
from support.stacks import ROOT

ROW = RankProgress(1, 71, 9, Phase.TRAINING, 7, 0.5, 9.0, 0.2, whole=(0.25, 0.75), own=(0.1,))


def running(tmp_path: Path) -> RunStatus:
    """A run of this process in its third attempt."""
    for number in (1, 2, 3):
        (folder := tmp_path / f"attempt-{number}").mkdir()
        (folder / "plan.json").write_text("{}")
        os.utime(folder / "plan.json", (1000, 1000 + 20 * number))
    with recorded(tmp_path, 0, "-m my.train --lr 1"):
        (launcher,) = records(tmp_path)
    assert isinstance(launcher, LauncherRecord)
    failures = {1: "rank 1: zero2-gradient-reduced-twice", 2: "rank 0: ValueError: a: b", 3: ""}
    rank = RankStatus(ROW, 'a "host"', "R", age=2.0)
    return RunStatus(tmp_path, (launcher,), failures, (rank,))


def values(status: RunStatus) -> dict[tuple[str, str], float]:
    """The samples by name and last label, if any."""
    families = text_string_to_metric_families(openmetrics(status).decode())
    return {
        (one.name, one.labels.get("failure", "")): one.value
        for family in families
        for one in family.samples
        if one.value or "phase" not in one.name
    }


def test_a_running_run(tmp_path: Path) -> None:
    """Counts, times in seconds, and the ranks."""
    found = values(running(tmp_path))
    assert found["safe_launch_running", ""] == 1
    assert found["safe_launch_attempts_total", ""] == 3
    assert found["safe_launch_failures_total", "zero2-gradient-reduced-twice"] == 1
    assert found["safe_launch_failures_total", "ValueError"] == 1
    assert found["safe_launch_lost_seconds_total", ""] == 40
    assert found["safe_launch_rank_step", ""] == 7
    assert found["safe_launch_rank_step_seconds", ""] == 0.5
    assert found["safe_launch_rank_own_seconds", ""] == 0.1
    assert found["safe_launch_rank_quiet_seconds", ""] == 2.5
    assert ("safe_launch_exit_code", "") not in found
    assert 'host="a \\"host\\""' in openmetrics(running_again(tmp_path)).decode()
    line = json.loads(json_line(running_again(tmp_path)))
    assert (line["lost_seconds"], line["ranks"][0]["step"]) == (40, 7)


def running_again(tmp_path: Path) -> RunStatus:
    """The same run with an existing folder."""
    (launcher,) = records(tmp_path)
    assert isinstance(launcher, LauncherRecord)
    now = replace(launcher, ended=None)
    return RunStatus(tmp_path, (now,), {1: "x", 2: "x", 3: ""}, (RankStatus(ROW, 'a "host"'),))


def test_a_failed_run(tmp_path: Path) -> None:
    """The last attempt's time is lost, too; ended ranks have no step."""
    status = running(tmp_path)
    ended = replace(status.launchers[0], ended=1100.0)
    found = values(replace(status, launchers=(ended,), outcome={"exit_code": 137}))
    assert found["safe_launch_exit_code", ""] == 137
    assert found["safe_launch_lost_seconds_total", ""] == 80
    assert found["safe_launch_running", ""] == 0
    assert not any("rank" in name for name, _ in found)


def test_a_run_of_which_little_is_known(tmp_path: Path) -> None:
    """It still has metrics."""
    found = values(RunStatus(tmp_path))
    assert found["safe_launch_attempts_total", ""] == 0


def test_the_documentation_lists_them(tmp_path: Path) -> None:
    """The documentation has exactly these metrics."""
    status = replace(running(tmp_path), outcome={"exit_code": 0})
    exposed = openmetrics(status) + openmetrics(running_again(tmp_path))
    names = {name for name, _ in re.findall(r"^(safe_launch_\w+)({| )", exposed.decode(), re.M)}
    page = (ROOT / "docs/using/metrics.md").read_text()
    assert set(re.findall(r"^\| `(safe_launch_\w+)", page, re.M)) == names
