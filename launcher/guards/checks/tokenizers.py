"""Notes the tokenizers of a process, the tokens that a script adds, and the chats it writes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ..callers import calling_frame
from .reporting import is_on, safely

HOOKED = ("transformers.tokenization_utils_base",)
ADDING = ("add_tokens", "add_special_tokens")
"""Functions with which scripts add tokens."""

_known: weakref.WeakSet[Any] = weakref.WeakSet()
added: dict[int, str] = {}
"""The tokens that a script has added, by their ids."""


def install(module: ModuleType) -> None:
    """Wraps the making of tokenizers, and what scripts add to them."""
    kind = module.PreTrainedTokenizerBase

    def made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
        wrapped(*args, **kwargs)
        with suppress(TypeError):
            _known.add(instance)

    wrapt.wrap_function_wrapper(kind, "__init__", made)
    for name in ADDING:
        wrapt.wrap_function_wrapper(kind, name, _adding)


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


def ends() -> set[int]:
    """The end-of-text tokens of the known tokenizers."""
    found = (getattr(tokenizer, "eos_token_id", None) for tokenizer in _known)
    return {end for end in found if isinstance(end, int)}


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
    """Tokens as the known tokenizers have them, or their ids."""
    tokenizer = next(iter(_known), None)
    if tokenizer is None:
        return [str(number) for number in numbers]
    return [str(tokenizer.convert_ids_to_tokens(number)) for number in numbers]


def paddings() -> set[int]:
    """The padding tokens of the known tokenizers."""
    found = (getattr(tokenizer, "pad_token_id", None) for tokenizer in _known)
    return {pad for pad in found if isinstance(pad, int)}


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
