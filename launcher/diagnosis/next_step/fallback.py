"""Advice on an unknown cause: its origin, a search text, the contents of a report."""

from __future__ import annotations

import re

from ...catalogue.device import Device
from ...catalogue.package_names import MODEL_CODE, PACKAGES, PYTHON, package_of_file
from .instruction import sentences
from .phrases import FOR_DEVELOPERS
from .run_kind import run_of
from .step import Basis, Case, Step

STEADY = {
    *(PYTHON, MODEL_CODE, "torch", "transformers", "accelerate", "deepspeed", "peft", "datasets"),
    *("lightning", "pytorch_lightning", "ray", "fire", "hydra", "requests", "urllib3"),
}
"""Packages on most call stacks, compatible in many versions."""
OF_VERSIONS = {
    *("AssertionError", "AttributeError", "KeyError", "NotImplementedError", "RuntimeError"),
    *("TypeError", "ValueError"),
}
"""Exceptions typical of incompatible package versions."""
HANDS_ON = re.compile(r"\*args, \*\*\(?kw")
"""A line that only passes on its arguments."""
QUOTED = re.compile(r"(?<!\w)'([^']*)'|\"([^\"]*)\"|`([^`]*)`")
CUT = "\0"
"""Placeholder for a value in a message."""
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
TOOLS = {
    Device.NPU: "`npu-smi info`",
    Device.ROCM: "`rocm-smi`",
    Device.XPU: "`xpu-smi discovery`",
    Device.CUDA: "`nvidia-smi`",
}
"""The command that shows a node's devices."""


def fallback(case: Case) -> Step:
    """Names the origin, a search text, and attachments for a report."""
    package, callers = _package(case), _frameworks(case)
    place = PACKAGES.get(package or "")
    where = f" at https://github.com/{place}/issues" if place else ""
    yours = case.users_frame
    led = f", called from {yours.file}:{yours.line}" if yours and package else ""
    owner = f"{_owner(case, package)}{led}"
    search = f"Search for {search_text(case)}{where}: {owner[0].lower()}{owner[1:]}"
    device = run_of(case).device
    shown = f"`pip freeze` and {TOOLS[device]} print" if device else "`pip freeze` prints"
    attach = f"In a question, give the rank's whole traceback, the command, and what {shown}"
    fit = ""
    is_of_values = case.kind != "AssertionError" and re.search(r"\d", case.message)
    if len(callers) > 1 and case.kind in OF_VERSIONS and not is_of_values:
        named = f"{', '.join(callers[1:-1])}{' and ' if callers[2:] else ''}{callers[-1]}"
        fit = (
            f"Install {callers[0]} with the versions of {named} that its documentation or"
            " requirements name, if they aren't: the call went through all of them. "
        )
    return Step(f"{fit}{search if case.message else owner}. {attach}.", Basis.OPEN)


def _frameworks(case: Case) -> tuple[str, ...]:
    """Packages on the call stack, outermost first, without those common to most stacks."""
    names = (package_of_file(frame.file) for frame in case.frames)
    return tuple(dict.fromkeys(name for name in names if name and name not in STEADY))


def _owner(case: Case, package: str | None) -> str:
    """Describes the owner of the failed line."""
    if not case.kind:
        return "The log shows no exception"
    if package:
        return f"The line that failed is in {package}"
    if case.frame is not None:
        return f"It failed in line {case.frame.line} of {case.frame.file}"
    return "The log doesn't show whose line failed"


def search_text(case: Case) -> str:
    """The exception's type and its quoted message, without parts specific to this run."""
    line = case.raised.message.strip().partition("\n")[0] or case.message
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
    return f"'{text}'" if text.isidentifier() else CUT


def _package(case: Case) -> str | None:
    """The package of the innermost frame outside the standard library; None for the script."""
    frames = (f for f in reversed(case.frames) if not HANDS_ON.search(f.source))
    names = (package_of_file(frame.file) for frame in frames)
    package = next((name for name in names if name != PYTHON), None)
    return "the code that came with the model" if package == MODEL_CODE else package
