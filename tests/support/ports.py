"""Ports for a test that must name one before anybody listens there."""

from __future__ import annotations

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """A port that nobody gets by chance meanwhile, as the kernel gives those above 32767."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
