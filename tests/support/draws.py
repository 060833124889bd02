"""What a run takes of more than it has time for is drawn by the commit: each has another part."""

from __future__ import annotations

import functools
import hashlib
import subprocess

from support.stacks import ROOT


@functools.cache
def commit() -> str:
    """What is drawn by; nothing outside of a git checkout."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def draw(name: str) -> int:
    """The number, below 2**64, that this commit draws for a name."""
    return int.from_bytes(hashlib.sha256(f"{commit()} {name}".encode()).digest()[:8])
