"""Imports that find the wrong folder, and calls of a package's class in another version."""

from __future__ import annotations

import pytest
from safe_launch.diagnosis.next_step.choose import next_step
from safe_launch.evidence.failure_record import FailureRecord, Frame
from safe_launch.logs import report
from support.logs import entry_of, judged
from support.tables import table

LIBRARY = "/env/lib/python3.11/site-packages"


def record(kind: str, message: str, *files: str, source: str = "") -> FailureRecord:
    """An exception that a file raises, called from the others."""
    frames = tuple(Frame(file, 3, "main", source) for file in files)
    users = tuple(file for file in files if LIBRARY not in file)
    return FailureRecord(0, 1.0, f"builtins.{kind}", message, frames=frames, user_files=users)


@table(
    ("name", "file", "says"),
    [
        ("torchtitan", "/u/torchtitan/torchtitan/train.py", "in /u/torchtitan, or start it there"),
        (
            "videollava",
            "/w/Video-LLaVA/videollava/train/mem.py",
            "`python -m videollava.train.mem`",
        ),
        ("open_lm", "C:\\w\\open_lm\\open_lm\\main.py", "-m open_lm.main"),
        ("mytool", "/w/clone/mytool/parts/run.py", "in the project's clone"),
    ],
)
def test_a_project_that_its_script_does_not_find(name: str, file: str, says: str) -> None:
    """The clone's folder, and how to start the module."""
    missing = f"No module named '{name}'"
    step = next_step(record("ModuleNotFoundError", missing, "/u/x.py", file))
    assert step.rule == "own-module"
    assert says in step.do


@pytest.mark.parametrize(
    "file",
    ["/u/deepspeed/train.py", "/u/deepspeed/tools/train.py", f"{LIBRARY}/deepspeed/x/run.py"],
)
def test_a_folder_that_is_called_like_a_package(file: str) -> None:
    """People call a folder after the package that they try."""
    missing = record("ModuleNotFoundError", "No module named 'deepspeed'", file)
    assert next_step(missing).rule != "own-module"


@table(
    ("message", "is_shadowed"),
    [
        ("module 'wandb' has no attribute 'init'", True),
        ("partially initialized module 'datasets' has no attribute 'load_dataset'", True),
        ("module 'wandb' has no attribute 'beta_run'", False),
        ("module 'torch' has no attribute 'compile'", False),
        ("module 'mine' has no attribute 'init'", False),
    ],
)
def test_what_is_imported_in_place_of_a_package(message: str, *, is_shadowed: bool) -> None:
    """Every version has the package's main functions."""
    step = next_step(record("AttributeError", message, "/u/x.py"))
    assert (step.rule == "shadowed") is is_shadowed


def test_before_the_entry_on_versions() -> None:
    """The entries on other versions and missing packages give way."""
    log = 'Traceback (most recent call last):\n  File "/u/x.py", line 6, in <module>\n    {}\n{}\n'
    lacks = "AttributeError: module 'wandb' has no attribute 'init'"
    shadowed = judged(log.format("wandb.init()", lacks))
    assert entry_of(shadowed) == "script-of-another-package-version"
    assert "Rename the file or folder" in report.rows(shadowed, ())[0][1]


SUPER = "super(DefaultTrainer, self).__init__(model, loader)"


@table(
    ("message", "source", "library", "is_of_base"),
    [
        ("__init__() takes 1 positional argument but 3 were given", SUPER, "detectron2", True),
        (
            *("SimpleTrainer.__init__() missing 1 required positional argument: 'o'",),
            *("super().__init__(a)", "detectron2", True),
        ),
        ("__init__() takes 1 positional argument but 3 were given", SUPER, "torch", False),
        (
            *("__init__() takes 1 positional argument but 3 were given",),
            *("super(Mine, self).__init__(a, b)", "detectron2", False),
        ),
        ("__init__() takes 2 positional arguments but 3 were given", "Net(1, 2)", "torch", False),
    ],
)
def test_a_base_class_of_another_version(
    message: str, source: str, library: str, *, is_of_base: bool
) -> None:
    """The package is known by its class, and is in the traceback."""
    raised = record("TypeError", message, f"{LIBRARY}/{library}/a.py", "/u/x.py", source=source)
    assert ("README or requirements" in next_step(raised).do) is is_of_base
