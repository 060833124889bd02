"""Puts a worker's local rank before the script's arguments, as deepspeed's launcher does."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Sequence

from ..workload.script.user_files import files_of, imported, tree_of
from . import deepspeed

LOCAL_RANK = "${local_rank}"
"""What a worker fills in, as under torchrun."""
SPELLINGS = ("--local_rank", "--local-rank")
"""deepspeed's, then that of torch.distributed.launch."""
FORM = [option.key for option in (*deepspeed.HOSTS, *deepspeed.WORKERS) if not option.instead]
"""The options that make a command line one of deepspeed's."""
STRICT = {"parse_args", "Fire", "click", "typer"}
"""Parsers that refuse an option which the script doesn't declare, by a name that it then has."""
OTHERS = {"parse_known_args", "parse_known_intermixed_args", "HfArgumentParser", "TrlParser"}
"""Parsers that don't, or whose options are declared elsewhere: TrainingArguments has this one."""


def with_local_rank(options: argparse.Namespace) -> list[str]:
    """The script's arguments, in deepspeed's form of a command line with the local rank.

    The form decides, as its launcher does: torchrun gives nothing, deepspeed gives it to every
    script. Only one that is seen to refuse the option isn't given it here.
    """
    given: list[str] = list(options.arguments)
    is_asked = not options.no_local_rank and not any(_is_given(name, given) for name in SPELLINGS)
    if options.script is None or not is_asked or not any(getattr(options, key) for key in FORM):
        return given
    spelling = (
        SPELLINGS[0] if options.no_python else _spelling(options.script, is_module=options.module)
    )
    return [f"{spelling}={LOCAL_RANK}", *given] if spelling else given


def _is_given(option: str, arguments: Sequence[str]) -> bool:
    return any(argument == option or argument.startswith(f"{option}=") for argument in arguments)


def _spelling(script: str, *, is_module: bool) -> str:
    """How a script spells the option; empty where it is seen to have no such option."""
    names: set[str] = set()
    for path in dict.fromkeys(files_of(script, is_module=is_module)):
        tree = tree_of(path)
        names |= set() if tree is None else {*imported(tree), *_names(tree)}
    if SPELLINGS[0] in names or names & OTHERS:
        return SPELLINGS[0]
    if SPELLINGS[1] in names or {"local_rank", "typer"} <= names:
        return SPELLINGS[1]  # typer makes an option of the parameter's name
    return "" if names & STRICT and "local_rank" not in names else SPELLINGS[0]


def _names(tree: ast.Module) -> Iterator[str]:
    """What a file uses by name or attribute, its parameters, fields, and the literals of calls."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.Call(args=arguments):
                for word in arguments:
                    if isinstance(word, ast.Constant) and isinstance(word.value, str):
                        yield word.value
