"""Keeps the secrets of this launch out of printed, written and sent texts."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.secrets import hidden, searched

_known: frozenset[str] = frozenset()


def learn(secrets: Iterable[str]) -> None:
    """Adds secrets to be removed from all texts."""
    global _known
    _known |= searched(secrets)


def redacted(text: str) -> str:
    """A text, or JSON, without the secrets of this launch and others recognized by format."""
    return hidden(text, _known)
