"""What the plan enforces in this worker, and what the script itself asks for instead."""

from __future__ import annotations

import functools
import os

from ..core import preset
from ..core.settings import Setting, Value


@functools.lru_cache(maxsize=4)
def _decoded(text: str) -> dict[Setting, Value]:
    return preset.decode(text)


def overrides() -> dict[Setting, Value]:
    """The settings that this worker enforces, read from the environment on each call."""
    return _decoded(os.environ.get(preset.OVERRIDES_VARIABLE, "{}"))


def replaced() -> dict[Setting, Value]:
    """The script's own values of the enforced settings, where they are known."""
    return _decoded(os.environ.get(preset.REPLACED_VARIABLE, "{}"))
