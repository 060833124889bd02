"""Command line errors use the words that were typed."""

from __future__ import annotations

import re

import pytest
from safe_launch.commands.registry import COMMANDS, run
from safe_launch.core.errors import LaunchError
from safe_launch.options.parser import Parser, parsed, parser

INTERNAL = re.compile(r"^argument\b|\bdo\b:|_\w+ value|expected one argument|\bdest\b")
ACTIONS = ("lessons", "runs", "warm")
"""Commands whose first word is an action."""


@pytest.mark.parametrize("name", ACTIONS)
def test_a_misspelt_action(name: str) -> None:
    """The error has the typed word and a suggestion."""
    with pytest.raises(LaunchError) as caught:
        run([name, "lsit"])
    assert caught.value.problem.startswith("`lsit` is none of list, ")
    assert caught.value.hint == "did you mean `list`?"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_points_to_its_own_help(name: str) -> None:
    """The launch's help lacks a command's options."""
    with pytest.raises(LaunchError) as caught:
        run([name, "--frobnicate"])
    assert caught.value.hint.startswith(f"safe-launch {name} --help lists the options")
    assert not INTERNAL.search(caught.value.problem)


def test_words_between_and_behind_options() -> None:
    """Options may be anywhere; words after `--` are none."""
    warm, diagnose = (COMMANDS[name].parser() for name in ("warm", "diagnose"))
    assert warm.read(["list", "--json", "train"]).script == "train"
    assert diagnose.read(["--", "-odd.log"]).paths == ["-odd.log"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--ssh_port", "many"), "--ssh-port: `many` isn't a whole number"),
        (("--num_gpus=two",), "--num-gpus: `two` isn't a whole number"),
        (("--fix", "never"), "--fix: `never` is none of auto, once, suggest"),
        (("--set",), "--set: a value is needed"),
        (("--strict=yes",), "--strict: ignored explicit argument 'yes'"),
    ],
)
def test_wrong_values(words: tuple[str, ...], expected: str) -> None:
    """The error has the option, the value and the expected form."""
    with pytest.raises(LaunchError) as caught:
        parsed(words)
    assert caught.value.problem == expected


@pytest.mark.parametrize("value", ["abc", "-1", "nan", "inf", "1e999"])
def test_amounts(value: str) -> None:
    """The error asks for a number and names no function."""
    with pytest.raises(LaunchError) as caught:
        run(["runs", "prune", f"--keep={value}"])
    assert caught.value.problem == f"--keep: a number of at least 0 is expected, not `{value}`"


def test_no_option_names_a_function() -> None:
    """No error for any option has argparse's or internal names."""
    options = [action for action in parser()._actions if action.option_strings and action.type]
    assert len(options) > 20
    for action in options:
        told = ""
        try:
            parsed([f"{action.option_strings[-1]}=\u2026"])
        except LaunchError as error:
            told = error.problem
        assert not INTERNAL.search(told)


def test_words_of_later_pythons() -> None:
    """Python 3.12 and later print choices without quotes."""
    with pytest.raises(LaunchError, match=r"^`x` is none of list, stop$"):
        Parser(prog="p").error("argument do: invalid choice: 'x' (choose from list, stop)")


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--num_machines=2", "accelerate's --num_machines is --nnodes here"),
        ("--gpu-ids", "accelerate's --gpu-ids is CUDA_VISIBLE_DEVICES here"),
        ("--mixed_precision=bf16", "--accelerate-config FILE"),
        ("--fsdp_version", "--accelerate-config FILE"),
        ("--tpu", "only `accelerate launch` starts workers there"),
        ("--nprok", "did you mean `--nproc`?"),
    ],
)
def test_an_option_of_accelerate(option: str, expected: str) -> None:
    """The error names the equivalent option."""
    with pytest.raises(LaunchError) as caught:
        parsed([option, "train.py"])
    assert expected in caught.value.hint
