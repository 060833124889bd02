"""The environment variables that a launch on several hosts exports to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PREFIXES = (
    # deepspeed's (EXPORT_ENVS in deepspeed/launcher/runner.py, and its accelerators' own)
    *("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL", "ASCEND", "HCCL", "LD_LIBRARY", "PATH"),
    # what else a training and its frameworks read, and another host wouldn't have
    *("ACCELERATE_", "CUBLAS_", "CUDA_", "DEEPSPEED_", "DS_", "GLOO_", "HF_", "MODELSCOPE_"),
    *("OMP_", "PYTORCH_", "TOKENIZERS_", "TORCHINDUCTOR_", "TORCH_", "TRANSFORMERS_", "WANDB_"),
)
"""Prefixes of the names of variables that go to every host."""
FILE = ".deepspeed_env"
"""deepspeed's file of further variables, unless DS_ENV_FILE names another file."""


def exported(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that go to every host; those on devices don't, the hostfile chooses them."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIXES) and not name.endswith("_VISIBLE_DEVICES")
    }


def files(environment: Mapping[str, str], home: Path, folder: Path) -> list[Path]:
    """The existing files of variables: first at home, then in the folder."""
    name = environment.get("DS_ENV_FILE", FILE)
    places = dict.fromkeys((home / name, folder / name))
    return [path for path in places if path.is_file()]


def parsed(text: str) -> dict[str, str]:
    """The variables in such a file: one `NAME=value` a line; quotes around a value are removed.

    deepspeed passes the lines to a shell in double quotes, so a `$NAME` in a value is expanded on
    the host; `os.path.expandvars` does the same.
    """
    variables = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            bare = value.strip()
            quoted = len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'"
            variables[name.strip()] = bare[1:-1] if quoted else bare
    return variables
