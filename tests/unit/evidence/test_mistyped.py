"""A mistyped argument is reported with the nearest one that the parser accepts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import pytest
from safe_launch.evidence.mistyped import mistyped

OPTIONS = ("--batch_size", "--learning-rate", "-n")


def of_argparse() -> None:
    """A parser with subcommands."""
    parser = argparse.ArgumentParser(prog="train.py")
    for option in OPTIONS:
        parser.add_argument(option)
    parser.parse_args()


def of_subcommands() -> None:
    """A parser with options of a subcommand only."""
    parser = argparse.ArgumentParser(prog="train.py")
    below = parser.add_subparsers().add_parser("fit")
    below.add_argument("--epochs")
    parser.parse_args()


def of_transformers() -> None:
    """HfArgumentParser, which raises by itself."""
    from dataclasses import make_dataclass

    from transformers import HfArgumentParser

    made = make_dataclass("Own", [("max_steps", int, 3)])
    HfArgumentParser(made).parse_args_into_dataclasses()


def of_click() -> None:
    """click, which exits and discards its exception."""
    import click

    @click.group()
    def group() -> None:
        """A group with a command."""

    @group.command()
    @click.option("--batch-size", default=4)
    def fit(batch_size: int) -> None:
        """Does nothing."""

    group()


def of_typer() -> None:
    """typer, which parses by a function's signature."""
    import typer

    def train(batch_size: int = 4) -> None:
        """Does nothing."""

    typer.run(train)


def raised(call: Callable[[], object]) -> BaseException:
    """The exception that a call raises."""
    try:
        call()
    except (Exception, SystemExit) as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("parse", "line", "found"),
    [
        (of_argparse, "--batchsize 4", {"--batchsize": "--batch_size"}),
        (of_argparse, "--batch-size=4 -n 3", {"--batch-size": "--batch_size"}),
        (of_argparse, "--learning-rat 4 --lerning-rate 5", {"--lerning-rate": "--learning-rate"}),
        (of_argparse, "--something else -n4", {}),
        (of_argparse, "positional", {}),
        (of_argparse, "--help", {}),
        (of_subcommands, "fit --epoch 3 --epocs 3", {"--epocs": "--epochs"}),
        (of_transformers, "--max_stepps 4", {"--max_stepps": "--max_steps"}),
        (of_click, "fit --batchsize 4", {"--batchsize": "--batch-size"}),
        (of_typer, "--batchsize 4", {"--batchsize": "--batch-size"}),
    ],
)
def test_a_flag(
    monkeypatch: pytest.MonkeyPatch,
    parse: Callable[[], None],
    line: str,
    found: dict[str, str],
) -> None:
    """Any parser; similar flags and abbreviations aren't mistyped."""
    monkeypatch.setattr(sys, "argv", ["train.py", *line.split()])
    assert mistyped(raised(parse)) == found


class Arguments:
    """A framework's arguments."""

    def __init__(self, max_steps: int = 3, eval_strategy: str = "no") -> None:
        """Takes two arguments."""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"max_stepss": 4}, {"max_stepss": "max_steps"}),
        ({"evaluation_strategy": "no"}, {}),  # renamed in another version
        ({"surprise": 4}, {}),
    ],
)
def test_a_keyword(given: dict[str, Any], found: dict[str, str]) -> None:
    """The called function's signature decides."""
    assert mistyped(raised(lambda: Arguments(**given))) == found


def test_an_exit_for_another_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's parser that finished long ago is unrelated."""
    monkeypatch.setattr(sys, "argv", ["train.py", "--batchsize"])
    assert mistyped(raised(lambda: sys.exit(3))) == {}
    assert mistyped(raised(lambda: sys.exit(2))) == {}
    assert mistyped(raised(lambda: int("x"))) == {}
