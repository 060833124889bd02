"""Notes a process's tokenizers, the tokens that a script adds, and the chats that it renders."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ...checks import passed
from ...checks.finding import Check, Finding
from ...checks.passed import Chats
from ...checks.rows import Row
from ...evidence.observations import observations
from ..callers import calling_frame
from .reporting import is_on, safely

HOOKED = ("transformers.tokenization_utils_base",)
ADDING = ("add_tokens", "add_special_tokens")
"""Functions with which scripts add tokens."""
PLACE = 4
"""The place of `add_generation_prompt` among the arguments of the function that renders chats."""
MOST = 64
"""Maximum chats to inspect."""
LONG = 20
"""Characters of a message that can't be in a text by chance."""
THOUGHTS = ("reasoning_content", "thinking")
MARKER = re.compile(r"<\|[a-z_]{3,}\|>|<(?:start|end)_of_turn>")
"""Markers of chat templates."""

_known: weakref.WeakSet[Any] = weakref.WeakSet()
added: dict[int, str] = {}
"""The tokens that a script has added, by their ids."""
noted = Chats()
"""The chats of this process."""


def install(module: ModuleType) -> None:
    """Wraps the making of tokenizers, what scripts add to them, and what renders chats."""
    kind = module.PreTrainedTokenizerBase

    def made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
        wrapped(*args, **kwargs)
        with suppress(TypeError):
            _known.add(instance)

    wrapt.wrap_function_wrapper(kind, "__init__", made)
    for name in ADDING:
        wrapt.wrap_function_wrapper(kind, name, _adding)
    wrapt.wrap_function_wrapper(kind, "apply_chat_template", _rendering)


def _adding(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    if not is_on(Check.TRAINED) or calling_frame() is None:
        return wrapped(*args, **kwargs)
    before: set[int] = set()
    safely(Check.TRAINED, lambda: before.update(instance.get_added_vocab().values()))
    known = len(instance)
    result = wrapped(*args, **kwargs)
    safely(Check.TRAINED, _note, instance, before, known)
    return result


def _note(tokenizer: Any, before: set[int], known: int) -> None:
    """Records tokens that weren't in the vocabulary."""
    tokens = tokenizer.get_added_vocab().items()
    new = {number: token for token, number in tokens if number >= known}
    added.update({number: token for number, token in new.items() if number not in before})


def ids_of(field: str) -> set[int]:
    """A field of the known tokenizers, such as `eos_token_id`."""
    found = (getattr(tokenizer, field, None) for tokenizer in _known)
    return {number for number in found if isinstance(number, int)}


def special(number: int) -> str:
    """A token that all known tokenizers have as a special one; empty for others."""
    tokens = {_special_in(tokenizer, number) for tokenizer in _known}
    return tokens.pop() if len(tokens) == 1 else ""


def _special_in(tokenizer: Any, number: int) -> str:
    marked = getattr(tokenizer, "added_tokens_decoder", {})
    is_special = number in tokenizer.all_special_ids
    is_marked = number in marked and str(marked[number]).startswith(("<", "["))
    return str(tokenizer.convert_ids_to_tokens(number)) if is_special or is_marked else ""


def is_blank(number: int) -> bool:
    """Whether a token is nothing but white space, as a template writes behind a turn."""
    return bool(_known) and all(not tokenizer.decode([number]).strip() for tokenizer in _known)


def named(numbers: Iterable[int]) -> list[str]:
    """Tokens as a known tokenizer has them."""
    tokenizer = next(iter(_known))
    return [str(tokenizer.convert_ids_to_tokens(number)) for number in numbers]


def are_known() -> bool:
    """Whether the process has a tokenizer."""
    return bool(_known)


def is_known(token: str) -> bool:
    """Whether any known tokenizer has a token."""
    for tokenizer in _known:
        number = tokenizer.convert_tokens_to_ids(token)
        if number is not None and number != getattr(tokenizer, "unk_token_id", None):
            return True
    return False


def _rendering(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    text = wrapped(*args, **kwargs)
    if noted.seen < MOST and is_on(Check.DATA) and not observations.steps_of_all():
        noted.seen += 1
        chats = args[0] if args else kwargs.get("conversation")
        is_asking = args[PLACE] if len(args) > PLACE else kwargs.get("add_generation_prompt")
        safely(Check.DATA, _note_chats, chats, text, bool(is_asking))
    return text


def _note_chats(chats: Any, text: Any, is_asking: bool) -> None:  # noqa: FBT001 - `safely` has no names
    """Counts a chat, or several."""
    if not isinstance(chats, list | tuple) or not chats:
        return
    if not isinstance(chats[0], Mapping):
        texts = text if isinstance(text, list) else [None] * len(chats)
        for chat, rendered in zip(chats, texts, strict=False):
            _note_chats(chat, rendered, is_asking)
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
    yield passed.prompted(noted, rows)
    yield passed.shortened(noted, rows)
    if are_known():
        markers = [MARKER.findall("".join(named(text))) for text in texts]
        yield passed.unknown_markers(markers, is_known)
