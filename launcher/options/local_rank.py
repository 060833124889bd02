"""Decides whether a script gets its local rank as an argument, as from deepspeed's launcher."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..core.request import LaunchRequest
from ..workload.script.given import PARSERS
from ..workload.script.user_files import imported, tree_of, user_files

SPELLINGS = ("--local_rank", "--local-rank")
"""deepspeed's, then that of torch.distributed.launch."""


def option(request: LaunchRequest) -> str:
    """The option by which the script gets its local rank; empty for none.

    Only a script that declares it, itself or in a module of its own folder, gets it: others would
    fail with an unknown argument. transformers' parsers read LOCAL_RANK, and subcommands have their
    own options.
    """
    if request.is_program or any(_is_given(spelling, request.arguments) for spelling in SPELLINGS):
        return ""
    declared: set[str] = set()
    for path in dict.fromkeys(user_files(request)):
        tree = tree_of(path)
        if tree is not None:
            if set(imported(tree)) & PARSERS or _mentions(tree, {*PARSERS, "add_subparsers"}):
                return ""
            declared |= _declared(tree)
    return next((spelling for spelling in SPELLINGS if spelling in declared), "")


def _is_given(option: str, arguments: Sequence[str]) -> bool:
    return any(argument == option or argument.startswith(f"{option}=") for argument in arguments)


def _mentions(tree: ast.Module, names: set[str]) -> bool:
    """Whether a file uses one of these names, alone or as an attribute."""
    return any(
        (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.Attribute) and node.attr in names)
        for node in ast.walk(tree)
    )


def _declared(tree: ast.Module) -> set[str]:
    """The options in a file's `add_argument(...)` that are literals."""
    return {
        word.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_argument"
        for word in node.args
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    }
