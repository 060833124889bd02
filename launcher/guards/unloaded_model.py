"""Determines the configuration and dtype of a model that transformers is about to create."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.private_names import ATTENTION

DTYPES = ("dtype", "torch_dtype")
"""Arguments that state the weights' dtype."""


def configuration_of(kind: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A copy of the configuration `from_pretrained` or `from_config` will use."""
    options = {name: value for name, value in kwargs.items() if name not in DTYPES}
    named = options.pop("pretrained_model_name_or_path", args[0] if args else None)
    config = options.pop("config", None) or named
    if hasattr(config, "to_dict"):
        config = copy.deepcopy(config)  # which a model adapts
    else:
        config = kind.config_class.from_pretrained(config, **options)
    attention = options.get(ATTENTION.attribute.removeprefix("_"))
    if attention:
        setattr(config, ATTENTION.attribute, attention)
    return config


def dtype_of(config: Any, kwargs: Mapping[str, Any], *, is_stored: bool) -> Any:
    """The weights' dtype; None if only their files determine it.

    Before version 5, transformers loaded weights in torch's default dtype.
    """
    import torch
    import transformers

    plain = torch.get_default_dtype()
    dtype = next(filter(None, map(kwargs.get, DTYPES)), None)
    if dtype is None and is_stored and int(transformers.__version__.partition(".")[0]) < 5:
        dtype = plain
    if dtype in (None, "auto"):
        dtypes = (getattr(config, name, None) for name in DTYPES)
        dtype = next(filter(None, dtypes), None if is_stored else plain)
    dtype = getattr(torch, dtype.rpartition(".")[2]) if isinstance(dtype, str) else dtype
    return dtype if isinstance(dtype, torch.dtype) else None
