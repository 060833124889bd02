"""Notes the chats that are rendered before a training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import wrapt

from ...checks import chats as judged
from ...checks.chats import Chats
from ...checks.finding import Check, Finding
from ...checks.rows import Row
from ...evidence.observations import observations
from . import tokenizers
from .reporting import is_on, safely

HOOKED = ("transformers.tokenization_utils_base",)
PLACE = 4
"""The place of `add_generation_prompt` among the arguments."""
MOST = 64
"""Maximum chats to inspect."""
LONG = 20
"""Characters of a message that can't be in a text by chance."""
THOUGHTS = ("reasoning_content", "thinking")
MARKER = re.compile(r"<\|[a-z_]{3,}\|>|<(?:start|end)_of_turn>")
"""Markers of chat templates."""

noted = Chats()
"""The chats of this process."""


def install(module: ModuleType) -> None:
    """Wraps the function that renders chats."""
    left = MOST

    def rendering(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        nonlocal left
        text = wrapped(*args, **kwargs)
        if left and is_on(Check.DATA) and not observations.steps_of_all():
            left -= 1
            chats = args[0] if args else kwargs.get("conversation")
            is_asking = args[PLACE] if len(args) > PLACE else kwargs.get("add_generation_prompt")
            safely(Check.DATA, _note, chats, text, bool(is_asking))
        return text

    kind = module.PreTrainedTokenizerBase
    wrapt.wrap_function_wrapper(kind, "apply_chat_template", rendering)


def _note(chats: Any, text: Any, is_asking: bool) -> None:  # noqa: FBT001 - `safely` has no names
    """Counts a chat, or several."""
    if not isinstance(chats, list | tuple) or not chats:
        return
    if not isinstance(chats[0], Mapping):
        texts = text if isinstance(text, list) else [None] * len(chats)
        for chat, rendered in zip(chats, texts, strict=False):
            _note(chat, rendered, is_asking)
        return
    if chats[-1].get("role") != "assistant":
        return
    noted.answered += 1
    noted.asking += is_asking
    if not isinstance(text, str):
        return
    earlier = [*_parts(chats[:-1], ("content",))]
    thoughts = [*_parts(chats, THOUGHTS)]
    noted.several += bool(earlier)
    noted.dropped += any(part not in text for part in earlier)
    noted.reasoned += bool(thoughts)
    noted.thoughtless += bool(thoughts) and all(part not in text for part in thoughts)


def _parts(chat: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> Iterator[str]:
    """The longer fields of an assistant's messages."""
    values = (
        message.get(field)
        for message in chat
        if message.get("role") == "assistant"
        for field in fields
    )
    texts = (value.strip() for value in values if isinstance(value, str))
    return (text for text in texts if len(text) >= LONG)


def judgements(rows: Sequence[Row], texts: Sequence[Sequence[int]]) -> Iterator[Finding | None]:
    """Judges the chats and their markers.

    Args:
        rows: of the first batches.
        texts: the tokens of some of them.
    """
    yield judged.prompted(noted, rows)
    yield judged.shortened(noted, rows)
    markers = [MARKER.findall("".join(tokenizers.named(text))) for text in texts]
    yield judged.unknown_markers(markers, tokenizers.is_known) if tokenizers.are_known() else None
