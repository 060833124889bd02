"""A quotation that is too long for its place."""

from __future__ import annotations

import re

PATH = re.compile(r"(?:[A-Za-z]:)?[\\/~.]*(?:[^\s'\"`,;:()\\/]+[\\/]+)+[^\s'\"`,;:()\\/]*")
MOST_OF_PATH = 48
"""Maximum characters of a path in a message that is too long."""
MOST_OF_NAME = 32
"""Maximum characters of a file's name in such a path."""


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
