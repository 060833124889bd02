"""FSDP2: unchanged if it works, set by a preset, resumed from its checkpoints.

A plain loop shards over gloo on CPUs. accelerate shards on accelerators only: here on the
simulated NPU (docs/design/devices.md).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.stacks import CURRENT, NPU, TESTS
from support.trainings import (
    FINETUNE,
    MEMORY,
    REENTRANT,
    SHORT,
    TO_OTHER,
    TRAINER,
    attempts,
    launched,
    losses_of,
    reference,
)

SHARDED = TESTS / "programs" / "others" / "sharded.py"
KILLED = TESTS / "programs" / "killed_once.py"
ON_DEVICE = [option for option in TRAINER if option != "--use_cpu"]
KINDS = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")


UNDIVIDED = (
    " TinyVisionModel names no class of layers (`_no_split_modules`). Name them: "
    "FSDP_TRANSFORMER_CLS_TO_WRAP=Block ("
)


def observed(folder: Path, attempt: int = 1) -> dict[str, object]:
    """The workers' report before the first step."""
    (path,) = folder.glob(f"runs/*/attempt-{attempt}/observed.json")
    found: dict[str, object] = json.loads(path.read_text())["observed"]
    return found


@pytest.mark.parametrize("keep", [(), ("--keep",)], ids=["freed", "kept"])
def test_a_loop_of_ones_own_is_left_alone(keep: tuple[str, ...], tmp_path: Path) -> None:
    """Losses are the same as without a launcher; `fully_shard`'s arguments are seen."""
    expected = losses_of(CURRENT, SHARDED, *keep, ranks=2)
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", SHARDED, *keep)
    losses, told = launched(CURRENT, tmp_path, *run)
    assert losses == expected
    assert "nothing is changed" in told
    assert "trains nothing" not in told
    seen = observed(tmp_path)
    assert (
        seen.items()
        >= {
            "engine": "fsdp",
            "fsdp_version": 2,
            "fsdp_units": "layers",
            "reshard_after_forward": not keep,
            "offload": "none",
            "precision": "bf16",
            "master_precision": "fp32",
            "reduce_precision": "fp32",
        }.items()
    )


def test_weights_are_drawn_in_shards_on_a_device(tmp_path: Path) -> None:
    """They equal weights drawn as a whole: each shard has an offset."""
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", SHARDED)
    whole, _ = launched(NPU, tmp_path, *run)
    losses, _ = launched(NPU, tmp_path, *run, "--meta")
    assert losses == whole


def test_a_model_is_moved_away_between_steps(tmp_path: Path) -> None:
    """For a generation phase torch swaps parameters, which weak references prevent."""
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", SHARDED)
    left, _ = launched(NPU, tmp_path, *run)
    losses, _ = launched(NPU, tmp_path, *run, "--moved")
    assert losses == left


def test_an_optimizer_made_too_early(tmp_path: Path) -> None:
    """It trains no parameters: reported with the user's line, once for all ranks."""
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", SHARDED, "--early")
    losses, told = launched(CURRENT, tmp_path, *run)
    assert losses == [losses[0]] * 4
    line = next(
        at for at, text in enumerate(SHARDED.read_text().split("\n"), 1) if "fully_shard(l" in text
    )
    (found,) = (one for one in told.split("\n") if "trains nothing" in one)
    assert "fully_shard has replaced all of its 15 parameters" in found
    assert f"[step 1, ranks 0, 1, {SHARDED}:{line}]" in found


def test_on_a_cpu_accelerate_takes_ddp(tmp_path: Path) -> None:
    """The plan states it, and the workers confirm it."""
    own = (*TRAINER, "--per_device_train_batch_size=4", "--fsdp=full_shard")
    _, told = launched(
        CURRENT, tmp_path, "safe-launch", "--nproc=2", "--log-dir=runs", FINETUNE, *own
    )
    assert "fsdp-trains-ddp-on-cpu" in told
    assert observed(tmp_path)["engine"] == "ddp"


def test_a_preset_gives_it_to_the_trainer(tmp_path: Path) -> None:
    """A script without a configuration trains sharded, to a single process's losses."""
    expected = reference(CURRENT, FINETUNE, *TRAINER, "--per_device_train_batch_size=8")
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", "--preset=fsdp2", FINETUNE)
    losses, told = launched(NPU, tmp_path, *run, *ON_DEVICE, "--per_device_train_batch_size=4")
    assert losses == pytest.approx(expected, rel=1e-4)
    assert "reshard_after_forward: True (not set by the script)" in " ".join(told.split())
    assert "trains nothing" not in told
    seen = observed(tmp_path)
    # The model names no layer classes. With one it has a unit for each.
    assert (seen["engine"], seen["fsdp_version"], seen["fsdp_units"]) == ("fsdp", 2, "whole")
    assert " ".join(told.split()).count(UNDIVIDED) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_it_resumes_from_what_it_saved(kind: str, tmp_path: Path) -> None:
    """From a full or sharded checkpoint every step's loss is equal."""
    expected = reference(CURRENT, FINETUNE, *TRAINER, "--per_device_train_batch_size=8")
    saves = [option for option in ON_DEVICE if not option.startswith("--save_strategy")]
    config = json.dumps({"version": 2, "state_dict_type": kind})
    own = (*saves, "--save_steps=2", "--per_device_train_batch_size=4")
    run = ("safe-launch", "--nproc=2", "--max-restarts=1", "--log-dir=runs", KILLED, FINETUNE)
    losses, told = launched(
        NPU, tmp_path, *run, *own, "--fsdp=full_shard", f"--fsdp_config={config}"
    )
    assert "; resumes from checkpoint-4" in told
    assert attempts(told) == 2
    assert "trained 12 steps: " in told
    assert losses == pytest.approx(expected, rel=1e-4)


def test_blocks_of_one_unit_that_reenter(tmp_path: Path) -> None:
    """FSDP1 frees the vision tower's weights too early; corrected, it trains like one process."""
    expected = reference(CURRENT, FINETUNE, *TRAINER, "--per_device_train_batch_size=8")
    own = (*ON_DEVICE, "--per_device_train_batch_size=4", *REENTRANT)
    fsdp = ("--fsdp=full_shard", '--fsdp_config={"version": 1}')
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", FINETUNE, *own, *fsdp)
    losses, told = launched(NPU, tmp_path, *run)
    assert "(fsdp-reentrant-blocks-in-one-unit)" in told
    assert UNDIVIDED in " ".join(told.split())
    assert TO_OTHER in told
    assert attempts(told) == 2
    assert losses == pytest.approx(expected, rel=1e-4)


def test_a_device_out_of_memory(tmp_path: Path) -> None:
    """The next FSDP2 plan fits in the allocator's reported memory; the engine stays."""
    common = (*SHORT, "--max_steps=4", "--model_max_length=128")
    expected = reference(CURRENT, MEMORY, *common, "--per_device_train_batch_size=32")
    config = {"version": 2, "transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}
    own = [option for option in common if option != "--use_cpu"]
    own += ["--fsdp=full_shard", f"--fsdp_config={json.dumps(config)}"]
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", MEMORY, *own)
    losses, told = launched(
        *(NPU, tmp_path, *run, "--per_device_train_batch_size=16"),
        STANDIN_NPU_MEMORY="300000000",
    )
    assert "(accelerator-out-of-memory)" in told
    assert "of at most 0.28 GiB" in told
    assert "micro_batch: 16 -> " in told
    assert 2 <= attempts(told) <= 3
    assert losses == pytest.approx(expected, rel=1e-4)
    assert observed(tmp_path, attempts(told))["engine"] == "fsdp"
    failures = next(tmp_path.glob("runs/*/attempt-1/failures.json")).read_text()
    assert "NPU out of memory" in failures
