"""The folder of a universal checkpoint, made with a small stand-in converter."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.checkpoints import universal
from safe_launch.checkpoints.checkpoint import UNIVERSAL, Checkpoint
from safe_launch.core.choices import Engine
from safe_launch.core.errors import Refused
from support.checkpoints import zero_checkpoint

WORKS = """\
import os, sys
from pathlib import Path
source, target = map(Path, sys.argv[1:])
assert source.is_dir() and os.environ["MARK"] == "run"
target.mkdir()
(target / "made").touch()
Path("latest_universal").write_text(target.name)
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint of ZeRO stage 3."""
    folder = zero_checkpoint(tmp_path / "out", 4, stage=3)
    return Checkpoint(folder, 4, Engine.DEEPSPEED, 2, 3)


def converted(
    checkpoint: Checkpoint, program: str, monkeypatch: pytest.MonkeyPatch
) -> Path | Refused:
    """The result of a converter."""
    folder = checkpoint.folder.parent.parent
    (folder / "converter_of_this_test.py").write_text(program)
    monkeypatch.setattr(universal, "CONVERTER", "converter_of_this_test")
    return universal.convert(checkpoint, {"PYTHONPATH": str(folder), "MARK": "run"})


def test_it_holds_what_a_trainer_needs(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the converter's output and the Trainer's files, but no weights or `latest`."""
    made = converted(checkpoint, WORKS, monkeypatch)
    assert made == checkpoint.folder.with_name("universal-4")
    assert isinstance(made, Path)
    assert {path.name for path in made.iterdir()} == {
        *("global_step4_universal", UNIVERSAL, "trainer_state.json"),
        *("rng_state_0.pth", "rng_state_1.pth"),
    }
    assert (made / "global_step4_universal" / "made").exists()


def test_nothing_is_overwritten(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second checkpoint of the same step gets a new name."""
    converted(checkpoint, WORKS, monkeypatch)
    assert converted(checkpoint, WORKS, monkeypatch) == checkpoint.folder.with_name("universal-4-2")


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (
            "import sys; print('noise'); sys.exit('there are: seen')",
            "no universal checkpoint could be made of it: there are: seen",
        ),
        ("", "no universal checkpoint was made of it: latest_universal is missing"),
    ],
)
def test_what_fails_leaves_nothing(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, program: str, sentence: str
) -> None:
    """A failed conversion reports the converter's last line."""
    assert converted(checkpoint, program, monkeypatch) == Refused(sentence)
    assert [path.name for path in checkpoint.folder.parent.iterdir()] == ["checkpoint-4"]


def test_a_folder_that_cannot_be_written_is_named(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message includes the system's error."""

    def mkdir(path: Path, *_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    refused = universal.convert(checkpoint)
    assert isinstance(refused, Refused)
    assert refused.sentence.endswith(".universal-4.partial: No space left on device")
