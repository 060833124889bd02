"""The connections between node 0's launcher and the others: messages as JSON, in frames, over TCP.

First, both ends prove that they are of one job; earlier messages wait. Every frame is then
authenticated and numbered (`secure_channel`), its size is limited by its contents, each field is
checked against its limits (`sent`), and control characters are removed from texts. A message that
no launcher sends ends the connection.

The connection also shows that the other end is alive: if a process ends, the kernel closes it at
once; if a host is unreachable, the kernel's keep-alive probes detect it (tcp(7): TCP_KEEPIDLE,
TCP_KEEPINTVL, TCP_USER_TIMEOUT). If a launcher is stopped, its kernel still answers; `liveness`
detects that.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import selectors
import socket
import struct
import termios
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import UnionType
from typing import Self

import msgspec

from ..core.errors import ExitCode, Refused, reason_of
from ..core.plain_json import plain
from ..core.quotation import cleaned_json
from . import sent
from .joining import Refusal
from .messages import Message
from .secure_channel import Direction, Handshake, Keys

CHUNK = 1 << 18
"""Bytes that are read at a time."""
RTT_OFFSET = 148
"""Offset of `tcpi_min_rtt` in `struct tcp_info`, in microseconds (linux/tcp.h, since Linux 4.6).
Other round-trip times count the 40 ms by which the other end may delay an acknowledgement.
All bits are set before there is one."""
LONGEST_REASON = 300
"""Characters of msgspec's error at most; it quotes the message."""
TCP_CLOSE = 7
"""State of a connection that is over (include/net/tcp_states.h)."""


@dataclass(slots=True, eq=False)
class Connection:
    """One end of a connection.

    Attributes:
        peer: the other end's name, for people.
        allowed: the messages that the other end may send.
        waiting: messages that have arrived and haven't been taken yet.
        fault: why the connection has ended, as a sentence; None while it is open.
        is_foreign: it ended because the other end can't prove itself, or breaks the protocol.
        is_proven: the handshake is over.
    """

    socket: socket.socket
    peer: str
    allowed: UnionType
    waiting: list[Message] = field(default_factory=list)
    fault: str | None = None
    is_foreign: bool = False
    is_proven: bool = False
    _handshake: Handshake | None = None
    _needed: int = 0  # bytes that the handshake waits for
    _partial: bytearray = field(default_factory=bytearray)
    _early: list[Message] = field(default_factory=list)  # to be sent after the handshake
    _sent: Direction = field(default_factory=lambda: Direction(b""))
    _received: Direction = field(default_factory=lambda: Direction(b""))

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self.socket.fileno()

    def send(self, *messages: Message) -> None:
        """Sends messages, after the handshake; sets `fault` if that fails."""
        if not self.is_proven:
            self._early += messages
        else:
            self._write(b"".join(self._sent.sealed(encoded(message)) for message in messages))

    def receive(self) -> list[Message]:
        """The messages that have arrived; never waits, and reads no more than `CHUNK` at a time.

        Sets `fault` if the other end is gone, or is refused as none of the job's launchers.
        """
        if self.fault is None:
            try:
                size = CHUNK if self.is_proven else self._needed - len(self._partial)
                chunk = self.socket.recv(size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return []
            except OSError as error:
                self._end(error)
            else:
                self._partial += chunk
                if not chunk:
                    self._end(None)
                self._shake_hands()
        messages: list[Message] = []
        most = sent.largest(self.allowed)
        try:
            while self.is_proven and not self.is_foreign:
                if (payload := self._received.opened(self._partial, most)) is None:
                    break
                messages.append(decoded(payload, self.allowed))
        except ValueError as error:
            self.refuse(f"sent what no launcher sends: {error}")
        return messages

    def refuse(self, problem: str) -> None:
        """Ends the connection, and reports the problem to the other end."""
        self.send(Refusal(ExitCode.USAGE, f"this node {problem}"))
        self._refuse(f"it {problem}")

    def begin(self, handshake: Handshake) -> Self:
        """Begins the handshake."""
        self._handshake = handshake
        opening, self._needed = next(handshake)
        self._write(opening)
        return self

    def _shake_hands(self) -> None:
        """Continues the handshake with the bytes that have arrived."""
        while self._handshake is not None and len(self._partial) >= self._needed:
            received = bytes(self._partial[: self._needed])
            del self._partial[: self._needed]
            try:
                answer, self._needed = self._handshake.send(received)
            except StopIteration as end:
                self._handshake = None
                self._agree(end.value)
            else:
                self._write(answer)

    def _agree(self, keys: Keys | Refused) -> None:
        """Takes the handshake's result; sends the messages that have waited for it."""
        if isinstance(keys, Refused):
            self._refuse(keys.sentence)
            return
        self.is_proven = True
        self._sent, self._received = Direction(keys.sent), Direction(keys.received)
        early, self._early = self._early, []
        self.send(*early)

    def _write(self, content: bytes) -> None:
        """Sends bytes; sets `fault` if that fails."""
        if self.fault is None and content:
            try:
                self.socket.sendall(content)
            except OSError as error:
                self._end(error)

    def _refuse(self, fault: str) -> None:
        """Ignores the other end from now on."""
        self.fault, self.is_foreign = fault, True
        self._partial.clear()

    def delay(self) -> float:
        """Seconds that a message takes: half of the round trip as the kernel measures it."""
        try:
            info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RTT_OFFSET + 4)
            (microseconds,) = struct.unpack_from("I", info, RTT_OFFSET)
        except (OSError, struct.error):
            return 0.0
        return 0.0 if microseconds == 0xFFFFFFFF else float(microseconds) / 2e6

    def has_outstanding(self) -> bool:
        """Whether the other end's host hasn't acknowledged all that was sent (tcp(7), SIOCOUTQ)."""
        try:
            waiting = fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4))
            state = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:
            return False
        return any(waiting) and state != TCP_CLOSE

    def close(self) -> None:
        """Ends the connection."""
        self.fault = self.fault or "it was given up"
        self.socket.close()

    def _end(self, error: OSError | None) -> None:
        if error is None or error.errno in (errno.ECONNRESET, errno.EPIPE):
            self.fault = "its launcher has ended"
        elif isinstance(error, TimeoutError | BlockingIOError):
            self.fault = "it is no longer reachable"
        else:
            self.fault = f"the connection failed: {reason_of(error)}"


def encoded(message: Message) -> bytes:
    """A message as JSON; by the json module, as texts may have lone surrogates."""
    content = {"type": type(message).__name__, **msgspec.structs.asdict(message)}
    return json.dumps(content, default=plain).encode()


def decoded(payload: bytes, allowed: UnionType) -> Message:
    """The message in a frame.

    Raises:
        ValueError: it isn't an allowed message, too long, or a field is beyond its limits.
    """
    try:
        message: Message = msgspec.convert(cleaned_json(payload), allowed)
    except msgspec.ValidationError as error:
        raise ValueError(f"none of its messages: {str(error)[:LONGEST_REASON]}") from None
    except (ValueError, RecursionError):
        raise ValueError("none of its messages: not JSON") from None
    if (problem := sent.problem_of(message, len(payload))) is not None:
        raise ValueError(problem)
    return message


def keep_alive(opened: socket.socket, silence: float) -> None:
    """Sets keep-alive probes, by which an unreachable host is noticed within the time."""
    interval = max(1, math.floor(silence / 8))
    options = {
        socket.TCP_KEEPIDLE: interval,
        socket.TCP_KEEPINTVL: interval,
        socket.TCP_USER_TIMEOUT: max(1000, int(silence * 1000) - 2000 * interval),
        socket.TCP_NODELAY: 1,
    }
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in options.items():
        opened.setsockopt(socket.IPPROTO_TCP, option, value)
    opened.settimeout(None)  # Python's timeout would also wait before every read
    whole, part = divmod(silence, 1)
    limit = struct.pack("ll", int(whole), int(part * 1e6))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def next_message(link: Connection, seconds: float = math.inf) -> Message | None:
    """Waits for the next message; None if the time is up, or the connection has ended (`fault`)."""
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        if link.fault is None:
            selector.register(link, selectors.EVENT_READ)
        while not link.waiting and link.fault is None:
            left = end - time.monotonic()
            if not selector.select(None if left == math.inf else max(0.0, left)) and left <= 0:
                break
            link.waiting += link.receive()
    return link.waiting.pop(0) if link.waiting else None


def deliver(connections: Iterable[Connection], seconds: float) -> None:
    """Waits until the other hosts have acknowledged all messages, before the connections close.

    Closing a connection with unread messages resets it, and loses unacknowledged data (RFC 1122,
    4.2.2.13).
    """
    end = time.monotonic() + seconds
    left = [connection for connection in connections if connection.fault is None]
    while left and time.monotonic() < end:
        left = [connection for connection in left if connection.has_outstanding()]
        time.sleep(0.01 if left else 0)


def broadcast(connections: Iterable[Connection], message: Message) -> None:
    """Sends a message on every connection."""
    for connection in connections:
        connection.send(message)
