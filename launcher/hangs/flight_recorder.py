"""The collectives of a rank, as torch's flight recorder has them: asked for live, or from its dump.

Torch's debug server gives them as JSON. NCCL's and HCCL's process groups write a pickle for each
rank when a collective times out (`TORCH_NCCL_DEBUG_INFO_TEMP_FILE`, `TORCH_FR_DUMP_TEMP_FILE`,
`TORCH_HCCL_DEBUG_INFO_TEMP_FILE`); `_dump_fr_trace_json` gives the same as JSON. The rank is the
number at the end of the file's name, as in torch's own analyzer
(torch/distributed/flight_recorder/components/loader.py).
"""

from __future__ import annotations

import collections
import io
import json
import pickle
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from ..core.errors import Refused, reason_of
from ..evidence import inquiry
from ..evidence.failure_record import Frame
from ..progress.board import Phase
from ..system import regular_files, unix_sockets
from .stacks import user_files
from .standing import Collective, Standing

_HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
"""Torch's handlers for its two recorders: that of gloo and other backends (since 2.10,
control_plane/Handlers.cpp), and NCCL's (ProcessGroupNCCLUtils; only if NCCL is built in)."""
UNKNOWN = "its collectives aren't known"
DONE = 64
"""Finished collectives of a group that are kept, the latest."""
LARGEST_ANSWER = 64 << 20
"""Bytes of an answer; 2000 collectives, torch's default, are one megabyte."""
LARGEST_DUMP = 256 << 20
"""Maximum bytes of a dump; ten thousand collectives with stacks are about 50 MB."""
MOST_DUMPS = 100_000
"""Maximum dumps to read."""
_HEAD = 4096
_LONGEST = 1000
"""Maximum characters of a place."""
_RANK = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle|pt|dump))?$")
_KEYS = (b"entries", b"pg_config", b"nccl_comm_state", b"hccl_comm_state", b"comm_lib_version")
"""Keys of a recorder's document (torch/csrc/distributed/c10d/FlightRecorder.hpp)."""
_CONTAINERS: Mapping[tuple[str, str], Any] = {
    ("builtins", "dict"): dict,
    ("builtins", "list"): list,
    ("builtins", "tuple"): tuple,
    ("builtins", "set"): set,
    ("collections", "OrderedDict"): collections.OrderedDict,
    # As torch's C++ pickler writes lists of numbers (torch/jit/_pickle.py).
    ("torch.jit._pickle", "build_intlist"): list,
    ("torch.jit._pickle", "build_doublelist"): list,
    ("torch.jit._pickle", "build_boollist"): list,
    ("torch.jit._pickle", "restore_type_tag"): lambda value, _type: value,
}


def collectives(folder: Path, rank: int, seconds: float) -> tuple[Collective, ...] | Refused:
    """The entries of a rank's flight recorders, oldest first in each."""
    end = monotonic() + seconds
    try:
        answers = [_requested(folder, rank, handler, end) for handler in _HANDLERS]
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
        unix_sockets.at_folder(folder, inquiry.name_of(rank)) as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
    ):
        connection.settimeout(max(0.01, end - monotonic()))
        connection.connect(path)
        connection.sendall(
            f"POST /handler/{handler} HTTP/1.1\r\nHost: rank-{rank}\r\n"
            "Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        received = bytearray()
        while len(received) < LARGEST_ANSWER:
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


class _PlainUnpickler(pickle.Unpickler):
    """Reads only containers, numbers and strings, as foreign pickles could run code."""

    def find_class(self, module: str, name: str) -> Any:
        """A container's type; raises UnpicklingError for anything else."""
        known = _CONTAINERS.get((module.replace("__builtin__", "builtins"), name))
        if known is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no recorder writes")
        return known


def _is_dump(path: Path) -> bool:
    """Whether a file looks like a flight recorder's dump."""
    try:
        if _RANK.search(path.name) is None or not path.is_file():
            return False
        with regular_files.opened(path) as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head.lstrip()[:1] in (b"\x80", b"{") and any(key in head for key in _KEYS)


def find(paths: Sequence[str]) -> tuple[Path, ...]:
    """The dumps among files and below folders, each rank's newest."""
    newest: dict[int, Path] = {}
    for file in filter(_is_dump, regular_files.files_below([*map(Path, paths)]).files):
        rank = _rank(file)
        if rank not in newest or newest[rank].stat().st_mtime < file.stat().st_mtime:
            newest[rank] = file
    return tuple(newest[rank] for rank in sorted(newest)[:MOST_DUMPS])


def of_ranks(prefix: str, ranks: Iterable[int]) -> tuple[Path, ...]:
    """Dumps written by these ranks."""
    return tuple(filter(_is_dump, (Path(f"{prefix}{rank}") for rank in ranks)))


def standings(files: Iterable[Path]) -> tuple[Standing, ...] | Refused:
    """Standings of the ranks with dumps."""
    result, problems = [], []
    for file in files:
        document = read(file)
        if isinstance(document, Refused):
            problems.append(document.sentence)
        else:
            result.append(_standing(_rank(file), document))
    if not result:
        return Refused("; ".join(problems) or "there is no dump of a flight recorder")
    return tuple(result)


def read(file: Path) -> Mapping[str, Any] | Refused:
    """A recorder's document, from a pickle or from JSON."""
    try:
        content = regular_files.read(file, LARGEST_DUMP)
        if content.lstrip()[:1] == b"{":
            document = json.loads(content)
        else:
            document = _plain(_PlainUnpickler(io.BytesIO(content)).load())
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return Refused(f"{file} can't be read: {reason_of(error)}")
    except Exception as error:  # a broken pickle may raise anything
        return Refused(f"{file} is no flight recorder's dump: {reason_of(error)}")
    if not isinstance(document, dict) or not isinstance(document.get("entries"), list):
        return Refused(f"{file} is no flight recorder's dump: it has no entries")
    return document


def _plain(value: Any) -> Any:
    """A pickled document as it would be in JSON: tuples become lists."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return value


def _standing(rank: int, document: Mapping[str, Any]) -> Standing:
    """A rank's standing from its dump, with the stack of its first unfinished collective."""
    every = tuple(parsed(document))
    entries = [entry for entry in document["entries"] if isinstance(entry, dict)]
    pending = [at for at, entry in enumerate(every) if not entry.is_retired]
    frames = tuple(_frames(entries[pending[0]])) if pending else ()
    last = tuple(_frames(entries[-1])) if entries and not pending else ()
    files = user_files(last)
    spot = next((frame for frame in reversed(last) if frame.file in files), None)
    problem = f"it was last seen at {spot.file}:{spot.line} in {spot.function}" if spot else ""
    return Standing(
        rank,
        phase=Phase.TRAINING,
        frames=frames,
        own_files=user_files(frames),
        collectives=tuple(latest(iter(every))),
        problem=problem[:_LONGEST],
    )


def _frames(entry: Mapping[str, Any]) -> Iterator[Frame]:
    """The Python stack of a collective's call, outermost first; torch has the innermost first."""
    frames = entry.get("frames")
    for frame in reversed(frames if isinstance(frames, list) else []):
        if isinstance(frame, dict):
            file, line = str(frame.get("filename", "")), frame.get("line")
            name = str(frame.get("name", ""))
            yield Frame(file, line if isinstance(line, int) else 0, name, "")


def _rank(file: Path) -> int:
    match = _RANK.search(file.name)
    assert match is not None, "only dumps come here"
    return int(match[1])
