"""Models that transformers builds without weights, on torch's meta device.

As a program, started by `from_folder.py`: config.json on stdin, the description of its model
(`core/described_model.py`) on stdout. The model's own code is never executed.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...core.model import shape_of
from ...core.private_names import ATTENTION

CLASSES = (
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_MAPPING",
)
"""Fallback model classes by configuration class, likeliest first."""


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


def described(config: dict[str, Any]) -> dict[str, Any]:
    """Describes the model of a configuration.

    Raises:
        Exception: transformers lacks its type, or can't build it from these values.
    """
    import transformers

    whole = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(config)
    named = str(next(iter(config.get("architectures") or ()), ""))
    kind = getattr(transformers, named, None) or _class_of(transformers, whole)
    model = shape_of(without_weights(kind, whole))
    model["config"]["architectures"] = [kind.__name__]
    return model


def _class_of(transformers: Any, config: Any) -> Any:
    if type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING:
        return transformers.MODEL_MAPPING[type(config)]  # encoders can be all of them
    mappings = (getattr(transformers, name) for name in CLASSES if hasattr(transformers, name))
    return next(known[type(config)] for known in mappings if type(config) in known)


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)  # output of libraries is no part of the answer
    text = json.dumps(described(json.load(sys.stdin)))
    with open(answer, "w") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
