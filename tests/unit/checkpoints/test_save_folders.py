"""Which checkpoints are found and their kind; ranks that save to separate folders."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from safe_launch.checkpoints import save_folders
from safe_launch.checkpoints.checkpoint import AnyCheckpoint, Checkpoint, Resume, Saves
from safe_launch.checkpoints.save_folders import gather, local_folder, places, warning
from safe_launch.core.choices import Engine
from support.checkpoints import (
    archive,
    fsdp_checkpoint,
    plain_checkpoint,
    safetensors,
    zero_checkpoint,
)

OWN = "zero_pp_rank_1_mp_rank_00_optim_states.pt"


def found(output_dir: Path, *worlds: int, local: int | None = None) -> tuple[AnyCheckpoint, ...]:
    """The checkpoints of a training that has saved to this folder from the start."""
    return save_folders.find_all(Saves(str(output_dir)), worlds or (2,), local)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_trainers_own(tmp_path: Path, world: int) -> None:
    """The number of ranks is the number of random states."""
    folder = plain_checkpoint(tmp_path, 4, world)
    assert found(tmp_path, 1, world) == (Checkpoint(folder, 4, Engine.DDP, world),)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("offloaded", [False, True])
def test_deepspeeds(tmp_path: Path, stage: int, offloaded: bool) -> None:
    """Stage, ranks and optimizer are read without torch."""
    folder = zero_checkpoint(tmp_path, 4, stage=stage, offloaded=offloaded)
    expected = Checkpoint(folder, 4, Engine.DEEPSPEED, 2, stage, offloaded and stage > 0)
    assert found(tmp_path) == (expected,)


def test_the_newest_comes_first(tmp_path: Path) -> None:
    """Checkpoints are ordered by number, not by name."""
    for step in (2, 10, 9):
        plain_checkpoint(tmp_path, step)
    assert [checkpoint.step for checkpoint in found(tmp_path)] == [10, 9, 2]


def cut(name: str) -> Callable[[Path], object]:
    """Truncates a file."""

    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:-9])

    return damage


def gone(name: str) -> Callable[[Path], object]:
    """Removes a file."""
    return lambda folder: (folder / name).unlink()


def says(name: str, text: str) -> Callable[[Path], object]:
    """Writes a file."""
    return lambda folder: (folder / name).write_text(text)


INNER = "global_step4"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (gone("trainer_state.json"), "trainer_state.json is missing"),
        (cut("trainer_state.json"), "trainer_state.json is cut off"),
        (says("trainer_state.json", '{"global_step": 3}'), "trainer_state.json isn't of step 4"),
        (says("trainer_state.json", "[]"), "trainer_state.json isn't of step 4"),
        (cut("model.safetensors"), "model.safetensors is cut off"),
        (gone("model.safetensors"), "the weights are missing"),
        (cut("optimizer.pt"), "optimizer.pt is cut off"),
        (gone("optimizer.pt"), "optimizer.pt is missing"),
        (gone("scheduler.pt"), "scheduler.pt is missing"),
        (gone("rng_state_0.pth"), "the random state of rank 0 is missing"),
        (says("config.json", '{"a": '), "config.json is cut off"),
        (
            says("model.safetensors.index.json", '{"weight_map": {"w": "part-2.safetensors"}}'),
            "part-2.safetensors is missing",
        ),
    ],
)
def test_what_is_cut_off(tmp_path: Path, damage: Callable[[Path], object], reason: str) -> None:
    """An incomplete checkpoint can't be used."""
    damage(plain_checkpoint(tmp_path, 4))
    (unusable,) = found(tmp_path)
    assert (unusable.reason, unusable.is_cut_off, unusable.step) == (reason, True, 4)


@pytest.mark.parametrize(
    ("stage", "damage", "reason"),
    [
        (2, gone("latest"), "DeepSpeed's file `latest` is missing"),
        (2, says("latest", "global_step9"), "the folder that DeepSpeed's file `latest` names"),
        (2, gone(f"{INNER}/mp_rank_00_model_states.pt"), "DeepSpeed's model states are missing"),
        (
            2,
            gone(f"{INNER}/zero_pp_rank_1_mp_rank_00_optim_states.pt"),
            "the optimizer state of rank 1 is missing",
        ),
        (
            3,
            gone(f"{INNER}/zero_pp_rank_1_mp_rank_00_model_states.pt"),
            "the model state of rank 1 is missing",
        ),
        (3, cut(f"{INNER}/zero_pp_rank_0_mp_rank_00_optim_states.pt"), "is cut off"),
    ],
)
def test_what_is_cut_off_of_deepspeeds(
    tmp_path: Path, stage: int, damage: Callable[[Path], object], reason: str
) -> None:
    """Every rank writes a part, and each is required."""
    damage(zero_checkpoint(tmp_path, 4, stage=stage))
    (unusable,) = found(tmp_path)
    assert reason in unusable.reason
    assert unusable.is_cut_off


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda folder: (folder / INNER / "offloaded_tensors").mkdir(),
            "it holds states swapped to disk",
        ),
        (lambda folder: archive(folder / INNER / "mp_rank_01_model_states.pt"), "is split by"),
        (
            lambda folder: archive(folder / INNER / "mp_rank_00_model_states.pt", {}),
            "it doesn't say how many ranks wrote it",
        ),
    ],
)
def test_what_may_be_whole_but_is_of_no_use(
    tmp_path: Path, change: Callable[[Path], object], reason: str
) -> None:
    """An unusable checkpoint still counts as progress."""
    change(zero_checkpoint(tmp_path, 4, stage=2))
    (unusable,) = found(tmp_path)
    assert reason in unusable.reason
    assert not unusable.is_cut_off


@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_what_fsdp_wrote(tmp_path: Path, sharded: bool) -> None:
    """Full or sharded; the file written last shows that it is complete."""
    fsdp_checkpoint(tmp_path, 2, sharded=sharded)
    newest = fsdp_checkpoint(tmp_path, 4, sharded=sharded)
    (newest / ("optimizer_0/.metadata" if sharded else "optimizer.bin")).unlink()
    unusable, complete = found(tmp_path)
    assert (complete.step, complete.engine, complete.world) == (2, Engine.FSDP, 2)
    assert unusable.reason == "optimizer.bin is missing"
    assert unusable.is_cut_off


def test_fsdps_local_states(tmp_path: Path) -> None:
    """Local states are complete, but only accelerate can load them."""
    archive(fsdp_checkpoint(tmp_path, 2, sharded=False) / "pytorch_model_fsdp_rank0.bin")
    (unusable,) = found(tmp_path)
    assert "local states" in unusable.reason
    assert not unusable.is_cut_off


def test_every_node_with_a_disk_of_its_own(tmp_path: Path) -> None:
    """Missing parts may be on the other nodes' disks."""
    folder = plain_checkpoint(tmp_path, 4, 4)
    for rank in (2, 3):
        (folder / f"rng_state_{rank}.pth").unlink()
    (unusable,) = found(tmp_path, 4, local=2)
    assert unusable.reason.startswith("the random state of rank 2, 3 isn't on node 0")
    assert not unusable.is_cut_off
    (unusable,) = found(tmp_path, 4, local=1)
    assert unusable.is_cut_off


def test_adapters_are_weights_too(tmp_path: Path) -> None:
    """Files of peft count, also in a folder named after the adapter."""
    folder = plain_checkpoint(tmp_path, 4)
    (folder / "model.safetensors").unlink()
    (folder / "default").mkdir()
    safetensors(folder / "default" / "adapter_model.safetensors")
    (whole,) = found(tmp_path)
    assert isinstance(whole, Checkpoint)


@pytest.mark.parametrize(
    "name",
    [
        *("trainer_state.json", "latest", "model.safetensors", "scheduler.pt"),
        *(
            f"{INNER}/mp_rank_00_model_states.pt",
            f"{INNER}/zero_pp_rank_0_mp_rank_00_optim_states.pt",
        ),
    ],
)
def test_a_pipe_in_place_of_a_file(tmp_path: Path, name: str) -> None:
    """Reading doesn't block; the checkpoint is unusable unless the file is optional."""
    folder = zero_checkpoint(tmp_path, 4, stage=2)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    (now,) = found(tmp_path)
    if isinstance(now, Checkpoint):
        assert name in ("model.safetensors", "scheduler.pt")
    else:
        assert "it isn't a regular file" in now.reason


def test_no_folder_has_no_checkpoints(tmp_path: Path) -> None:
    """A folder with only other files has none either."""
    (tmp_path / "checkpoint-best").mkdir()
    assert found(tmp_path / "nowhere") == found(tmp_path) == ()
    assert save_folders.present(str(tmp_path)) == {}


def test_where_a_node_has_what_it_resumes_from(tmp_path: Path) -> None:
    """The training's latest folder with the checkpoint, else its latest folder."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "checkpoint-4").mkdir()
    saves = [Saves(str(tmp_path / name)) for name in ("a", "b")]
    saves.append(Saves(str(tmp_path / "c"), 1))
    assert local_folder(Resume(0, "checkpoint-4"), saves) == tmp_path / "a/checkpoint-4"
    assert local_folder(Resume(0, "checkpoint-5"), saves) == tmp_path / "b/checkpoint-5"
    assert save_folders.local_folder(Resume(2, "checkpoint-4"), saves) is None


def apart(folder: Path, step: int) -> None:
    """A checkpoint of two ranks with each rank's part in a separate folder."""
    whole = zero_checkpoint(folder / "a", step, stage=2)
    for path in [*whole.rglob(OWN), whole / "rng_state_1.pth"]:
        target = folder / "b" / path.relative_to(folder / "a")
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)


def test_it_is_told_once_all_ranks_have_said_where() -> None:
    """The report waits for all ranks, also in a second training."""
    a, b = Saves("/runs/12-00-01"), Saves("/runs/12-00-02")
    assert warning({0: a}, [0, 1]) is None
    assert warning({0: a, 1: a}, [0, 1]) is None
    assert warning({0: a, 1: Saves("/runs/12-00-02", 1)}, [0, 1]) is None
    sentence = warning({2: a, 3: a, 4: b}, [2, 3, 4])
    assert sentence is not None
    assert "rank 2 to /runs/12-00-01, rank 4 to /runs/12-00-02" in sentence
    assert places({1: b, 0: a, 2: a}) == (a, b)
    assert places({}) == ()


@pytest.mark.parametrize("has_links", [True, False])
def test_a_checkpoint_is_made_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """Missing files are linked or copied; existing files and the other folder are unchanged."""
    if not has_links:

        def refuse(*_: object) -> None:
            raise OSError(errno.EXDEV, "another disk")

        monkeypatch.setattr(os, "link", refuse)
    apart(tmp_path, 4)
    both = Saves(str(tmp_path / "a")), Saves(str(tmp_path / "b"))
    assert not any(isinstance(each, Checkpoint) for each in save_folders.find_all(both[0], {2}))
    gather(both)
    (found,) = save_folders.find_all(both[0], {2})
    assert isinstance(found, Checkpoint)
    assert found.step == 4
    assert len(list((tmp_path / "b").rglob(OWN))) == 1
    assert not list(tmp_path.rglob("*.part"))


def test_what_an_earlier_job_left_isnt_taken(tmp_path: Path) -> None:
    """An earlier job's checkpoint of the same step belongs to another training."""
    apart(tmp_path, 4)
    folders = [str(tmp_path / name) for name in "ab"]
    gather((Saves(folders[0]), Saves(folders[1], before=save_folders.present(folders[1]))))
    assert not list((tmp_path / "a").rglob(OWN))
    gather((Saves(str(tmp_path / "none")), Saves(folders[1])))
    assert not (tmp_path / "none").exists()
