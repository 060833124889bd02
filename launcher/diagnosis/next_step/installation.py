"""Recognizes a wrong installation: extensions that don't fit, a package absent or there twice."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...catalogue.package_names import (
    DISTRIBUTIONS,
    MODEL_CODE,
    PYTHON,
    SOURCES,
    package_of_file,
    package_of_module,
    pip_name,
)
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
NO_MODULE = re.compile(r"No module named '(?P<name>\w+)'")
LACKS = ("ImportError", "OSError", "AttributeError", "RuntimeError", "")
"""Exceptions about a missing symbol: ctypes raises AttributeError, the loader prints a line."""
COMPILED = (
    *("apex", "bitsandbytes", "causal_conv1d", "deepspeed", "flash_attn", "mamba_ssm"),
    *("torch_npu", "transformer_engine", "triton", "vllm", "xformers"),
)
"""Optional packages with a compiled part, which fits certain versions of torch."""
NONE = re.compile(
    rf"(?<![\w.])(?P<name>{'|'.join(COMPILED)}|bnb|wandb|swanlab)\.(?P<wanted>\w+)"
    r"|(?<![\w.])(?P<function>flash_attn_(?:varlen_|unpadded_)?func|(?:un)?pad_input"
    r"|causal_conv1d_\w+|selective_scan_\w+|mamba_chunk_scan_\w+)\("
)
"""What is None if its import failed: a package before a dot, or a package's function."""
BRINGS = (("flash|pad|unpad", "flash_attn"), ("causal", "causal_conv1d"), ("", "mamba_ssm"))
"""The packages of such functions, by the beginnings of their names."""
OF_NONE = re.compile(r"'NoneType' object (?:is not callable|has no attribute '(?P<wanted>\w+)')")
HIDDEN = re.compile(r"^Could not import module '(?P<name>\w+)'\. Are this object's requirements")
"""What transformers says of an import that fails, after the reason."""
OF_ROCM = re.compile(r"\d\+rocm\d|\bgfx\d{3,4}\b|\bHIP_VISIBLE_DEVICES\b")
"""Signs of an AMD device."""
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


def other_name(case: Case) -> Step | None:
    """A missing package whose name for pip isn't its module's, or that pip gets from its source."""
    match = NO_MODULE.match(case.message)
    name = match["name"] if match else ""
    if (source := SOURCES.get(name)) is not None:
        return Step(
            f"Install {name} from its source, as PyPI's package of this name is another, or none"
            " (compiled parts: see its README): `python -m pip install --no-build-isolation"
            f" git+https://github.com/{source}`."
        )
    distribution = DISTRIBUTIONS.get(name, name)
    if distribution in (name, "setuptools"):  # of which newer ones lack a part
        return None
    isolation = "--no-build-isolation " if name in COMPILED else ""
    return Step(
        f"Install {distribution}, which has the module `{name}`, with the Python that runs:"
        f" `python -m pip install {isolation}{distribution}`. If the project's clone brings it:"
        " `git submodule update --init --recursive`."
    )


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


def absent_package(case: Case) -> Step | None:
    """A failed import that was caught: None in a package's place, or words without the reason."""
    if hidden := HIDDEN.match(case.message):
        return Step(
            "See which package is missing, too old or built for another torch (mostly torchvision):"
            f' `python -c "from transformers import {hidden["name"]}"` prints its exception before'
            " this one. Then install the release of it that fits."
        )
    said = OF_NONE.match(case.message)
    if said is None or case.frame is None:
        return None
    places = NONE.finditer(case.frame.source)
    place = next((each for each in places if each["wanted"] == said["wanted"]), None)
    if place is None:
        return None
    name = {"bnb": "bitsandbytes"}.get(place["name"], place["name"])
    name = name or next(each for start, each in BRINGS if re.match(start, place["function"]))
    fits = f"install a release of {name} that fits the installed torch"
    return Step(
        f"See why {name} can't be imported here, and"
        f' {fits if name in COMPILED else "install it"}: `python -c "import {name}"`. Its import'
        f" failed, so {case.package or 'the script'} goes on with None in place of"
        f" `{place['name'] or place['function']}`."
    )


def _binary(case: Case, match: re.Match[str]) -> Step:
    """An extension built for another version of its dependency."""
    library = match["library"] or match["dll"]
    symbol = match["symbol"] or ""
    path = re.search(r"(\S+/)" + re.escape(library), case.message)
    package = package_of_file(f"{path[1]}{library}") if path else None
    if "__device_stub__" in symbol:  # a kernel's launch, which the library itself defines
        return Step(
            f"Take another release of {package or library}, or build it from source for this"
            f" device: the installed one is broken, as it lacks its own kernel (`{symbol}`)."
        )
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
    if brings == LIBRARIES[0][1] and OF_ROCM.search(case.around):
        return Step(
            f"Remove {package} (`pip uninstall {pip_name(package)}`), or install or build it for"
            f" ROCm: its usual wheel wants {library}, which only a torch for CUDA brings."
        )
    return Step(
        f"Install the build of {package} for the torch that is installed (`python -m"
        " torch.utils.collect_env` shows it), build it here, or remove it: `pip install"
        f" --no-build-isolation --force-reinstall --no-cache-dir {pip_name(package)}`. It wants"
        f" {library}, which {brings} brings."
    )


@dataclass(frozen=True, slots=True)
class Twins:
    """Two packages with classes of the same names.

    Attributes:
        first: a module of the first, as imports write it.
        second: the same module of the second.
        words: pattern of any name of either.
    """

    first: str
    second: str
    words: str


EVERY = (
    Twins("lightning.fabric", "lightning_fabric", r"lightning[._]fabric"),
    Twins(
        "lightning.pytorch",
        "pytorch_lightning",
        r"lightning\.pytorch|pytorch[_-]lightning|LightningModule",
    ),
    Twins("keras", "tf_keras", r"\b(?:tf[_.])?keras\b"),
    Twins("pydantic", "pydantic.v1", r"\bpydantic(?:\.v1)?\b"),
)
REFUSES = re.compile(
    r"\bmust be either\b|\binstances? of\b|\bsubclass(?:es)?\b|\bmust be an? |\bshould be an? "
    r"|\bexpected\b|\binvalid \w+ name\b|\bis not an? ",
    re.IGNORECASE,
)
"""Words of a check of an object's class."""
OBJECT = re.compile(r"<(?P<module>(?:\w+\.)+)\w+ object at 0x|'(?P<typed>(?:\w+\.)+)[A-Z]\w+'")
"""An object or class in a message, with its module."""


def twins(case: Case) -> Step | None:
    """A class check that an object of the package's twin fails, and the package to change."""
    if case.kind not in ("ValueError", "TypeError", "MisconfigurationException"):
        return None
    pair = next((known for known in EVERY if re.search(known.words, case.message)), None)
    if pair is None or not REFUSES.search(case.message):
        return None
    around = case.around
    names = (rf"\b{re.escape(name).replace('_', '[-_]')}\b" for name in (pair.first, pair.second))
    if not all(re.search(name, around) for name in names):
        return None
    third = _maker(case)
    first, second = pair.first, pair.second
    newer = (
        f", or take the newest {third} (`pip install -U {pip_name(third)}`), which may have moved"
        f" from {second} to {first}"
        if third
        else ""
    )
    return Step(
        f"Use one of the two packages everywhere: import {second} in place of {first} in the"
        f" script (or the other way round){newer}. {first} and {second} have classes of the"
        " same names, and neither takes an object of the other's class."
    )


def _maker(case: Case) -> str | None:
    """The third package that has made the refused object, if the message names it."""
    match = OBJECT.search(case.message)
    module = (match["module"] or match["typed"]) if match else ""
    package = package_of_module(module)
    return package if package not in (None, PYTHON, case.package) else None
