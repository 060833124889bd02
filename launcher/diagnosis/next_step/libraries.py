"""Recognizes compiled extensions that don't fit the installed libraries."""

from __future__ import annotations

import re

from ...catalogue.package_names import MODEL_CODE, PYTHON, package_of_file, pip_name
from ...evidence.failure_record import FailureRecord
from .step import Case, Step

SYMBOL = re.compile(
    r"(?P<library>[\w.+-]+\.so[\w.]*)\S*: undefined symbol: (?P<symbol>\w+)|DLL load failed while"
    r" importing (?P<dll>\w+)"
)
ABSENT = re.compile(
    r"(?P<file>(?P<library>lib[\w.+-]+?\.so)[\d.]*): cannot open shared object file"
)
VAGUE = re.compile(
    r"\b(?:fail|could(?: not|n't)|cannot|can't|unable|not (?:available|found|supported|loaded)|no"
    r" module|initiali[sz]|import|load|setup)",
    re.IGNORECASE,
)
"""Words of an exception that a missing library may have led to."""
OPTIONAL = re.compile(r"/Plugin|[Pp]lugin|NCCL INFO|\b(?:falling back|using internal|skipping)\b")
"""A library that something tries first and does without."""
NEAR = 30
"""Maximum lines between the two."""
LIBRARIES = (
    (r"libc10_cuda|libtorch_cuda", "a torch for CUDA"),
    (r"libc10_hip|libtorch_hip", "a torch for ROCm"),
    (r"libtorch|libc10", "another version of torch"),
    (r"libcu|libnv|libnccl", "another version of CUDA's libraries"),
    (r"libamd|libhip|libro?c|librccl", "another version of ROCm"),
    (r"libascend|libhccl|libge_|libgraph", "another version of CANN"),
)
"""Providers of compiled libraries, by the beginning of their names."""
OWNERS = (
    (r"nccl[A-Z]", "NCCL"),
    (r"[Hh]ccl[A-Z]", "CANN (HCCL)"),
    (r"acl|rt[A-Z]|ge[A-Z]|_ZN\w*?2ge|[Mm]sprof", "CANN"),
    (r"hip[A-Z]|roc[a-z]|miopen", "ROCm"),
    (r"cuda[A-Z]|cublas|cudnn|cusparse|cusolver|nvrtc|__nv|__cuda|cu[A-Z]", "CUDA's library"),
    (r"MPI_|ompi_|PMIx?_", "MPI"),
    (r"ibv_|rdma_|efadv_", "the RDMA libraries"),
)
"""Libraries by the beginnings of their functions' names."""
LACKS = ("ImportError", "OSError", "AttributeError", "RuntimeError", "")
"""Exceptions about a missing symbol: ctypes raises AttributeError, the loader prints a line."""
OF_TORCH = re.compile(r"c10|torch|at4?[A-Z_]|N2at")
"""Parts of torch's C++ names."""


def compiled_part(case: Case) -> Step | None:
    """Names the library a compiled extension needs, and the remedy."""
    if case.kind in LACKS and (match := SYMBOL.search(case.message)):
        return _binary(case, match)
    if case.kind not in ("ImportError", "OSError"):
        return None
    match = ABSENT.search(case.message)
    return _without_library(case, match["library"]) if match else None


def missing_library(case: Case) -> Step | None:
    """A library missing in the lines before a vaguer exception."""
    line = missing_line(case.record)
    match = ABSENT.search(line)
    if match is None:
        return None
    name = match["file"]
    brings = next((who for names, who in LIBRARIES if re.match(names, name)), None)
    whose = f" ({brings} brings it)" if brings else ""
    return Step(
        f"Put the folder that has {name}{whose} on `LD_LIBRARY_PATH`, or install a build of what"
        f" fails here that doesn't need it: the log has “{line}” before. `find / -name '{name}*'"
        " 2>/dev/null` shows whether one is there."
    )


def missing_line(record: FailureRecord) -> str:
    """The line on a missing library before a vaguer exception; empty if none."""
    if not record.exception or ABSENT.search(record.message) or not VAGUE.search(record.message):
        return ""
    lines = (line for line in record.log_tail[-NEAR:] if not OPTIONAL.search(line))
    return next((match[0] for line in lines if (match := ABSENT.search(line))), "")


def _binary(case: Case, match: re.Match[str]) -> Step:
    """An extension built for another version of its dependency."""
    library = match["library"] or match["dll"]
    symbol = match["symbol"] or ""
    path = re.search(r"(\S+/)" + re.escape(library), case.message)
    package = package_of_file(f"{path[1]}{library}") if path else None
    owner = next((who for words, who in OWNERS if re.match(words, symbol)), None)
    if owner is not None:
        return _of_owner(library, package, symbol, owner)
    other = "torch" if OF_TORCH.search(symbol) else "what it calls"
    text = f"{package or library} was built for another version of {other}: "
    if package:
        command = "pip install --no-build-isolation --force-reinstall --no-cache-dir"
        text += (
            f"install its build for this one, or build it here (`{command} {pip_name(package)}`)."
        )
    else:
        text += (
            "its path says what it belongs to; install the version of that which fits the others."
        )
    return Step(text)


def _of_owner(library: str, package: str | None, symbol: str, owner: str) -> Step:
    """A library that lacks a function which came later, or went."""
    wants = package or library
    return Step(
        f"Upgrade {owner} to the version that {wants} was built for, or install a build of {wants}"
        f" for the installed one: {library} was built for another version of {owner}, mostly a"
        f" newer one, as the {owner} that is loaded has no `{symbol}`. `ldd` shows which copy is"
        " loaded; an older one first on LD_LIBRARY_PATH hides the right one."
    )


def _without_library(case: Case, library: str) -> Step | None:
    """An extension built for another platform, whose library is missing."""
    names = (package_of_file(frame.file) for frame in reversed(case.frames))
    brings = next((who for names, who in LIBRARIES if re.match(names, library)), None)
    package = next(
        (name for name in names if name not in (None, PYTHON, MODEL_CODE, "torch")), None
    )
    if brings is None or package is None:
        return None
    return Step(
        f"Install the build of {package} for the torch that is installed (`python -m"
        " torch.utils.collect_env` shows it), build it here, or remove it: `pip install"
        f" --no-build-isolation --force-reinstall --no-cache-dir {pip_name(package)}`. It wants"
        f" {library}, which {brings} brings."
    )
