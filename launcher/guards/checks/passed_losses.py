"""Compares the first losses of a loaded language model with a guess's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checks import chats
from ..callers import user_place
from ..model_facts import base_of
from .copies import Copy, copied
from .pretrained import loaded
from .reporting import report
from .texts import DECODERS, is_extended


class Guesses:
    """The first losses of a model.

    Attributes:
        is_open: whether to look at more.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._copies: list[Copy] = []

    def look(self, model: Any, output: Any) -> None:
        """Looks at a pass's loss."""
        base = base_of(model)
        loss: Any = output.get("loss") if isinstance(output, Mapping) else None
        is_loaded = base in loaded and not is_extended(base)
        is_text = type(base).__name__.endswith((*DECODERS, "ForMaskedLM"))
        if not (is_loaded and is_text) or loss is None or loss.numel() != 1:
            self.is_open = False
            return
        if len(self._copies) < chats.PASSES:
            copy = copied([loss.detach().reshape(1)])
            self._copies += [] if copy is None else [copy]
        if len(self._copies) >= chats.PASSES and all(copy.is_there for copy in self._copies):
            self.is_open = False
            values = [copy.parts()[0][0] for copy in self._copies]
            text = base.config.get_text_config()
            report(chats.by_chance(values, int(text.vocab_size)), where=user_place())
