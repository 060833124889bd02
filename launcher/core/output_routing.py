"""Which of the workers' output goes where, as the user wants it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from string import Template

OUT, ERR = 1, 2
"""A worker's stdout and stderr: their descriptors, and torchrun's numbers for them."""
EVERY = -1
"""Stands for all local ranks."""
PREFIX = "[${role_name}${local_rank}]:"
"""What torchrun puts before a line of `--tee` (elastic/multiprocessing/tail_log.py)."""

Which = tuple[tuple[int, int], ...]
"""Streams by local rank, the sum of their numbers; EVERY for all."""


@dataclass(frozen=True, slots=True)
class Streams:
    """What becomes of the workers' output besides the log of each rank.

    Attributes:
        redirected: streams that are kept from the console.
        teed: streams that are shown on it with the rank in front, redirected or not.
        shown: local ranks that are shown on it; None for all.
        words: what a line must have one of, by stream, to go to a file of such lines as well.
        folder: a folder for a file of each rank, instead of the console; None for none.
        prefix: what stands before the lines of `teed`.
    """

    redirected: Which = ()
    teed: Which = ()
    shown: frozenset[int] | None = None
    words: tuple[tuple[int, tuple[str, ...]], ...] = ()
    folder: Path | None = None
    prefix: str = PREFIX

    def is_shown(self, local: int, stream: int) -> bool:
        """Whether a stream goes to the console."""
        if self.folder is not None or (self.shown is not None and local not in self.shown):
            return False
        return selects(self.teed, local, stream) or not selects(self.redirected, local, stream)

    def is_split(self, local: int, stream: int) -> bool:
        """Whether a stream has a file of its own."""
        return selects(self.teed, local, stream) or selects(self.redirected, local, stream)

    def is_headed(self, local: int, stream: int) -> bool:
        """Whether the rank stands before each line on the console."""
        return selects(self.teed, local, stream)

    def head(self, local: int, rank: int, role: str) -> str:
        """What stands before a rank's lines where several ranks' are in one place."""
        return Template(self.prefix).safe_substitute(role_name=role, rank=rank, local_rank=local)


def selects(which: Which, local: int, stream: int) -> bool:
    """Whether a stream of a local rank is among these."""
    streams = dict(which)
    return bool(streams.get(local, streams.get(EVERY, 0)) & stream)


def which(text: str) -> Which | None:
    """The streams of torchrun's `3` or `0:1,1:2`; None where it is neither."""
    if re.fullmatch(r"[0-3]", text):
        return ((EVERY, int(text)),) if text != "0" else ()
    if not re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", text, re.ASCII):
        return None
    pairs = (part.split(":") for part in text.split(","))
    return tuple((int(local), int(streams)) for local, streams in pairs)


def words(text: str) -> tuple[str, ...]:
    """Words that are separated by commas; a comma in a word is doubled, as torchrun has it."""
    parts = text.replace(",,", "\0").split(",")
    return tuple(part.replace("\0", ",") for part in parts if part)


QUIET = 0.05
"""Seconds without further output after which an incomplete line is shown nevertheless."""


LONGEST = 1024 * 1024
"""Bytes of a line that are waited for before it is shown without its end."""
