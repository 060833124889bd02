"""Checkpoints as Hugging Face's Trainer leaves them, small, written without torch."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from pathlib import Path


def archive(path: Path, content: object = None) -> Path:
    """What `torch.save` writes, as far as it is read without torch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{path.stem}/data.pkl", pickle.dumps(content, protocol=2))
    return path


def safetensors(path: Path) -> Path:
    """One tensor of eight bytes."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return path


def _trainers_own(output_dir: Path, step: int, world: int) -> Path:
    folder = output_dir / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    safetensors(folder / "model.safetensors")
    for rank in range(world):
        name = "rng_state.pth" if world == 1 else f"rng_state_{rank}.pth"
        archive(folder / name)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


def plain_checkpoint(output_dir: Path, step: int, world: int = 2) -> Path:
    """The Trainer's own, for one process or under DDP."""
    folder = _trainers_own(output_dir, step, world)
    for name in ("optimizer.pt", "scheduler.pt"):
        archive(folder / name)
    return folder


def fsdp_checkpoint(output_dir: Path, step: int, world: int = 2, *, sharded: bool) -> Path:
    """Accelerate's of FSDP, as a file or as a folder of shards."""
    folder = _trainers_own(output_dir, step, world)
    archive(folder / "scheduler.pt")
    for name in ("pytorch_model_fsdp", "optimizer"):
        if sharded:
            (folder / f"{name}_0").mkdir()
            (folder / f"{name}_0" / ".metadata").write_bytes(b"written last")
        else:
            archive(folder / f"{name}.bin")
    return folder


def zero_checkpoint(
    output_dir: Path, step: int, *, stage: int, world: int = 2, offloaded: bool = False
) -> Path:
    """DeepSpeed's, at a ZeRO stage."""
    folder = _trainers_own(output_dir, step, world)
    (folder / "latest").write_text(f"global_step{step}")
    inner = folder / f"global_step{step}"
    states = {"dp_world_size": world}
    if stage == 3:
        for rank in range(world):
            archive(inner / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt", states)
    else:
        archive(inner / "mp_rank_00_model_states.pt", states)
    group = {"lr": 0.1, **({"bias_correction": True} if offloaded else {})}
    for rank in range(world if stage else 0):
        shard = {"zero_stage": stage, "groups": [group]}
        archive(inner / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", shard)
    return folder
