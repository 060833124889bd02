"""Converts a checkpoint to DeepSpeed's universal format, to change ranks or stage."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path

from ..core.errors import Refused, reason_of
from ..system import regular_files
from .checkpoint import UNIVERSAL, Checkpoint

CONVERTER = "safe_launch.conversion"
WEIGHTS = (".safetensors", ".bin")


def convert(checkpoint: Checkpoint, variables: Mapping[str, str] | None = None) -> Path | Refused:
    """Creates a folder beside the checkpoint from which a Trainer can resume.

    The folder contains the universal checkpoint and the Trainer's files, without the weights, which
    DeepSpeed doesn't read. Overwrites nothing, and removes remnants of a failed conversion. Needs
    disk space for the optimizer's states and the weights in fp32.

    Args:
        checkpoint: the checkpoint to convert.
        variables: variables for the converter's environment, in addition to the launcher's.
    """
    target = _free_name(checkpoint)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        tag = regular_files.read(checkpoint.folder / "latest").decode(errors="replace").strip()
        partial.mkdir()
        # transformers looks for `global_step*` in the folder.
        folders = [checkpoint.folder.absolute() / tag, partial.absolute() / f"{tag}_universal"]
        done = subprocess.run(
            [sys.executable, "-P", "-m", CONVERTER, *map(str, folders)],
            cwd=partial,
            env={**os.environ, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            return Refused(f"no universal checkpoint could be made of it: {' '.join(last)}")
        for path in checkpoint.folder.iterdir():
            if path.is_file() and path.suffix not in WEIGHTS and path.name != "latest":
                shutil.copy2(path, partial)
        if not (partial / UNIVERSAL).is_file():
            return Refused(f"no universal checkpoint was made of it: {UNIVERSAL} is missing")
        partial.rename(target)
    except OSError as error:
        return Refused(f"{error.filename or partial}: {reason_of(error)}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _free_name(checkpoint: Checkpoint) -> Path:
    """A free name beside the checkpoint; transformers deletes only `checkpoint-*`."""
    name = f"universal-{checkpoint.step}"
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(path for path in map(checkpoint.folder.with_name, names) if not path.exists())
