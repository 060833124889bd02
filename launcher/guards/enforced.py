"""Settings that the plan enforces in this worker, and the values that they replace."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from ..core import preset
from ..core.settings import Setting, Value


@functools.lru_cache(maxsize=4)
def _decoded(text: str) -> dict[Setting, Value]:
    return preset.decode(text)


_settled: dict[Setting, Value] = {}
_settled_replaced: dict[Setting, Value] = {}


def settle(overrides: Mapping[Setting, Value], replaced: Mapping[Setting, Value]) -> None:
    """Stores the part of an answer that applies to the whole process: the checkpointing mode.

    Args:
        overrides: the settings of the answer.
        replaced: the values that they replace.
    """
    name = Setting.GRADIENT_CHECKPOINTING
    if name in overrides:
        _settled[name] = overrides[name]
    if name in replaced:
        _settled_replaced[name] = replaced[name]


def overrides() -> dict[Setting, Value]:
    """Settings this worker enforces: the plan's, read from the environment, and later answers."""
    return {**_decoded(os.environ.get(preset.OVERRIDES_VARIABLE, "{}")), **_settled}


def replaced() -> dict[Setting, Value]:
    """The script's values of the enforced settings, if known."""
    return {**_decoded(os.environ.get(preset.REPLACED_VARIABLE, "{}")), **_settled_replaced}
