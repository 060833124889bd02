"""What a run draws by its commit: each another part, the same commit always the same one."""

from __future__ import annotations

import functools
import hashlib
import subprocess

from support.stacks import ROOT


def is_drawn(name: str, parts: int) -> bool:
    """Whether this commit draws what has that name: one of so many."""
    digest = hashlib.sha256(f"{commit()} {name}".encode()).digest()
    return int.from_bytes(digest[:4]) % parts == 0


@functools.cache
def commit() -> str:
    """What is drawn by; empty outside of a git checkout."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
