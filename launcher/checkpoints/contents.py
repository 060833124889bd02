"""Reads a checkpoint folder's files of the Trainer and its engine, and whether each is whole."""

from __future__ import annotations

import json
import pickletools
import re
import struct
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ..core.choices import Engine
from ..core.errors import reason_of
from ..core.plain_json import parsed
from ..core.quantities import GIB
from ..system import regular_files
from .checkpoint import STATE, Checkpoint

SHARD = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_00_optim_states\.pt")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHTS = ("model.safetensors", "pytorch_model.bin", *INDEXES)
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
DEEPSPEED_STEPS = "global_step*"
ARCHIVE = re.compile(
    r".*_states\.pt|(?:optimizer|scheduler|scaler)\.pt|rng_state.*\.pth|training_args\.bin"
    r"|(?:pytorch|adapter)_model.*\.bin|optimizer\.bin"
)
"""Files of `torch.save`: zip archives, with their directory at the end."""
LARGEST = GIB
"""Maximum bytes of a checkpoint's JSON, whose loss history grows with the steps."""


class CutOffError(Exception):
    """The checkpoint was only partly written."""


class ForeignError(Exception):
    """The checkpoint may be complete, but safe-launch cannot resume from it here."""


def read(folder: Path, step: int, worlds: Collection[int], local: int | None) -> Checkpoint:
    """Reads a complete checkpoint.

    Raises:
        CutOffError, ForeignError: the checkpoint can't be resumed from.
    """
    if _document(folder / STATE).get("global_step") != step:
        raise CutOffError(f"{STATE} isn't of step {step}")
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not _is_whole(path):
            raise CutOffError(f"{path.name} is cut off")
    _check_indexes(folder)
    is_alone = (folder / "rng_state.pth").exists()
    ranks = {int(path.stem.rpartition("_")[2]) for path in folder.glob("rng_state_*.pth")}
    ranks |= {0} if is_alone else set()
    written = [world for world in worlds if world > max(ranks, default=0)]
    world = 1 if is_alone else min(written, default=max(ranks, default=0) + 1)
    if list(folder.glob("*fsdp*")):
        checkpoint = _fsdp(folder, step, world)
    elif list(folder.glob(DEEPSPEED_STEPS)) or (folder / "latest").exists():
        checkpoint = _deepspeed(folder, step, local)
    elif not ranks and not (folder / "optimizer.pt").exists():
        raise ForeignError("it has the weights alone (save_only_model)")
    else:
        checkpoint = _plain(folder, step, world)
    _check_ranks("random state", ranks, checkpoint.world, local)
    return checkpoint


def _document(path: Path) -> dict[str, Any]:
    """Reads a JSON object from a file.

    Raises:
        CutOffError: the file is missing, or isn't a JSON object.
    """
    try:
        return dict(parsed(regular_files.read(path, LARGEST).decode()))
    except FileNotFoundError:
        raise CutOffError(f"{path.name} is missing") from None
    except (TypeError, ValueError):
        raise CutOffError(f"{path.name} is cut off") from None


def _check_indexes(folder: Path) -> None:
    """Checks that the files named in an index of weights exist."""
    for index in INDEXES:
        if (folder / index).exists():
            named = _document(folder / index).get("weight_map")
            for name in sorted(set(map(str, named.values() if isinstance(named, dict) else ()))):
                if not (folder / name).exists():
                    raise CutOffError(f"{name} is missing")


def _check_ranks(what: str, ranks: Collection[int], world: int, local: int | None) -> None:
    missing = sorted(set(range(world)) - set(ranks))
    if not missing:
        return
    listed = ", ".join(map(str, missing))
    if local is not None and missing == list(range(local, world)):
        raise ForeignError(
            f"the {what} of rank {listed} isn't on node 0, as if every node saved to its own disk"
        )
    raise CutOffError(f"the {what} of rank {listed} is missing")


def _plain(folder: Path, step: int, world: int) -> Checkpoint:
    """Reads a checkpoint of the Trainer without an engine, of one process or DDP."""
    adapters = [path for name in ADAPTERS for path in (folder / name, *folder.glob(f"*/{name}"))]
    if not any(path.exists() for path in (*(folder / name for name in WEIGHTS), *adapters)):
        raise CutOffError("the weights are missing")
    for name in ("optimizer.pt", "scheduler.pt"):
        if not (folder / name).exists():
            raise CutOffError(f"{name} is missing")
    return Checkpoint(folder, step, Engine.DDP, world)


def _fsdp(folder: Path, step: int, world: int) -> Checkpoint:
    """Reads accelerate's FSDP checkpoint: one file, or a folder of shards.

    A folder's `.metadata` is written last (torch/distributed/checkpoint/filesystem.py, `finish`).
    """
    for names in (("pytorch_model_fsdp.bin", *ADAPTERS), ("optimizer.bin",), ("scheduler.pt",)):
        folders = [folder / f"{names[0].removesuffix('.bin')}_0" / ".metadata"]
        if not any(path.exists() for path in (*(folder / name for name in names), *folders)):
            raise CutOffError(f"{names[0]} is missing")
    if list(folder.glob("*_rank*.bin")):
        raise ForeignError("it has FSDP's local states, and resuming from those isn't supported")
    return Checkpoint(folder, step, Engine.FSDP, world)


def _deepspeed(folder: Path, step: int, local: int | None) -> Checkpoint:
    """Reads a DeepSpeed checkpoint, whose file names distinguish stage 3 from lower stages.

    `_get_ckpt_name` and `_get_zero_ckpt_name` in deepspeed/runtime/engine.py.
    """
    try:
        inner = folder / regular_files.read(folder / "latest").decode(errors="replace").strip()
    except FileNotFoundError:
        raise CutOffError("DeepSpeed's file `latest` is missing") from None
    if inner == folder or not inner.is_dir():
        raise CutOffError("the folder that DeepSpeed's file `latest` names is missing")
    if list(folder.glob("*/offloaded_tensors")):
        raise ForeignError(
            "it holds states swapped to disk, and resuming from those isn't supported yet"
        )
    if list(inner.glob("*mp_rank_01*")) or list(inner.glob("layer_*")):
        raise ForeignError(
            "its model is split by tensor or pipeline parallelism, "
            "and resuming from that isn't supported yet"
        )
    partitioned = inner / "zero_pp_rank_0_mp_rank_00_model_states.pt"
    whole = inner / "mp_rank_00_model_states.pt"
    model = partitioned if partitioned.exists() else whole
    if not model.exists():
        raise CutOffError("DeepSpeed's model states are missing")
    world = _number_after("dp_world_size", model)
    if world is None:
        raise ForeignError("it doesn't say how many ranks wrote it")
    shards = {
        int(match[1]): path for path in inner.iterdir() if (match := SHARD.fullmatch(path.name))
    }
    if not shards and model == whole:
        return Checkpoint(folder, step, Engine.DEEPSPEED, world, 0)
    _check_ranks("optimizer state", shards.keys(), world, local)
    if model == partitioned:
        names = inner.glob("zero_pp_rank_*_mp_rank_00_model_states.pt")
        _check_ranks("model state", {int(path.name.split("_")[3]) for path in names}, world, local)
        return Checkpoint(folder, step, Engine.DEEPSPEED, world, 3, _is_offloaded(shards[0]))
    stage = _number_after("zero_stage", shards[0])
    known = 2 if stage is None else stage
    return Checkpoint(folder, step, Engine.DEEPSPEED, world, known, _is_offloaded(shards[0]))


def _is_offloaded(shard: Path) -> bool:
    """Whether the state is DeepSpeedCPUAdam's, whose groups alone have this parameter."""
    return "bias_correction" in _arguments(shard)


def _number_after(key: str, path: Path) -> int | None:
    """The integer after a key in a file of `torch.save`, read without torch.

    Also finds the number of an enum member, which is pickled as class and number.
    """
    arguments = _arguments(path)
    for argument in arguments:
        if argument == key:
            following = (next(arguments, None) for _ in range(6))
            numbers = [value for value in following if isinstance(value, int)]
            return numbers[0] if numbers else None
    return None


def _arguments(path: Path) -> Iterator[object]:
    """The arguments of the pickle's operations, except for indices into its memo."""
    try:
        with regular_files.opened(path) as file, zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith("data.pkl")]
            pickled = archive.read(names[0]) if names else b"."
        for operation, argument, _ in pickletools.genops(pickled):
            if "PUT" not in operation.name and "GET" not in operation.name:
                yield argument
    except Exception as error:  # neither module documents what a broken archive or pickle raises
        raise CutOffError(f"{path.name} can't be read: {reason_of(error)}") from None


def _is_whole(path: Path) -> bool:
    """Whether a file isn't cut off; True for unknown formats."""
    if path.suffix == ".safetensors":
        return _is_whole_safetensors(path)
    if ARCHIVE.fullmatch(path.name) or _begins_as_archive(path):
        return _has_directory(path)
    return path.suffix != ".json" or _is_json(path)


def _is_whole_safetensors(path: Path) -> bool:
    """Whether the file ends with the last tensor, by the header (JSON after 8 bytes of length)."""
    size = path.stat().st_size
    with regular_files.opened(path) as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if 8 + length > size:
            return False
        try:
            header = dict(parsed(file.read(length)))
            header.pop("__metadata__", None)
            ends = [int(tensor["data_offsets"][1]) for tensor in header.values()]
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return False
    return size == 8 + length + max(ends, default=0)


def _begins_as_archive(path: Path) -> bool:
    with regular_files.opened(path) as file:
        return file.read(4) == b"PK\x03\x04"


def _has_directory(path: Path) -> bool:
    try:
        with regular_files.opened(path) as file, zipfile.ZipFile(file) as archive:
            return bool(archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return False


def _is_json(path: Path) -> bool:
    """Whether the first JSON document is complete; users' callbacks may write anything."""
    text = regular_files.read(path, LARGEST).decode(errors="replace").lstrip()
    try:
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return bool(text) and text[0] not in "{["
    return True
