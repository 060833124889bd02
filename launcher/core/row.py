"""A row of what is printed."""

Row = tuple[str, str]
"""A label and its text, of one line or several."""
