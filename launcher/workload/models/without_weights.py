"""Creates a transformers model without weights, on torch's meta device."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...core.private_names import ATTENTION


def without_weights(kind: Any, config: Any) -> Any:
    """Creates a model of a class without advancing random number generators.

    The model may adapt its configuration.

    Raises:
        Exception: the class can't be created on the meta device, or from this configuration.
    """
    import torch
    import transformers

    for part in vars(config).values():  # towers; what is imported in a meta context may fail there
        if isinstance(part, transformers.PretrainedConfig):
            transformers.MODEL_MAPPING.get(type(part), None)
    with _same_random_numbers(), torch.random.fork_rng(devices=[]), torch.device("meta"):
        try:
            return kind(config)
        except (ImportError, ValueError):  # its attention can't run on this host: it is only named
            attention = ATTENTION.of(config)
            setattr(config, ATTENTION.attribute, "eager")
            model = kind(config)
            setattr(model.config, ATTENTION.attribute, attention)
            return model


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Restores Python's and numpy's generators."""
    numpy: Any = sys.modules.get("numpy")
    states = random.getstate(), numpy and numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy:
            numpy.random.set_state(states[1])
