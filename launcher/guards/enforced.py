"""What the plan enforces in this worker, and what the script itself asks for of that."""

from __future__ import annotations

import functools
import os

from ..core import preset
from ..core.settings import Setting, Value


@functools.lru_cache(maxsize=4)
def _decoded(text: str) -> dict[Setting, Value]:
    return preset.decode(text)


def overrides() -> dict[Setting, Value]:
    """The settings that this worker enforces, read from the environment at every call."""
    return _decoded(os.environ.get(preset.OVERRIDES_VARIABLE, "{}"))


def replaced() -> dict[Setting, Value]:
    """What the script asks for of the settings that are enforced, where that is known."""
    return _decoded(os.environ.get(preset.REPLACED_VARIABLE, "{}"))
