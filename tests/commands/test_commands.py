"""No working command line of other projects is refused, or changed without certainty."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from safe_launch.core.constraint import CauseKind
from safe_launch.core.settings import Setting
from safe_launch.frameworks.config_files import accelerate
from safe_launch.planning.plan import NoPlan, Plan
from support.command_lines import CHECKED, CommandLine, models_in, plan, verdict
from support.tables import read_yaml, table
from support.written_scripts import write_file, write_script

HERE = Path(__file__).parent
FRAMEWORKS = {
    "modelscope/ms-swift": "from swift.pipelines import sft_main\nsft_main()\n",
    "hiyouga/LLaMA-Factory": "from llamafactory.train.tuner import run_exp\nrun_exp()\n",
}
"""Frameworks whose entry point is a function that takes all arguments."""
KEPT = (Setting.ZERO_STAGE, Setting.OFFLOAD, Setting.MICRO_BATCH)


LINES: list[Mapping[str, Any]] = read_yaml(HERE / "lines.yaml")
PLANNED: dict[tuple[str, int], Plan | NoPlan] = {}
of_all_lines = table("line", LINES, name=lambda line: line["page"], parts=5)


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with the scripts and configuration files of the command lines."""
    root = tmp_path_factory.mktemp("repositories")
    for repository, scripts in read_yaml(HERE / "scripts.yaml").items():
        for path, description in scripts.items():
            write_script(root / repository / path, description)
    for repository, files in read_yaml(HERE / "files.yaml").items():
        for path, content in files.items():
            write_file(root / repository / path, content)
    for line in LINES:
        folder = _folder(root, line)
        folder.mkdir(parents=True, exist_ok=True)
        if line["repository"] in FRAMEWORKS:
            entry = folder / line["script"]
            entry.parent.mkdir(parents=True, exist_ok=True)
            entry.write_text(FRAMEWORKS[line["repository"]], encoding="utf-8")
    return root


@pytest.fixture(scope="module", autouse=True)
def _without_accelerate() -> Iterator[None]:
    """Accelerate isn't run for FSDP's variables, which takes seconds."""
    variables = {"ACCELERATE_USE_FSDP": "true"}
    with mock.patch.object(accelerate, "_by_accelerate", return_value=variables):
        yield


def _folder(root: Path, line: Mapping[str, Any]) -> Path:
    return Path(os.path.normpath(root / line["repository"] / line.get("folder", "")))


def _plan(line: Mapping[str, Any], root: Path, hardware: str) -> Plan | NoPlan:
    key = hardware, id(line)
    if key not in PLANNED:
        words = [*shlex.split(line.get("options", "")), line["script"]]
        asked = (*words, *shlex.split(line["arguments"]))
        environment = line.get("environment", {})
        models = root / "models"
        models.mkdir(exist_ok=True)
        with models_in(models, line["page"]):
            PLANNED[key] = plan(CommandLine(asked, environment, _folder(root, line)), hardware)
    return PLANNED[key]


@of_all_lines
def test_nothing_that_ran_is_refused_or_changed(
    line: Mapping[str, Any], repositories: Path
) -> None:
    """On the devices that most of them used; settings that now train wrongly may change."""
    found = _plan(line, repositories, "dgx-a100-80gb")
    assert isinstance(found, Plan), found.rejected[0].constraint
    changed = [change for change in found.changes if change.setting in KEPT]
    assert [change for change in changed if not change.constraint.cause.is_silent] == []


@of_all_lines
def test_small_devices_change_what_is_certain(line: Mapping[str, Any], repositories: Path) -> None:
    """With little memory, changes and refusals need derived or stated facts."""
    found = _plan(line, repositories, "atlas-800t-a2-910b4")
    workload = found.workload
    changed = (
        {each.setting for each in found.changes if each.constraint.cause.kind is CauseKind.MEMORY}
        if isinstance(found, Plan)
        else {name for name in KEPT if name in workload.known}
    )
    assert [name for name in changed if not workload.is_certain(name)] == []
    assert not changed or not workload.not_understood


@of_all_lines
def test_what_a_person_checked(line: Mapping[str, Any], repositories: Path) -> None:
    """Facts are read as a person read them, or are unknown."""
    workload = _plan(line, repositories, "dgx-a100-80gb").workload
    wrong = {
        name.value: (workload.value(name), line["checked"][key])
        for key, name in CHECKED.items()
        if key in line.get("checked", {})
        and verdict(key, str(line["checked"][key]), workload.value(name)) == "wrong"
    }
    assert wrong == {}
