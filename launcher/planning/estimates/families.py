"""Families of trainings, and the error of their estimates."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from ...core.choices import Objective
from ...core.settings import Fact
from .model_sizes import ModelSizes


class Family(StrEnum):
    """A kind of training with similar estimate errors."""

    FULL = "full"
    """All weights are trained."""
    LORA = "lora"
    """Adapters beside 16-bit weights."""
    QUANTIZED = "quantized"
    """Adapters beside weights in fewer bits."""
    PREFERENCE = "preference"
    """Preferences, distillation, and other trainings with a second model."""
    VISION = "vision"
    """A vision-language model."""


ERRORS: Mapping[Family, float] = MappingProxyType(
    {
        Family.FULL: 0.25,
        Family.LORA: 0.3,
        Family.QUANTIZED: 0.3,
        Family.PREFERENCE: 0.2,
        Family.VISION: 0.3,
    }
)
"""Relative error not exceeded by 19 of 20 estimates of a family, from published measurements of one
sample per batch or of a known length (docs/measured/memory-published.md)."""


def family_of(sizes: ModelSizes) -> Family:
    """The family of a training: of several, the one with the largest error."""
    is_plain = sizes.workload.value(Fact.OBJECTIVE) in (None, Objective.SUPERVISED)
    if not is_plain or sizes.workload.value(Fact.FROZEN_BESIDE):
        return Family.PREFERENCE
    if sizes.model.vision is not None:
        return Family.VISION
    if sizes.quantized:
        return Family.QUANTIZED
    return Family.LORA if sizes.in_fp32 else Family.FULL
