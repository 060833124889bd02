"""The secrets of this launch, kept out of what the launcher prints, writes and sends."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.secrets import hidden, searched

_known: frozenset[str] = frozenset()


def learn(secrets: Iterable[str]) -> None:
    """Adds secrets that no text may have from now on."""
    global _known
    _known |= searched(secrets)


def redacted(text: str) -> str:
    """A text, or JSON, without the secrets of this launch, and without what looks like others."""
    return hidden(text, _known)
