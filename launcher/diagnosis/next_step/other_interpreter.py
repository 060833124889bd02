"""Recognizes workers that run another Python than their launcher."""

from __future__ import annotations

import re

from .step import Case, Step

ABSENT = re.compile(r"No module named '?(?P<name>\w+)")
SPEAKER = re.compile(
    r"(?P<python>(?P<home>/[^\s:'\"]*)/bin/python[\d.]*): (?:Error while finding module|No module"
    r" named )"
)
"""The interpreter that `python -m` names in its message (runpy)."""
LAUNCHER = re.compile(
    r"(?P<home>/[^\s:'\"]*)/(?:bin/(?:torchrun|ft_launcher|accelerate|deepspeed)\b"
    r"|lib/python[\d.]+/(?:site|dist)-packages/)"
)
"""A launcher's program, or a module of its environment."""


def other_interpreter(case: Case) -> Step | None:
    """Names the environment that the launcher runs in, and the workers should."""
    absent = ABSENT.search(case.message)
    speaker = SPEAKER.search(case.around)
    launcher = LAUNCHER.search(case.around)
    if absent is None or speaker is None or launcher is None:
        return None
    home = launcher["home"]
    if home == speaker["home"] or home.startswith(("/usr", f"{speaker['home']}/local")):
        return None
    return Step(
        f"Put the launcher's environment first on PATH (`export PATH={home}/bin:$PATH`, ENV in an"
        f" image), or start the workers with {home}/bin/python: the launcher runs in {home}, the"
        f" workers run {speaker['python']}, another interpreter, without `{absent['name']}`."
    )
