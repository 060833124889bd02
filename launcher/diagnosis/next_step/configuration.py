"""Configurations and command lines that don't fit the code that reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .step import Basis, Case, Step, filled


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a reader of configurations refuses one.

    Attributes:
        words: pattern of its message; its groups fill the advice.
        do: what to do.
    """

    words: str
    do: str


OLDER = (
    "the configuration is of another version than the code: take the one that comes with the"
    " installed version"
)
REFUSALS = (
    Refusal(
        r"Key '(?P<key>[\w.]+)' is not in struct",
        f"The code reads `{{key}}`, which the configuration doesn't have: {OLDER}, or add the key"
        " (with Hydra `+...{key}=VALUE` on the command line).",
    ),
    Refusal(
        r"^['\"]?(?P<key>[\w.]+) is not a valid (?:config(?:uration)? )?key",
        "Delete `{key}` from the configuration, or correct its name: this version of the code"
        " doesn't know it.",
    ),
    Refusal(
        r"Missing mandatory value: (?P<key>[\w.]+)",
        "`{key}` must be given: write `{key}=VALUE` on the command line, or a value in the file.",
    ),
    Refusal(
        r"Interpolation key '(?P<key>[\w.]+)' not found",
        "The configuration refers to `{key}`, which isn't there: add it, or correct the reference.",
    ),
    Refusal(
        r"Could not override '(?P<key>[\w.]+)'",
        "The configuration has no `{key}`: correct its name; `+{key}=VALUE` adds a new one. Or"
        f" {OLDER}.",
    ),
    Refusal(
        r"\d+ validation errors? for (?P<of>\w+) (?P<key>[\w.\[\]-]+) (?P<why>.+?)"
        r" \[type=(?P<type>\w+)",
        "`{key}` of {of} is refused: {why}. Correct this key, or take the configuration of the"
        " installed version.",
    ),
    Refusal(
        r"unrecognized arguments: (?P<key>.+)$",
        "The program doesn't know {key}: `--help` lists what this version knows.",
    ),
    Refusal(
        r"argument (?P<key>[\w/-]+): invalid choice: (?P<value>\S+) \(choose from"
        r" (?P<choices>.+?)\)",
        "Give {key} one of {choices}, instead of {value}.",
    ),
    Refusal(
        r"the following arguments are required: (?P<key>.+)$",
        "Give {key} on the command line: it has no default.",
    ),
    Refusal(
        r"Some keys are not used by the HfArgumentParser: \[(?P<key>[^\]]+)\]",
        "The configuration has {key}, which this version doesn't know: misspelt, removed, or newer."
        " Correct it, or delete it.",
    ),
    Refusal(
        r"__init__\(\) got an unexpected keyword argument"
        r" '(?P<key>\w+)'.*(?:Config|Arguments)|^(?:\w*(?:Config|Arguments))\.__init__\(\) got an"
        r" unexpected keyword argument '(?P<other>\w+)'",
        "`{key}` isn't a setting of this version: it was renamed or removed, or came later. Its"
        " release notes and `help(...)` of the class tell.",
    ),
)
"""Readers' words, the first that fits counts."""


SCRIPT = re.compile(r"\.(?:py|pyw)\Z|^<")
"""Files that Python is meant to run."""


def configuration(case: Case) -> Step | None:
    """Which key, argument or variable is at fault, and what to write."""
    if (step := _variable(case) or _no_script(case)) is not None:
        return step
    for refusal in REFUSALS:
        if found := re.search(refusal.words, case.message):
            groups = {name: text for name, text in found.groupdict().items() if text}
            groups.setdefault("key", groups.get("other", ""))
            return Step(filled(refusal.do, groups), Basis.INFERRED)
    return None


def _variable(case: Case) -> Step | None:
    """A variable of the environment that is read and not set."""
    frame = case.frame
    name = case.message.strip("'\"")
    if case.kind != "KeyError" or not name.isidentifier() or frame is None:
        return None
    is_read = "environ[" in frame.source
    if not is_read and not (frame.is_of("/os.py") and frame.function == "__getitem__"):
        return None
    reader = frame if is_read or len(case.frames) < 2 else case.frames[-2]
    return Step(
        f"Set the variable `{name}` before the launch: `export {name}=...`, empty if nothing is to"
        f" be said. It is read in line {reader.line} of {reader.file}. On other nodes it has to be"
        " set as well.",
        Basis.INFERRED,
    )


def _no_script(case: Case) -> Step | None:
    """A file that isn't Python and was run as the script, as its option's name is missing."""
    frame = case.frame
    if case.kind != "SyntaxError" or frame is None or SCRIPT.search(frame.file):
        return None
    return Step(
        f"Write the option's name before {frame.file} (as `--hostfile {frame.file}`), and the"
        " script after the options: Python was given this file to run as the script.",
        Basis.INFERRED,
    )
