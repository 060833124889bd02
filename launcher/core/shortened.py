"""A quotation that is too long for its place."""

from __future__ import annotations


def shortened(text: str, most: int) -> str:
    """The text, of at most so many characters and an ellipsis, which says that more follows.

    It ends after a whole word, so that no part of a path or a number is taken for the whole;
    only a word that fills half of the place is cut.
    """
    if len(text) <= most:
        return text
    kept = text[:most]
    whole = kept if text[most].isspace() else kept.rpartition(" ")[0]
    return f"{(whole if len(whole) * 2 >= most else kept).rstrip()}…"
