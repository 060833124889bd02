"""A pseudo-terminal in the place of a pipe, for a worker whose output goes to a terminal.

It isn't a controlling terminal: Ctrl-C reaches the launcher alone, and closing it hangs up no
process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import termios
import tty
from contextlib import suppress

SIZE = b"\0" * 8
"""A `struct winsize`: rows, columns, and two numbers that nobody uses (ioctl_tty(2))."""


def opened(console: int) -> tuple[int, int] | None:
    """A pseudo-terminal of the console's size: the descriptor to read from, and the worker's.

    What is written comes out unchanged, since the console itself makes line ends of it. None
    if a pipe has to do: the console is no terminal, the pseudo-terminal would become this
    process's controlling one, or there is none to be had, e.g. in a container without /dev/pts.
    """
    if not os.isatty(console) or _would_control():
        return None
    try:
        reader, writer = os.openpty()
    except OSError:
        return None
    tty.setraw(writer)
    resize(reader, console)
    return reader, writer


def resize(reader: int, console: int) -> None:
    """Gives it the size that the console has by now."""
    with suppress(OSError):  # the console is gone
        size = fcntl.ioctl(console, termios.TIOCGWINSZ, SIZE)
        fcntl.ioctl(reader, termios.TIOCSWINSZ, size)


def read(reader: int, size: int) -> bytes:
    """Bytes written to a pipe or pseudo-terminal; empty once it is closed.

    Raises:
        OSError: it can't be read.
    """
    try:
        return os.read(reader, size)
    except OSError as error:
        if error.errno != errno.EIO:  # a pseudo-terminal's end (Linux)
            raise
        return b""


def _would_control() -> bool:
    """Whether a terminal that this process opens becomes its controlling terminal."""
    if os.getsid(0) != os.getpid():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return True
    return False
