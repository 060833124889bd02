"""Reads the accelerators' profiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from .documents import read_document


@dataclass(frozen=True)
class Profile:
    """Facts of one accelerator, as they stand in its file.

    Attributes:
        name: what it is called.
        environment: variables that its workers need unless the user has set them.
        sources: where the facts are from.
    """

    name: str = "???"
    environment: dict[str, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)


def read_profile(name: str) -> Profile:
    """The shipped profile of that name.

    Raises:
        DocumentError: the file doesn't follow the schema.
        FileNotFoundError: there is none of that name.
    """
    root = Path(str(files("safe_launch.hardware"))) / "accelerators"
    for path in sorted(root.rglob(f"{name}.yaml")):
        return read_document(path, path.read_text(encoding="utf-8"), Profile)
    raise FileNotFoundError(f"no profile {name} under {root}")
