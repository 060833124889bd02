"""Makes a model of transformers' without its weights, on torch's meta device."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.private_names import ATTENTION

DTYPES = ("dtype", "torch_dtype")
"""The arguments that state the type of the weights."""


def configuration_of(kind: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A copy of the configuration that `from_pretrained` or `from_config` is going to use.

    Args:
        kind: the model's class.
        args: of the call.
        kwargs: of the call.
    """
    given = {name: value for name, value in kwargs.items() if name not in DTYPES}
    named = given.pop("pretrained_model_name_or_path", args[0] if args else None)
    config = given.pop("config", None) or named
    if hasattr(config, "to_dict"):
        config = copy.deepcopy(config)  # which a model adapts
    else:
        config = kind.config_class.from_pretrained(config, **given)
    attention = given.get(ATTENTION.attribute.removeprefix("_"))
    if attention:
        setattr(config, ATTENTION.attribute, attention)
    return config


def dtype_of(config: Any, kwargs: Mapping[str, Any], *, is_stored: bool) -> Any:
    """The type of the weights; None where only their files tell.

    Before version 5 transformers loaded them in torch's default type unless told otherwise.
    """
    import torch
    import transformers

    plain = torch.get_default_dtype()
    asked = next(filter(None, map(kwargs.get, DTYPES)), None)
    if asked is None and is_stored and int(transformers.__version__.partition(".")[0]) < 5:
        asked = plain
    if asked in (None, "auto"):
        own = (getattr(config, name, None) for name in DTYPES)
        asked = next(filter(None, own), None if is_stored else plain)
    asked = getattr(torch, asked.rpartition(".")[2]) if isinstance(asked, str) else asked
    return asked if isinstance(asked, torch.dtype) else None


def without_weights(kind: Any, config: Any) -> Any:
    """The model; the generators of random numbers stay as they are."""
    import torch

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
    """Puts Python's and numpy's generators back."""
    numpy: Any = sys.modules.get("numpy")
    states = random.getstate(), numpy and numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy:
            numpy.random.set_state(states[1])
