"""Regular expressions of linear time, and the texts that they match as prose."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

MOST_MEMORY = 256 << 20
"""Maximum bytes of the automaton; the whole catalogue's needs a tenth of it."""
ANY = "…"
NUMBER = "N"
FREE = {ANY, NUMBER, " "}
"""Placeholders for varying text or white space; repetitions are merged."""
ESCAPES = {
    **dict.fromkeys("dD", NUMBER),
    **dict.fromkeys("wWSpPC", ANY),
    **dict.fromkeys("sntrfv", " "),
    **dict.fromkeys("bBAzQE", ""),
}
"""Texts for RE2's escapes that don't represent themselves."""
QUOTES = set("'\"`")
MOST = 5
"""Maximum alternatives to show within a message."""
FLAGS = re.compile(r"\?(?:P?<(\w+)>|[a-zA-Z-]*(?::|\)))")
QUANTIFIER = re.compile(r"([*+?]|\{\d+(?:,\d*)?\})[?]?")


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


def plain(pattern: str) -> tuple[str, ...]:
    """The messages matched by a pattern, one per alternative at its top level.

    N represents a number, an ellipsis anything, parentheses optional parts or a choice.
    Not for matching.
    """
    texts: list[str] = []
    for text in _PatternReader(pattern).alternatives():
        texts += text[1:-1].split(" | ") if _is_enclosed(text) else [text]
    return tuple(text for text in dict.fromkeys(map(_tidied, texts)) if text)


def _tidied(text: str) -> str:
    text = re.sub(rf"{ANY}( ?{ANY})+", ANY, " ".join(text.split()))
    text = re.sub(r"(?<=[a-z])n\.t\b", "n't", text)  # an apostrophe of either kind
    return text.strip(f"{ANY} ")


def _is_enclosed(text: str) -> bool:
    """Whether a pair of parentheses encloses the whole text."""
    depths = list(itertools.accumulate((char == "(") - (char == ")") for char in text))
    return text.startswith("(") and depths.index(0) == len(text) - 1 if 0 in depths else False


class _PatternReader:
    """A pattern and the current position."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def alternatives(self) -> list[str]:
        """The text up to the end or to the closing parenthesis, split at the bars.

        Optional parts at the beginning are omitted: usually a log's prefixes.
        """
        texts = [""]
        while self.at < len(self.pattern) and self.pattern[self.at] != ")":
            if self.pattern[self.at] == "|":
                self.at += 1
                texts.append("")
                continue
            text, may_be_absent = self.piece()
            if not may_be_absent:
                texts[-1] += text
            elif texts[-1].strip(f"{ANY} "):
                texts[-1] += text if text in FREE or _is_enclosed(text) or not text else f"({text})"
        return texts

    def piece(self) -> tuple[str, bool]:
        """A part with its quantifier, and whether it is optional."""
        is_dot = self.pattern[self.at] == "."
        text, may_be_absent = self.atom()
        quantifier = QUANTIFIER.match(self.pattern, self.at)
        if quantifier is None:
            return text, may_be_absent
        self.at = quantifier.end()
        if is_dot:
            return ("", True) if quantifier[1] == "?" else (ANY, False)
        if quantifier[1] == "?" and len(text) == 1 and not text.isalnum():
            return text.strip("'\"`…"), False  # a quote or a space in some versions
        is_least_none = quantifier[1][0] in "*?" or quantifier[1].startswith("{0")
        return text, may_be_absent or (is_least_none and text not in FREE)

    def atom(self) -> tuple[str, bool]:
        """A character, class or group, and whether it is optional."""
        sign = self.pattern[self.at]
        self.at += 1
        match sign:
            case "\\":
                escaped = self.pattern[self.at : self.at + 1]
                self.at += 1
                return ESCAPES.get(escaped, escaped), False
            case "[":
                return self.characters(), False
            case "(":
                return self.group()
            case "^" | "$":
                return "", False
            case _:
                return sign, False

    def group(self) -> tuple[str, bool]:
        """The text of a group: its name if it has one; empty for flags."""
        head = FLAGS.match(self.pattern, self.at)
        if head is not None:
            self.at = head.end()
            if head[0].endswith(")"):
                return "", False
        texts = list(dict.fromkeys(self.alternatives()))
        self.at += 1
        if head is not None and head[1]:
            return f"<{head[1]}>", "" in texts
        choices = [text for text in texts if text]
        if len(choices) > MOST:
            choices = [*choices[: MOST - 1], ANY]
        if len(choices) > 1 and any(set(text) & {" ", "/"} for text in choices):
            return f"({' | '.join(choices)})", "" in texts
        return "/".join(choices), "" in texts

    def characters(self) -> str:
        """The text of a character class: a character, a choice of a few, or a placeholder."""
        end = self.pattern.index("]", self.at + 1)
        while self.pattern[end - 1] == "\\" and self.pattern[end - 2] != "\\":
            end = self.pattern.index("]", end + 1)
        inner, self.at = self.pattern[self.at : end], end + 1
        if re.fullmatch(r"(0-9|\\d|a-f|A-F|x|\.|,)+", inner) and ("0-9" in inner or "d" in inner):
            return NUMBER
        letters = re.sub(r"\\([^a-zA-Z])", r"\1", inner)
        if inner.startswith("^") or "\\" in letters or re.search(r"\w-\w", letters):
            return ANY
        kinds = list(dict.fromkeys(letters.lower()))
        return letters[0] if len(kinds) == 1 or set(letters) <= QUOTES else "/".join(kinds)
