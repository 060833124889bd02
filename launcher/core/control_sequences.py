"""Takes terminal control sequences out of text that came from elsewhere."""

from __future__ import annotations

import re
from typing import Any

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""Colours, cursor movements and titles (ECMA-48's CSI and OSC sequences)."""


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What drives a terminal, or turns the direction of writing, instead of being shown."""


def cleaned(content: Any) -> Any:
    """A document of JSON whose texts have nothing in them but what is shown, lines and tabs."""
    if isinstance(content, str):
        return content if content.isprintable() else CONTROL.sub("", ANSI.sub("", content))
    if isinstance(content, list):
        return [cleaned(item) for item in content]
    if isinstance(content, dict):
        return {cleaned(name): cleaned(item) for name, item in content.items()}
    return content
