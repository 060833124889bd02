"""A row of printed output."""

Row = tuple[str, str]
"""A label and its text, of one or more lines."""
