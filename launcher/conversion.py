"""Writes DeepSpeed's universal checkpoint: `python -m safe_launch.conversion INPUT OUTPUT`.

DeepSpeed's own converter is used for stages 1 and 2. Its result for stage 3 is readable only by
stage 3, with one parameter group (0.16.9) or with the first group's weight decay for all (0.19.8).
So stage 3 is converted here, to the form that stages 1 and 2 read
(`load_hp_checkpoint_state` in deepspeed/checkpoint/universal_checkpoint.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MODEL = "mp_rank_00_model_states.pt"
PARTITIONED = "zero_pp_rank_*_mp_rank_00_model_states.pt"
SHARDS = "*zero_pp_rank_*_mp_rank_00_optim_states.pt"
FLAT = ("optimizer_state_dict", "fp32_flat_groups")
MOMENTS = ("exp_avg", "exp_avg_sq")


def main(source: Path, target: Path) -> None:
    """Converts DeepSpeed's folder of a checkpoint.

    Raises:
        SystemExit: it can't be converted without loss; the message says why.
    """
    is_partitioned = not (source / MODEL).exists()
    model = _load(sorted(source.glob(PARTITIONED))[0] if is_partitioned else source / MODEL)
    if model.get("buffer_names"):
        # `_load_checkpoint` in deepspeed/runtime/engine.py skips the module's state.
        names = ", ".join(model["buffer_names"][:3])
        sys.exit(f"DeepSpeed loads no buffers from a universal checkpoint, and there are: {names}")
    if is_partitioned:
        _write(model, [_load(path)[FLAT[0]] for path in _by_rank(source)], target)
    else:
        _run_converter(source, target)


def _load(path: Path) -> dict[str, Any]:
    import torch

    loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    return loaded


def _by_rank(source: Path) -> list[Path]:
    """The files of the optimizer's state, in the order of their ranks."""
    return sorted(
        source.glob(SHARDS), key=lambda path: int(path.name.partition("pp_rank_")[2].split("_")[0])
    )


def _run_converter(source: Path, target: Path) -> None:
    """Runs DeepSpeed's converter, without the information that only Megatron provides."""
    from deepspeed.checkpoint import ds_to_universal

    workers = ["--num_extract_workers", "1", "--num_merge_workers", "1"]
    folders = ["--input_folder", str(source), "--output_folder", str(target)]
    sys.argv = [ds_to_universal.__name__, *folders, *workers, "--inject_missing_state"]
    ds_to_universal.main(ds_to_universal.parse_arguments())


def _write(model: dict[str, Any], shards: list[dict[str, Any]], target: Path) -> None:
    """Writes the states of stage 3: each parameter in full, joined from all ranks' parts."""
    import torch

    if any(shard["partition_count"] != len(shards) for shard in shards):
        sys.exit("the parameters are partitioned over groups of ranks (hpZ), or a part is missing")
    for group, shapes in enumerate(model["param_shapes"]):
        for name, states in _whole(group, shapes, shards):
            folder = target / "zero" / name
            folder.mkdir(parents=True)
            for key, value in states.items():
                content = value if key == "step" else {"param": value, "cat_dim": 0}
                torch.save(content, folder / f"{key}.pt")
    common = {key: value for key, value in shards[0].items() if key not in FLAT}
    common["param_groups"] = shards[0][FLAT[0]]["param_groups"]
    common["ds_version"] = model["ds_version"]
    torch.save(common, target / "zero" / "optimizer_state.pt")
    torch.save({**model, "module": None}, target / MODEL)
    (target.parent / "latest_universal").write_text(target.name, encoding="utf-8")


def _whole(
    group: int, shapes: Mapping[str, Any], shards: list[dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each parameter of a group with its fp32 weights, its moments and the step.

    A rank's flat tensor holds its part of every parameter, padded to the largest part.
    """
    import torch

    states = [shard[FLAT[0]]["state"][group] for shard in shards]
    flat = {key: [state[key] for state in states] for key in MOMENTS}
    flat["fp32"] = [shard[FLAT[1]][group] for shard in shards]
    start = 0
    for name, shape in shapes.items():
        part = -(-shape.numel() // len(shards))
        parts = {
            key: [shard.narrow(0, start, part) for shard in ones] for key, ones in flat.items()
        }
        whole = {
            key: torch.cat(ones).narrow(0, 0, shape.numel()).reshape(shape).clone()
            for key, ones in parts.items()
        }
        yield name, {**whole, "step": states[0]["step"]}
        start += part


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m safe_launch.conversion INPUT OUTPUT")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
