"""Regular expressions in time linear in the text, whatever the pattern: RE2's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

MOST_MEMORY = 256 << 20
"""Bytes that the automaton of many patterns may use; that of the whole catalogue needs a tenth."""


class PatternError(ValueError):
    """A pattern that isn't one; the message says why."""


class LinearPattern:
    """A pattern of RE2's syntax, which has neither backreferences nor looking around.

    That keeps catastrophic backtracking out of a catalogue that anybody may extend
    (https://github.com/google/re2/wiki/Syntax).

    Attributes:
        pattern: its text.
    """

    def __init__(self, pattern: str) -> None:
        import re2

        self.pattern = pattern
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled = re2.compile(pattern.encode(), options)
        except re2.error as error:
            reason = error.args[0] if error.args else error
            text = reason.decode() if isinstance(reason, bytes) else str(reason)
            raise PatternError(text) from None

    def search(self, text: str, /) -> Any:
        """A match anywhere in the text, or None; half a surrogate pair is no obstacle."""
        return self._compiled.search(text.encode("utf-8", "replace"))


class LinearPatterns:
    """Many patterns that are searched in one pass over a text.

    Attributes:
        patterns: their texts.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        import re2

        self.patterns = patterns
        options = re2.Options()
        options.log_errors = False
        options.max_mem = MOST_MEMORY
        self._set = re2.Set.SearchSet(options)
        for pattern in patterns:
            self._set.Add(pattern.encode())
        self._set.Compile()

    def found(self, text: str) -> list[str]:
        """Those that match anywhere in a text."""
        places = self._set.Match(text.encode("utf-8", "replace")) or ()
        return [self.patterns[place] for place in places]


@cache
def compiled(pattern: str) -> LinearPattern:
    """The pattern of a text.

    Raises:
        PatternError: it isn't RE2's syntax.
    """
    return LinearPattern(pattern)
