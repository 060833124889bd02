"""The collectives of a rank, from torch's flight recorder, which its debug server gives as JSON."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from ..core.errors import Refused, reason_of
from ..evidence import inquiry, socket_folder
from .standing import Collective

HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
"""Torch's handlers for its two recorders: that of gloo and other backends (since 2.10,
control_plane/Handlers.cpp), and NCCL's (ProcessGroupNCCLUtils; only if NCCL is built in)."""
UNKNOWN = "its collectives aren't known"
DONE = 64
"""Finished collectives of a group that are kept, the latest."""
MOST = 64 << 20
"""Bytes of an answer; 2000 collectives, torch's default, are one megabyte."""


def collectives(folder: Path, rank: int, seconds: float) -> tuple[Collective, ...] | Refused:
    """The entries of a rank's flight recorders, oldest first in each."""
    end = monotonic() + seconds
    try:
        answers = [_requested(folder, rank, handler, end) for handler in HANDLERS]
        bodies = [body for status, body in answers if status == 200]
        entries = [entry for body in bodies for entry in latest(parsed(msgspec.json.decode(body)))]
    except FileNotFoundError:
        return Refused(f"{UNKNOWN}: it has no torch that reports them (2.8 or newer)")
    except TimeoutError:
        return Refused(f"{UNKNOWN}: torch's debug server there doesn't answer")
    except (OSError, ValueError) as error:
        return Refused(f"{UNKNOWN}: {reason_of(error)}")
    if not bodies:
        return Refused(f"{UNKNOWN}: this version of torch doesn't report them")
    return tuple(entries)


def parsed(document: Any) -> Iterator[Collective]:
    """The entries of a recorder's JSON; fields that a version of torch lacks are empty."""
    document = document if isinstance(document, dict) else {}
    configured = document.get("pg_config")
    groups = configured if isinstance(configured, dict) else {}
    for entry in _listed(document.get("entries")):
        if isinstance(entry, dict):
            yield _collective(entry, groups)


def latest(entries: Iterator[Collective]) -> list[Collective]:
    """Without those long done: other ranks can't be that far behind in the same group."""
    every = list(entries)
    left = {collective.group: DONE for collective in every}
    kept = []
    for collective in reversed(every):
        if collective.is_retired:
            left[collective.group] -= 1
        if not collective.is_retired or left[collective.group] >= 0:
            kept.append(collective)
    return kept[::-1]


def _collective(entry: Mapping[str, Any], groups: Mapping[str, Any]) -> Collective:
    named = entry.get("process_group")
    group = [str(part) for part in _listed(named)] or [str(named or "")]
    config = groups.get(group[0])
    members = config.get("ranks") if isinstance(config, dict) else None
    is_message = entry.get("is_p2p") is True
    number = entry.get("p2p_seq_id" if is_message else "collective_seq_id", entry.get("seq_id"))
    return Collective(
        number=number if isinstance(number, int) else 0,
        kind=str(entry.get("profiling_name", "")).rpartition(":")[2],
        shapes=tuple(_numbers(shape) for shape in _listed(entry.get("input_sizes"))),
        dtypes=tuple(str(name) for name in _listed(entry.get("input_dtypes"))),
        group=" ".join(part for part in group if part),
        is_retired=entry.get("retired") is True or entry.get("state") == "completed",
        is_message=is_message,
        ranks=_numbers(members),
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _numbers(value: Any) -> tuple[int, ...]:
    """Numbers of a list, or of a text like "[0, 1]"."""
    return tuple(map(int, re.findall(r"\d+", str(value or ""))))


def _requested(folder: Path, rank: int, handler: str, end: float) -> tuple[int, bytes]:
    """Status and body of the server's answer.

    Raises:
        OSError: there is no server, or it doesn't answer in time.
        ValueError: it answers with something else.
    """
    with (
        socket_folder.at_folder(folder, inquiry.name_of(rank)) as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
    ):
        connection.settimeout(max(0.01, end - monotonic()))
        connection.connect(path)
        connection.sendall(
            f"POST /handler/{handler} HTTP/1.1\r\nHost: rank-{rank}\r\n"
            "Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        received = bytearray()
        while len(received) < MOST:
            connection.settimeout(max(0.01, end - monotonic()))
            chunk = connection.recv(1 << 18)
            if not chunk:
                break
            received += chunk
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    if len(words) < 2 or not words[1].isdigit():
        raise ValueError("torch's debug server there broke off")
    return int(words[1]), body
