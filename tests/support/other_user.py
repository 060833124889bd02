"""What another user of the host does; only root can act as one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

OTHER = 54321
"""The other user, and their group."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@contextmanager
def as_other_user() -> Iterator[None]:
    """Makes files, and opens them, as another user."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(OTHER)
    os.seteuid(OTHER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
