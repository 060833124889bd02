"""The options of torchrun, deepspeed and accelerate as installed versions have them."""

from __future__ import annotations

import json
from functools import cache

from safe_launch.options.foreign_options import TABLE
from safe_launch.options.option import Option
from safe_launch.options.parser import parser
from safe_launch.options.usage_errors import accelerate_hint

from support.stacks import ROOT, Stack

TOOLS = ("torchrun", "deepspeed")


@cache
def theirs(stack: Stack, tool: str) -> dict[str, dict[str, object]]:
    """What the parser of an installed version has, by spelling."""
    done = stack.run("python", ROOT / "tests" / "programs" / "parsers.py", tool, cwd=ROOT / "tests")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {spelling: one for one in found for spelling in one["spellings"]}


def named(spelling: str) -> Option | None:
    """The option of ours that is spelt so."""
    return next((one for one in TABLE if spelling in one.spellings), None)


def unknown(stack: Stack, tool: str) -> list[str]:
    """Their options that are neither ours nor refused with what to write in their place."""
    if tool in TOOLS:
        return [spelling for spelling in theirs(stack, tool) if named(spelling) is None]
    ours = parser().spellings
    return [
        spelling
        for spelling in theirs(stack, tool)
        if spelling not in ours and not accelerate_hint(spelling)
    ]
