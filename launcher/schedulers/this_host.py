"""Facts about this host for schedulers' readers, besides the environment."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Here:
    """This host's names, and whether it is used interactively.

    Attributes:
        full_name: looks up the name with domain in /etc/hosts or a resolver; may be slow.
        has_terminal: whether standard input is a terminal.
        owns: whether an address or a name is this host's own.
    """

    name: str
    full_name: Callable[[], str]
    has_terminal: bool
    owns: Callable[[str], bool]


def this_host() -> Here:
    """This host."""
    return Here(
        name=socket.gethostname(),
        full_name=socket.getfqdn,
        has_terminal=sys.stdin is not None and sys.stdin.isatty(),
        owns=owns,
    )


def owns(host: str) -> bool:
    """Whether an address or a name is this host's own, on any of its interfaces.

    An address is this host's if a socket can be bound to it. An unresolvable name is compared with
    the host's own, with and without its domain.
    """
    name = socket.gethostname()
    if host in ("localhost", name, name.partition(".")[0]):
        return True
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return not _is_address(host) and host.partition(".")[0] == name.partition(".")[0]
    for family, kind, protocol, _, address in addresses:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
