"""The catalogue: one known failure a Markdown file."""
