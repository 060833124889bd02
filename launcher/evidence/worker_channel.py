"""A worker's end of the channel to its launcher: a socket without a file.

The socket is in Linux's abstract namespace: nothing is left in the temporary folder, and a full
disk doesn't lose the evidence.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from .worker_messages import Message, encoded

VARIABLE = "SAFE_LAUNCH_CHANNEL"
"""Environment variable with the socket's name, for the workers."""


class Sender:
    """The worker's end; sending never raises, since the training matters more."""

    def __init__(self, name: str | None, rank: int) -> None:
        self._rank = rank
        # A bare descriptor: Python would warn of an unclosed socket at the script's end.
        self._descriptor: int | None = None
        if name:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with suppress(OSError), connection:
                connection.connect("\0" + name)
                self._descriptor = connection.detach()

    def send(self, message: Message) -> None:
        """Sends a message to the launcher."""
        if self._descriptor is None:
            return
        rest = memoryview(encoded(self._rank, message))
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self._descriptor = None
