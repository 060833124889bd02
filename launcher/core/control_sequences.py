"""Removes terminal control sequences from text that came from elsewhere."""

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


def cleaned(content: Any) -> Any:
    """A JSON document whose texts have no control characters other than line breaks and tabs."""
    if isinstance(content, str):
        return content if content.isprintable() else CONTROL.sub("", ANSI.sub("", content))
    if isinstance(content, list):
        return [cleaned(item) for item in content]
    if isinstance(content, dict):
        return {cleaned(name): cleaned(item) for name, item in content.items()}
    return content
