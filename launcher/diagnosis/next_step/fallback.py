"""Says where a failure came from and how to search for it, if no rule advises more."""

from __future__ import annotations

import re

from ...catalogue.package_names import (
    MODEL_CODE,
    PACKAGES,
    PYTHON,
    checkout_of,
    package_of_file,
    package_of_name,
    pip_name,
    project_of_file,
)
from ...catalogue.situation import Device
from ...catalogue.versions import versions_of
from ...evidence.failure_record import Frame
from .bare_assertion import is_bare, unmet_by
from .instruction import FOR_DEVELOPERS, sentences
from .misfit import ATTRIBUTE, PLAIN
from .script_line import is_check
from .step import Basis, Case, Step, run_of

STEADY = {
    *(PYTHON, MODEL_CODE, "torch", "transformers", "accelerate", "deepspeed", "peft", "datasets"),
    *("lightning", "pytorch_lightning", "ray", "fire", "hydra", "requests", "urllib3"),
}
"""Packages on most call stacks, compatible in many versions."""
GROUND = {"torch", "torch_npu", "numpy", "pyarrow", "pydantic", "pydantic_core", "ray", "triton"}
"""Packages that others build on, whose error is mostly about what those hand over."""
DISPATCHING = (
    "_wrapped_call_impl",
    "_call_impl",
    "wrapped_fn",
    "wrapper",
    "decorate_context",
)
"""Functions that only call others: as the last frame, the log lacks the one that raised."""
OF_SYSTEM = re.compile(r"(?:OS|IO|FileNotFound|Permission|\w*Process|Connection\w*|Timeout)Error|")
"""Exceptions of the machine's, and of a child's end."""
OF_CHECKS = ("ValueError", "KeyError", "TypeError", "Exception")
"""Exceptions by which a package refuses what it is given."""
OF_VERSIONS = {
    *("AssertionError", "AttributeError", "KeyError", "NotImplementedError", "RuntimeError"),
    *("TypeError", "ValueError"),
}
"""Exceptions typical of incompatible package versions."""
OF_LOADING = {"AttributeError", "TypeError"}
"""Those of them that a release's fault with a kind of model raises as it is loaded."""
UNPACKED = re.compile(r"values to unpack|positional arguments?\b")
"""Numbers that two versions of an interface differ by, not values of a run."""
HANDS_ON = re.compile(r"\*args, \*\*\(?kw")
"""A line that only passes on its arguments."""
QUOTED = re.compile(r"(?<!\w)'([^']*)'|\"([^\"]*)\"|`([^`]*)`")
CUT = "\0"
"""Placeholder for a value in a message."""
WHAT = re.compile(r"\bwhat\(\): *(?P<said>[^\n]+)")
"""The text of a C++ exception, after the words that all of them have."""
VALUES = re.compile(
    rf"{CUT}|<[^<>]*>|\[[^\]]*\]|\([^()]*\d[^()]*\)|(?:[A-Za-z]:)?[\w.~-]*[/\\][\w./\\~-]+"
    r"|\b0x[0-9a-fA-F]+\b|-?\b\d[\w.,:]*\b|\b\w+=\S+|[{}:;]|[.!?](?=\s+[A-Z])"
)
"""Parts of a message specific to one run: paths, numbers, assignments, most quotations; and the
ends of sentences."""
FEWEST = 3
"""Minimum words of a fragment to search for."""
MOST = 12
"""Maximum words to search for."""
OF_ASCEND = re.compile(r"\bHccl|\bHCCL|\bacl[A-Zn]|\bE[RZ]R?\d{4,5}\b|\b[Nn][Pp][Uu]\b|\bCANN\b")
"""Words of Huawei's libraries."""
TOOLS = {
    Device.NPU: "`npu-smi info`",
    Device.ROCM: "`rocm-smi`",
    Device.XPU: "`xpu-smi discovery`",
    Device.CUDA: "`nvidia-smi`",
}
"""The command that shows a node's devices."""


def fallback(case: Case) -> Step:
    """Names the origin, a search text, and attachments for a report."""
    package, yours = _package(case), case.users_frame
    place = PACKAGES.get(package or _package_of_message(case) or _framework(case) or "")
    place = place or (project_of_file(yours.file) if yours else "")
    device = run_of(case).device
    if package in ("torch", None) and device is Device.NPU and OF_ASCEND.search(case.message):
        place = PACKAGES["torch_npu"]
    where = f" at https://github.com/{place}/issues" if place else ""
    led = f", called from {yours.file}:{yours.line}" if yours and package else ""
    owner = f"{_owner(case, package)}{led}{_unsaid(case)}"
    search = f"Search for {_search_text(case)}{where}: {owner[0].lower()}{owner[1:]}"
    if case.frame is not None and is_check(case):
        line = f"line {case.frame.line} of {case.frame.file}"
        search = f"Search for {_search_text(case)}{where}: the script checks it in {line}"
    shown = f"`pip freeze` and {TOOLS[device]} print" if device else "`pip freeze` prints"
    attach = f"In a question, give the rank's whole traceback, the command, and what {shown}"
    what = search if case.message else owner
    return Step(f"{what}. {_fit(case, package) or _other_release(case)}{attach}.", Basis.OPEN)


def _fit(case: Case, package: str | None) -> str:
    """Which versions belong together, if packages of several may be the cause."""
    callers = _frameworks(case)
    is_of_values = case.kind != "AssertionError" and not UNPACKED.search(case.message)
    is_of_values = is_of_values and re.search(r"\d", case.message) is not None
    if len(callers) > 1 and case.kind in OF_VERSIONS and not is_of_values:
        named = f"{', '.join(callers[1:-1])}{' and ' if callers[2:] else ''}{callers[-1]}"
        return (
            f"Install {callers[0]} with the versions of {named} that its documentation or"
            " requirements name, if they aren't: the call went through all of them. "
        )
    if not case.frames and _is_of_releases(case):
        framework = run_of(case).framework
        named = framework.name if framework else "the project"
        return (
            f"Compare the installed versions with those that {named} names in its"
            " requirements or README: mostly its code and a package are of different releases. "
        )
    if package in PACKAGES and case.kind in OF_LOADING and any(map(is_loading, case.frames)):
        version = versions_of(case.record).get(str(package), "")
        before = f'the one before (`pip install "{pip_name(str(package))}<{version}"`)'
        return (
            f"This {package} may have a fault with this model: try"
            f" {before if version else 'the release before'}, or the newest. "
        )
    return ""


def _other_release(case: Case) -> str:
    """What mends a fault of a package's own: mostly a newer release of it."""
    outward = [f for f in reversed(case.frames) if package_of_file(f.file) not in (PYTHON, None)]
    # the packages below are given what those above them make
    faulty = next((f for f in outward if package_of_file(f.file) not in GROUND), None)
    package = package_of_file(faulty.file) if faulty else _package_of_message(case)
    package = package or _framework(case)
    is_cut = _is_dispatched(case)
    is_check = case.kind in OF_CHECKS and (
        not case.frames or case.frames[-1].source.startswith("raise ")
    )
    is_other = is_cut or is_check or OF_SYSTEM.fullmatch(case.kind)
    if case.is_users or is_other or package not in PACKAGES:
        return ""
    if faulty and (clone := checkout_of(faulty.file)):
        inside = faulty.file.replace("\\", "/").removeprefix(clone)
        if not clone.endswith(f"/{package}") and "src" not in inside.split("/"):
            return ""  # maybe a folder of the user's, of the same name
        where = "" if "_ray_pkg_" in clone else f" in {clone}"  # Ray's copy of it
        return f"Update the clone{where} (`git pull`): it may be mended in its newest code. "
    clone = ", or `git pull` in a clone" if package == _framework(case) else ""
    return (
        f"Upgrade {package} (`pip install -U {pip_name(str(package))}`{clone}), unless it is the"
        " newest already: a fault within a package is often mended there. "
    )


def _is_dispatched(case: Case) -> bool:
    """Whether the log lacks the frame that raised."""
    last = case.frames[-1] if case.frames else None
    if last is None or package_of_file(last.file) is None:
        return False
    return last.function in DISPATCHING and not last.source.startswith(("raise ", "assert "))


def _package_of_message(case: Case) -> str | None:
    """The package of a class or function in the message, if no frame is known."""
    is_shown = case.frames or case.kind == "KeyError"
    names = () if is_shown else re.findall(r"(?<![\w.])[A-Z]\w{5,}", case.message)
    return next(filter(None, map(package_of_name, names)), None)


def _framework(case: Case) -> str | None:
    """The framework of the run, if no frame is known, without those common to most runs."""
    row = None if case.frames else run_of(case).framework
    return row.packages[0] if row and row.packages[0] not in STEADY else None


def _is_of_releases(case: Case) -> bool:
    """Whether a message alone, without a traceback, speaks of code that doesn't fit a package."""
    lacks = ATTRIBUTE.match(case.message)
    return lacks is not None and lacks["type"] not in PLAIN


def is_loading(frame: Frame) -> bool:
    """Whether a library's function loads a model there."""
    return frame.function == "from_pretrained" and package_of_file(frame.file) is not None


def _frameworks(case: Case) -> tuple[str, ...]:
    """Packages on the call stack, outermost first, without those common to most stacks."""
    names = (package_of_file(frame.file) for frame in case.frames)
    return tuple(dict.fromkeys(name for name in names if name and name not in STEADY))


def _owner(case: Case, package: str | None) -> str:
    """Describes the owner of the failed line."""
    if not case.kind:
        return "The log shows no exception"
    if _is_dispatched(case):
        return "The log lacks the frame that raised, which is called there"
    if package:
        return f"The line that failed is in {package}"
    if of_message := _package_of_message(case):
        return f"The message is about {of_message}"
    if framework := _framework(case):
        return f"The run is {framework}'s, and the log doesn't show whose line failed"
    if case.frame is not None:
        return f"It failed in line {case.frame.line} of {case.frame.file}"
    return "The log doesn't show whose line failed"


def _unsaid(case: Case) -> str:
    """What an exception without a message shows by its line or function; empty for others."""
    frame = case.frame
    if frame is None or not case.kind or not is_bare(case, frame):
        return ""
    if (unmet := unmet_by(frame.source)) is not None:
        return f"; {unmet.sentence}"
    return "" if frame.function == "<module>" else f", in `{frame.function}`"


def _search_text(case: Case) -> str:
    """The exception's type and its quoted message, without parts specific to this run."""
    line = case.raised.message.strip().partition("\n")[0] or case.message
    if of_native := WHAT.search(case.message):
        line = of_native["said"]
    if case.frame is not None and case.frame.source.startswith("assert ") and line[:1] in "{[(":
        line = case.frame.source  # the message is nothing but values
    if case.kind == "KeyError" and " " in line:
        line = line.strip("'\"")  # Python quotes a whole message as if it were a key
    useful = [text for text in sentences(line) if not FOR_DEVELOPERS.search(text)]
    line = QUOTED.sub(_name_or_cut, " ".join(useful) or line)
    fragments = [" ".join(part.split()).strip(" .,!-") for part in VALUES.split(line)]
    long = sorted(
        (part for part in fragments if len(part.split()) >= FEWEST),
        key=lambda part: -len(part.split()),
    )[:2]
    chosen = [" ".join(part.split()[:MOST]) for part in fragments if part in long]
    if not chosen:
        chosen = [" ".join(filter(None, fragments))]
    quoted = " ".join(f'"{text}"' for text in chosen if text)
    return " ".join(filter(None, (case.kind, quoted)))


def _name_or_cut(quoted: re.Match[str]) -> str:
    """Keeps quoted names, which recur in other runs; cuts other quotations."""
    text = next(filter(None, quoted.groups()), "")
    return f"'{text}'" if text.replace(".", "_").isidentifier() else CUT


def _package(case: Case) -> str | None:
    """The package of the innermost frame outside the standard library; None for the script."""
    frames = (f for f in reversed(case.frames) if not HANDS_ON.search(f.source))
    names = (package_of_file(frame.file) for frame in frames)
    package = next((name for name in names if name != PYTHON), None)
    return "the code that came with the model" if package == MODEL_CODE else package
