"""Recognizes a launcher and workers that run different Pythons."""

from __future__ import annotations

import re

from .step import Case, Step

ABSENT_MODULE = re.compile(r"No module named '?(?P<name>\w+)")
SPEAKER = re.compile(
    r"(?P<python>(?P<home>/[^\s:'\"]*)/bin/python[\d.]*): (?:Error while finding module|No module"
    r" named )"
)
"""The interpreter that `python -m` names in its message (runpy)."""
BINARY = re.compile(r"\bof binary: (?P<python>/\S*python[\d.]*)")
"""The workers' interpreter in torchrun's report."""
LAUNCHER = re.compile(
    r"(?P<home>/[^\s:'\"]*)/(?:bin/(?:torchrun|ft_launcher|accelerate|deepspeed)\b"
    r"|lib/python[\d.]+/(?:site|dist)-packages/)"
)
"""A launcher's program, or a module of its environment."""


def other_interpreter(case: Case) -> Step | None:
    """Names the environment that the launcher runs in, and the workers should."""
    absent = ABSENT_MODULE.search(case.message)
    speaker = SPEAKER.search(case.around)
    launcher = LAUNCHER.search(case.around)
    if absent is not None and speaker is None:
        return _of_another_torchrun(case, absent["name"])
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


def _of_another_torchrun(case: Case, name: str) -> Step | None:
    """A package whose own command started, and that the workers' Python doesn't have."""
    own = re.search(
        rf"\b{name}\.\w+(?:\.\w+)*(?::\d+)? ?(?:- |>> )|^\W*{name}-cli \w", case.around, re.M
    )
    binary = BINARY.search(case.around)
    if own is None or binary is None:
        return None
    return Step(
        "Put the environment that has the package first on PATH (`export"
        " PATH=$CONDA_PREFIX/bin:$PATH`), or remove the other torchrun (`which -a torchrun`):"
        f" `{name}` itself started the workers, whose Python, {binary['python']}, doesn't have it."
    )
