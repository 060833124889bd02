"""Edits to the user's files or command line."""

from __future__ import annotations

from msgspec import Struct

COMMAND_LINE = "the script's arguments"


class Edit(Struct, frozen=True):
    """A place in the user's files or command line, and what to write there.

    Attributes:
        place: file, file and line, or the command line.
        text: what to write.
        file: the file's whole path; empty if it isn't known, or if there is none.
        line: of a file in Python, the line of the call or the value.
        values: of a configuration file, the keys, with dots between levels, and their values.
    """

    place: str
    text: str
    file: str = ""
    line: int = 0
    values: dict[str, str | int | bool] = {}

    @property
    def is_argument(self) -> bool:
        """Whether it is for the script's command line."""
        return self.place == COMMAND_LINE

    @property
    def is_python(self) -> bool:
        """Whether it is a line of Python, which is left to its author."""
        return self.file.endswith(".py")

    @property
    def is_written(self) -> bool:
        """Whether it is in a file that `safe-launch fix --apply` writes."""
        return bool(self.file) and not self.is_python

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"
