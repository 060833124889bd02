"""Describes the model that transformers builds from a configuration, without its weights.

Runs in a process started by `by_transformers.py`: config.json on stdin, the description
(`core/model.py`) on stdout. The model's own code is never executed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ...core.model import shape_of
from .without_weights import without_weights

CLASSES = (
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_MAPPING",
)
"""Fallback model classes by configuration class, likeliest first."""


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
