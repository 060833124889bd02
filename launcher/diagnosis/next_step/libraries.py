"""Recognizes compiled extensions that don't fit the installed libraries."""

from __future__ import annotations

import re

from ...catalogue.package_names import MODEL_CODE, PYTHON, package_of_file, pip_name
from .step import Basis, Case, Step

SYMBOL = re.compile(
    r"(?P<library>[\w.+-]+\.so[\w.]*)\S*: undefined symbol: (?P<symbol>\w+)|DLL load failed while"
    r" importing (?P<dll>\w+)"
)
ABSENT = re.compile(r"(?P<library>lib[\w.+-]+?\.so)[\d.]*: cannot open shared object file")
LIBRARIES = (
    (r"libc10_cuda|libtorch_cuda", "a torch for CUDA"),
    (r"libc10_hip|libtorch_hip", "a torch for ROCm"),
    (r"libtorch|libc10", "another version of torch"),
    (r"libcu|libnv|libnccl", "another version of CUDA's libraries"),
    (r"libamd|libhip|libro?c|librccl", "another version of ROCm"),
    (r"libascend|libhccl|libge_|libgraph", "another version of CANN"),
)
"""Providers of compiled libraries, by the beginning of their names."""
OF_TORCH = re.compile(r"c10|torch|at4?[A-Z_]|N2at")
"""Parts of torch's C++ names."""


def compiled_part(case: Case) -> Step | None:
    """Names the library a compiled extension needs, and the remedy."""
    if case.kind not in ("ImportError", "OSError"):
        return None
    if found := SYMBOL.search(case.message):
        return _binary(case, found)
    found = ABSENT.search(case.message)
    return _without_library(case, found["library"]) if found else None


def _binary(case: Case, found: re.Match[str]) -> Step:
    """An extension built for another version of its dependency."""
    library = found["library"] or found["dll"]
    symbol = found["symbol"] or ""
    path = re.search(r"(\S+/)" + re.escape(library), case.message)
    package = package_of_file(f"{path[1]}{library}") if path else None
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
    return Step(text, Basis.INFERRED)


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
        f" {library}, which {brings} brings.",
        Basis.INFERRED,
    )
