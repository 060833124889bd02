"""We have all options of the installed torchrun and deepspeed."""

from __future__ import annotations

import pytest
from safe_launch.options.foreign_options import TABLE
from safe_launch.options.option import Option
from support.stacks import STACKS, Stack
from support.their_options import TOOLS, named, theirs, unknown


@pytest.mark.parametrize("tool", TOOLS)
def test_every_option_of_theirs_is_known(stack: Stack, tool: str) -> None:
    """Each spelling, as a switch or with a value, and each PET_* variable."""
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
    """We have it, or its refusal names the equivalent."""
    assert unknown(stack, "accelerate") == []


NEWER = {"--log-line-prefix-template", "--print-completion"}
"""Options of a torch newer than the installed ones (its pull requests 191265, 191289)."""


@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.name)
def test_no_option_of_ours_is_made_up(one: Option) -> None:
    """An installed version's parser has each, for every tool named."""
    for tool in one.tools:
        found = {spelling for stack in STACKS for spelling in theirs(stack, tool)}
        is_there = not found.isdisjoint(one.spellings)
        assert is_there != (one.name in NEWER), f"{tool} and {one.name}: {is_there}"
