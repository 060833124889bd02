"""RE2's regular expressions, which match in linear time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

MOST_MEMORY = 256 << 20
"""Maximum bytes of the automaton; the whole catalogue's needs a tenth of it."""


class PatternError(ValueError):
    """An invalid pattern; the message has the reason."""


class LinearPattern:
    """A pattern in RE2's syntax, which has neither backreferences nor lookaround.

    Prevents catastrophic backtracking in a catalogue that anyone may extend
    (https://github.com/google/re2/wiki/Syntax).
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    @cached_property
    def _compiled(self) -> Any:
        """The compiled pattern, created lazily, as most are never searched.

        Raises:
            PatternError: the syntax isn't RE2's.
        """
        import re2

        options = re2.Options()
        options.log_errors = False
        try:
            return re2.compile(self.pattern.encode(), options)
        except re2.error as error:
            reason = error.args[0] if error.args else error
            text = reason.decode() if isinstance(reason, bytes) else str(reason)
            raise PatternError(text) from None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the pattern's groups."""
        return tuple(name.decode() for name in self._compiled.groupindex)

    def search(self, text: str, /) -> Any:
        """A match anywhere in the text, or None; the text may have lone surrogates.

        Raises:
            PatternError: the pattern isn't RE2's syntax.
        """
        return self._compiled.search(text.encode("utf-8", "replace"))

    def groups(self, text: str) -> dict[str, str] | None:
        """The matched named groups of the first match; None without a match."""
        match = self.search(text)
        if match is None:
            return None
        groups = match.groupdict().items()
        return {name.decode(): part.decode() for name, part in groups if part is not None}


class LinearPatterns:
    """Many patterns, searched in one pass over a text."""

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

    def matching(self, text: str) -> list[str]:
        """The patterns that match anywhere in a text."""
        places = self._set.Match(text.encode("utf-8", "replace")) or ()
        return [self.patterns[place] for place in places]


@cache
def compiled(pattern: str) -> LinearPattern:
    """Compiles a pattern, cached."""
    return LinearPattern(pattern)
