"""The connections between node 0's launcher and the others: lines of JSON over TCP.

Each field is checked against its limits (`field_limits`), and control characters are removed from
texts. Anything that no launcher sends ends the connection.

A connection is also how each end knows that the other is alive: where a process ends, the kernel
closes it at once; where a host can't be reached any more, the kernel's keep-alive probes find out
(tcp(7): TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_USER_TIMEOUT). Where a launcher is stopped, its kernel
goes on answering; `liveness` finds that.
"""

from __future__ import annotations

import errno
import json
import math
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import UnionType

import msgspec

from ..core.control_sequences import cleaned
from ..core.errors import ExitCode
from ..core.plain_json import plain
from . import field_limits
from .messages import FromOthers, Message, Refusal

MAXIMUM = 64 * 1024 * 1024
"""Bytes of a message at most."""
BATCH = 64
"""Connections that are accepted at a time."""
RTT_OFFSET = 148
"""Offset of `tcpi_min_rtt` in `struct tcp_info`, in microseconds (linux/tcp.h, since Linux 4.6).

Other round-trip times count the 40 ms by which the other end may delay an acknowledgement.
"""
LONGEST_REASON = 300
"""Characters of msgspec's error at most; it quotes the message."""
UNKNOWN_RTT = 0xFFFFFFFF


@dataclass(slots=True, eq=False)
class Connection:
    """One end of a connection.

    Attributes:
        socket: the TCP socket.
        peer: the other end's name, for people.
        allowed: the messages that the other end may send.
        partial: the start of a message that isn't complete yet.
        waiting: messages that have arrived and haven't been taken yet.
        fault: why the connection has ended, as a sentence; None while it is open.
        is_foreign: it was ended because the other end sent what no launcher sends.
    """

    socket: socket.socket
    peer: str
    allowed: UnionType
    partial: bytearray = field(default_factory=bytearray)
    waiting: list[Message] = field(default_factory=list)
    fault: str | None = None
    is_foreign: bool = False

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self.socket.fileno()

    def send(self, *messages: Message) -> None:
        """Sends messages; if that fails, `fault` says why."""
        if self.fault is None:
            lines = b"".join(encoded(message) for message in messages)
            try:
                self.socket.sendall(lines)
            except OSError as error:
                self._end(error)

    def receive(self) -> list[Message]:
        """The messages that have arrived; never waits.

        Sets `fault` if the other end is gone or sends what no launcher sends; then it is refused.
        """
        while self.fault is None:
            try:
                chunk = self.socket.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError as error:
                self._end(error)
                break
            self.partial += chunk
            if not chunk:
                self._end(None)
            elif len(self.partial) > MAXIMUM:
                self._end(OSError(errno.EMSGSIZE, "a message without an end"))
        end = self.partial.rfind(b"\n") + 1
        lines = bytes(self.partial[:end]).splitlines()
        del self.partial[:end]
        found: list[Message] = []
        for line in lines:
            try:
                found.append(decoded(line, self.allowed))
            except ValueError as error:
                problem = f"sent what no launcher sends: {error}"
                self.send(Refusal(ExitCode.USAGE, f"this node {problem}"))
                self.fault, self.is_foreign = f"it {problem}", True
                break
        return found

    def delay(self) -> float:
        """Seconds that a message takes: half of the round trip as the kernel measures it."""
        try:
            info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RTT_OFFSET + 4)
            (microseconds,) = struct.unpack_from("I", info, RTT_OFFSET)
        except (OSError, struct.error):
            return 0.0
        return 0.0 if microseconds == UNKNOWN_RTT else float(microseconds) / 2e6

    def close(self) -> None:
        """Ends the connection."""
        self.fault = self.fault or "it was given up"
        self.socket.close()

    def _end(self, error: OSError | None) -> None:
        if error is None or error.errno in (errno.ECONNRESET, errno.EPIPE):
            self.fault = "its launcher has ended"
        elif isinstance(error, TimeoutError | BlockingIOError):
            self.fault = "it can't be reached any more"
        else:
            self.fault = f"the connection failed: {error.strerror or error}"


def encoded(message: Message) -> bytes:
    """A message as a line of JSON; by the json module, as texts may have lone surrogates."""
    content = {"type": type(message).__name__, **msgspec.structs.asdict(message)}
    return json.dumps(content, default=plain).encode() + b"\n"


def decoded(line: bytes, allowed: UnionType) -> Message:
    """The message in a line.

    Raises:
        ValueError: it isn't an allowed message, or a field is beyond its limits.
    """
    try:
        message: Message = msgspec.convert(cleaned(json.loads(line)), allowed)
    except msgspec.ValidationError as error:
        raise ValueError(f"none of its messages: {str(error)[:LONGEST_REASON]}") from None
    except (ValueError, RecursionError):
        raise ValueError("none of its messages: not a line of JSON") from None
    if (problem := field_limits.problem(message)) is not None:
        raise ValueError(problem)
    return message


def keep_alive(opened: socket.socket, peer: str, silence: float, allowed: UnionType) -> Connection:
    """A connection with keep-alive probes.

    Args:
        opened: a connected socket.
        peer: the other end's name, for people.
        silence: seconds after which an unreachable host counts as lost, at most.
        allowed: the messages that the other end may send.
    """
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
    return Connection(opened, peer, allowed)


def listening(port: int) -> socket.socket:
    """A socket that listens on every address of this host, IPv4 and IPv6.

    Raises:
        OSError: the port is taken or not permitted.
    """
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return _listening(port, socket.AF_INET6)
    return _listening(port, socket.AF_INET)


def _listening(port: int, family: socket.AddressFamily) -> socket.socket:
    listener = socket.create_server(
        ("", port),
        family=family,
        backlog=4096,
        dualstack_ipv6=family is socket.AF_INET6,
    )
    listener.settimeout(0)
    return listener


def arrivals(listener: socket.socket, silence: float) -> list[Connection]:
    """Accepts the oldest waiting connections; never waits."""
    found: list[Connection] = []
    with suppress(BlockingIOError):
        while len(found) < BATCH:
            try:
                opened, address = listener.accept()
            except (ConnectionError, TimeoutError):  # closed before it was accepted
                continue
            peer = address[0].removeprefix("::ffff:")
            found.append(keep_alive(opened, peer, silence, FromOthers))
    return found


def broadcast(connections: Iterable[Connection], message: Message) -> None:
    """Sends a message on every connection."""
    for connection in connections:
        connection.send(message)
