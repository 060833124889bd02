"""Reads flight recorders' dumps into standings, which are attributed like live ones.

NCCL's and HCCL's process groups write a pickle for each rank when a collective times out
(`TORCH_NCCL_DEBUG_INFO_TEMP_FILE`, `TORCH_FR_DUMP_TEMP_FILE`, `TORCH_HCCL_DEBUG_INFO_TEMP_FILE`);
torch's debug server and `_dump_fr_trace_json` give the same as JSON. The rank is the number at the
end of the file's name, as in torch's own analyzer (torch/distributed/flight_recorder/components/
loader.py).
"""

from __future__ import annotations

import collections
import io
import json
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import Refused, reason_of
from ..evidence.failure_record import Frame
from ..progress.board import Phase
from ..system import files_below, regular_files
from .attribution import attributed
from .recorder import latest, parsed
from .report import HangReport
from .stacks import user_files
from .standing import Standing

LARGEST = 256 << 20
"""Maximum bytes of a dump; ten thousand collectives with stacks are about 50 MB."""
MOST = 100_000
"""Maximum dumps to read."""
HEAD = 4096
LONGEST = 1000
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


class _PlainUnpickler(pickle.Unpickler):
    """Reads only containers, numbers and strings, as foreign pickles could run code."""

    def find_class(self, module: str, name: str) -> Any:
        """A container's type; raises UnpicklingError for anything else."""
        known = _CONTAINERS.get((module.replace("__builtin__", "builtins"), name))
        if known is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no recorder writes")
        return known


def is_dump(path: Path) -> bool:
    """Whether a file looks like a flight recorder's dump."""
    try:
        if _RANK.search(path.name) is None or not path.is_file():
            return False
        with regular_files.opened(path) as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return head.lstrip()[:1] in (b"\x80", b"{") and any(key in head for key in _KEYS)


def find(paths: Sequence[str]) -> tuple[Path, ...]:
    """The dumps among files and below folders, each rank's newest."""
    newest: dict[int, Path] = {}
    for file in filter(is_dump, files_below.find([*map(Path, paths)]).files):
        rank = _rank(file)
        if rank not in newest or newest[rank].stat().st_mtime < file.stat().st_mtime:
            newest[rank] = file
    return tuple(newest[rank] for rank in sorted(newest)[:MOST])


def of_ranks(prefix: str, ranks: Iterable[int]) -> tuple[Path, ...]:
    """Dumps written by these ranks."""
    return tuple(filter(is_dump, (Path(f"{prefix}{rank}") for rank in ranks)))


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


def report_on(dumped: Sequence[Standing]) -> HangReport:
    """Attributes the hang by dumps of some or all ranks."""
    members = {
        rank for standing in dumped for entry in standing.collectives or () for rank in entry.ranks
    }
    absent = [
        Standing(rank, phase=Phase.TRAINING, problem="it has left no dump")
        for rank in members - {standing.rank for standing in dumped}
    ]
    return attributed([*dumped, *absent], quiet=0.0, limit=0.0)


def read(file: Path) -> Mapping[str, Any] | Refused:
    """A recorder's document, from a pickle or from JSON."""
    try:
        content = regular_files.read(file, LARGEST)
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
        problem=problem[:LONGEST],
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
