"""The environment variables that a launch over several hosts takes along."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PREFIXES = (
    # deepspeed's (EXPORT_ENVS in deepspeed/launcher/runner.py, and its accelerators' own)
    *("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL", "ASCEND", "HCCL", "LD_LIBRARY", "PATH"),
    # what a training and its frameworks read besides, and would be without on another host
    *("ACCELERATE_", "CUBLAS_", "CUDA_", "DEEPSPEED_", "DS_", "GLOO_", "HF_", "MODELSCOPE_"),
    *("OMP_", "PYTORCH_", "TOKENIZERS_", "TORCHINDUCTOR_", "TORCH_", "TRANSFORMERS_", "WANDB_"),
)
"""Beginnings of the names of variables that go to every host."""
FILE = ".deepspeed_env"
"""deepspeed's file of further variables, if DS_ENV_FILE doesn't name another."""


def exported(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that go to every host; its devices are the hostfile's business."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIXES) and not name.endswith("_VISIBLE_DEVICES")
    }


def files(environment: Mapping[str, str], home: Path, folder: Path) -> list[Path]:
    """The files of variables that are there: the one at home, then the one in the folder."""
    name = environment.get("DS_ENV_FILE", FILE)
    places = dict.fromkeys((home / name, folder / name))
    return [path for path in places if path.is_file()]


def written(text: str) -> dict[str, str]:
    """The variables of such a file: `NAME=value` in a line, quotes around the value left out.

    deepspeed hands the lines to a shell within double quotes, so a `$NAME` in a value is another
    variable's value there: `os.path.expandvars` on the host does that.
    """
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            bare = value.strip()
            quoted = len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'"
            found[name.strip()] = bare[1:-1] if quoted else bare
    return found
