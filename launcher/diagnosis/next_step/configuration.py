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


def configuration(case: Case) -> Step | None:
    """Which key or argument is at fault, and what to write."""
    for refusal in REFUSALS:
        if found := re.search(refusal.words, case.message):
            groups = {name: text for name, text in found.groupdict().items() if text}
            groups.setdefault("key", groups.get("other", ""))
            return Step(filled(refusal.do, groups), Basis.INFERRED)
    return None
