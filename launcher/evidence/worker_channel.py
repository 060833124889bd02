"""A worker's end of the channel to its launcher: a socket in a folder private to its user.

Other users can't connect or flood the launcher.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from contextlib import suppress

from ..system.unix_sockets import at_folder
from .worker_messages import Answer, Ask, Message, WentOn, encoded

VARIABLE = "SAFE_LAUNCH_CHANNEL"
"""Environment variable with the socket's path, for the workers."""
CHUNK = 65536


class Sender:
    """The worker's end. Sending and asking never raise, to protect the training.

    If several threads ask at the same time, one of them reads for all.
    """

    def __init__(self, path: str | None, rank: int) -> None:
        self._rank = rank
        # A bare descriptor, as Python would warn of an unclosed socket at exit.
        self._descriptor: int | None = None
        self._owner = os.getpid()
        self._answers: dict[str, Answer] = {}
        self._arrived = threading.Condition()
        self._is_read = False  # by a thread
        self._partial = b""
        if path:
            folder, name = os.path.split(path)
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with suppress(OSError), connection, at_folder(folder, name) as reachable:
                connection.connect(reachable)
                self._descriptor = connection.detach()
        self._is_answered = self._descriptor is not None

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

    def ask(self, question: Ask, seconds: float) -> Answer | None:
        """Waits for the launcher's answer; None on timeout.

        A worker's forks don't ask: they would take their parent's answers. After one timeout,
        nothing is asked any more, and the launcher is informed. The question must have a new key.
        """
        if not self._is_answered or os.getpid() != self._owner:
            return None
        self.send(question)
        end = time.monotonic() + seconds
        with self._arrived:
            while (answer := self._answers.pop(question.key, None)) is None:
                left = end - time.monotonic()
                if left <= 0 or not self._is_answered:
                    self._is_answered = False
                    break
                if self._is_read:
                    self._arrived.wait(left)
                else:
                    self._read(left)
        if answer is None:
            self.send(WentOn(question.key))
        return answer

    def _read(self, seconds: float) -> None:
        """Reads messages until the timeout, while other threads may look for theirs.

        The lock is held before and after, but not during the wait.
        """
        self._is_read = True
        self._arrived.release()
        chunk = None
        try:
            chunk = self._chunk(seconds)
        finally:  # Ctrl-C may come here
            self._arrived.acquire()
            self._is_read = False
            self._arrived.notify_all()
        if chunk is not None:
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            for line in lines:
                with suppress(TypeError, ValueError):  # one that was cut off is no answer
                    answer = Answer(**json.loads(line))
                    self._answers[answer.key] = answer
            self._is_answered = self._is_answered and bool(chunk)

    def _chunk(self, seconds: float) -> bytes | None:
        """Received bytes; empty if the launcher is gone, None on timeout."""
        if self._descriptor is None:
            return b""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        try:
            return os.read(self._descriptor, CHUNK) if poll.poll(seconds * 1000) else None
        except OSError:
            return b""
