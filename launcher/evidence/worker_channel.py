"""A worker's end of the channel to its launcher: a socket in a folder that only its user can enter.

Nobody else can connect, nor keep the launcher busy with attempts to.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from .socket_folder import at_folder
from .worker_messages import Message, encoded

VARIABLE = "SAFE_LAUNCH_CHANNEL"
"""Environment variable with the socket's path, for the workers."""


class Sender:
    """The worker's end; sending never raises, since the training matters more."""

    def __init__(self, path: str | None, rank: int) -> None:
        self._rank = rank
        # A bare descriptor: Python would warn of an unclosed socket at the script's end.
        self._descriptor: int | None = None
        if path:
            folder, name = os.path.split(path)
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with suppress(OSError), connection, at_folder(folder, name) as reachable:
                connection.connect(reachable)
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
