"""Quotations: text from elsewhere, without a terminal's control sequences, cut to its place."""

from __future__ import annotations

import json
import re
from typing import Any

ANSI = re.compile(
    r"\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]"
    r"|[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|[ -/]*[0-~])"
)
"""Colours, cursor movements, titles and other control sequences and strings (ECMA-48, 5.3 to 5.6),
each with its parameters."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or the direction of writing."""
ESCAPES = (b"\\u", b"\\b", b"\\f", b"\\r", b"\x7f")
"""Escapes of such characters in ASCII JSON (RFC 8259, 7), which allows none below a space raw."""
PATH = re.compile(r"(?:[A-Za-z]:)?[\\/~.]*(?:[^\s'\"`,;:()\\/]+[\\/]+)+[^\s'\"`,;:()\\/]*")
MOST_OF_PATH = 48
"""Maximum characters of a path in a message that is too long."""
MOST_OF_NAME = 32
"""Maximum characters of a file's name in such a path."""


def cleaned(content: Any) -> Any:
    """A JSON document whose texts have no control characters other than line breaks and tabs."""
    if isinstance(content, str):
        return content if content.isprintable() else CONTROL.sub("", ANSI.sub("", content))
    if isinstance(content, list):
        return [cleaned(item) for item in content]
    if isinstance(content, dict):
        return {cleaned(name): cleaned(item) for name, item in content.items()}
    return content


def cleaned_json(text: bytes) -> Any:
    """The document in a JSON text, cleaned.

    Raises:
        ValueError: it isn't JSON.
        RecursionError: it is nested too deeply.
    """
    document = json.loads(text)
    may_control = not text.isascii() or any(written in text for written in ESCAPES)
    return cleaned(document) if may_control else document


def is_garbage(line: str) -> bool:
    """Whether a line is binary data: over a tenth of it isn't text, apart from colours.

    Text in another encoding than UTF-8, such as GBK, has no control characters.
    """
    text = ANSI.sub("", line)
    controls = len(CONTROL.findall(text.strip()))
    return controls > 0 and 10 * (controls + text.count("\ufffd")) > len(text)


def shortened(text: str, most: int) -> str:
    """The text, cut to `most` characters if it is longer, with an ellipsis for the rest.

    It ends after a whole word, so that no part of a path or a number is taken for the whole;
    only a word that fills half of the place is cut.
    """
    if len(text) <= most:
        return text
    kept = text[:most]
    whole = kept if text[most].isspace() else kept.rpartition(" ")[0]
    return f"{(whole if len(whole) * 2 >= most else kept).rstrip()}…"


def with_short_paths(text: str) -> str:
    """The text with long paths cut in their middle: first folders, an ellipsis, the name."""
    return PATH.sub(lambda path: _shortened_path(path[0]), text)


def _shortened_path(path: str) -> str:
    if len(path) <= MOST_OF_PATH:
        return path
    parts = re.findall(r"[^\\/]*[\\/]+|[^\\/]+$", path)
    name = parts.pop()
    if len(name) > MOST_OF_NAME:
        half = MOST_OF_NAME // 2
        name = f"{name[:half]}…{name[-half:]}"
    kept = ""
    for part in parts:
        if len(kept) + len(part) + len(name) >= MOST_OF_PATH:
            return f"{kept}…/{name}"
        kept += part
    return f"{kept}{name}"
