"""The options of torchrun and deepspeed as installed versions have them: ours are all of them."""

from __future__ import annotations

import pytest
from safe_launch.options import table
from safe_launch.options.option import Option
from support.stacks import STACKS, Stack
from support.their_options import TOOLS, named, theirs, unknown


@pytest.mark.parametrize("tool", TOOLS)
def test_every_option_of_theirs_is_known(stack: Stack, tool: str) -> None:
    """In every spelling, as a switch or with a value, and with its PET_* variable; none is new."""
    found = theirs(stack, tool)
    assert len(found) > 20
    for spelling, one in found.items():
        own = named(spelling)
        assert own is not None, f"{tool} has a new option {spelling}"
        assert tool in own.tools, f"{spelling} is {tool}'s, too"
        assert bool(own.value) == one["has_value"], spelling
        if tool == "torchrun":
            assert own.variable == one["variable"], spelling


def test_every_option_of_accelerate_is_known(stack: Stack) -> None:
    """It is one of ours, or its refusal says how to ask for the same."""
    assert unknown(stack, "accelerate") == []


NEWER = {"--log-line-prefix-template", "--print-completion"}
"""Options of a torch that is newer than those installed here (its pull requests 191265, 191289)."""


@pytest.mark.parametrize("one", table.TABLE, ids=lambda one: one.name)
def test_no_option_of_ours_is_made_up(one: Option) -> None:
    """Each is in the parser of a version that is installed, for every tool that it is said of."""
    for tool in one.tools:
        found = {spelling for stack in STACKS for spelling in theirs(stack, tool)}
        is_there = not found.isdisjoint(one.spellings)
        assert is_there != (one.name in NEWER), f"{tool} and {one.name}: {is_there}"
