"""The routing of the workers' output, by the user's options."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from string import Template

OUT, ERR = 1, 2
"""A worker's stdout and stderr: their descriptors, and torchrun's numbers for them."""
SHARED_CONSOLE = "SAFE_LAUNCH_SHARED_CONSOLE"
"""Environment variable of launchers on many nodes whose output comes to the same console."""
EVERY = -1
"""The key for all local ranks."""
PREFIX = "[${role_name}${local_rank}]:"
"""torchrun's prefix of lines of `--tee` (elastic/multiprocessing/tail_log.py)."""

Which = tuple[tuple[int, int], ...]
"""Streams by local rank, as the sum of their numbers; EVERY for all ranks."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Routing of the workers' output besides each rank's log.

    Attributes:
        redirected: streams that are kept from the console.
        teed: streams that are shown there with the rank as a prefix, redirected or not.
        shown: local ranks that are shown there; None for all.
        words: words by stream; lines with any of them also go to a separate file.
        folder: a folder with a file for each rank, instead of the console; None for none.
        prefix: template of the prefix of `teed`.
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
        """Whether a stream has a separate file."""
        return selects(self.teed, local, stream) or selects(self.redirected, local, stream)

    def is_headed(self, local: int, stream: int) -> bool:
        """Whether each line on the console has the rank as a prefix."""
        return selects(self.teed, local, stream)

    def head(self, local: int, rank: int, role: str) -> str:
        """The prefix of a rank's lines if several ranks' output is mixed."""
        host = os.uname().nodename
        known = {"role_name": role, "rank": rank, "local_rank": local, "hostname": host}
        return Template(self.prefix).safe_substitute(known)


def selects(which: Which, local: int, stream: int) -> bool:
    """Whether a stream of a local rank is selected."""
    streams = dict(which)
    return bool(streams.get(local, streams.get(EVERY, 0)) & stream)


def which(text: str) -> Which | None:
    """Parses torchrun's `3` or `0:1,1:2`; None if it is neither."""
    if re.fullmatch(r"[0-3]", text):
        return ((EVERY, int(text)),) if text != "0" else ()
    if not re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", text, re.ASCII):
        return None
    pairs = (part.split(":") for part in text.split(","))
    return tuple((int(local), int(streams)) for local, streams in pairs)


def words(text: str) -> tuple[str, ...]:
    """Splits words at commas; a doubled comma is a comma in a word, as in torchrun."""
    parts = text.replace(",,", "\0").split(",")
    return tuple(part.replace("\0", ",") for part in parts if part)


QUIET = 0.25
"""Seconds without further output after which an incomplete line, such as a prompt, is shown. An
unbuffered Python writes a line in two parts; on a busy machine, they should still stay together."""
LONGEST = 1024 * 1024
"""Bytes after which an incomplete line is shown."""
