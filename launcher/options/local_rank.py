"""Passes a worker's local rank before the script's arguments, like deepspeed."""

from __future__ import annotations

import argparse
import ast
from dataclasses import dataclass, field

from ..workload.script.user_files import files_of, imported, tree_of
from . import deepspeed

LOCAL_RANK = "${local_rank}"
"""The placeholder that a worker replaces, as under torchrun."""
SPELLINGS = ("--local_rank", "--local-rank")
"""The spelling of deepspeed, then of torch.distributed.launch."""
FORM = [option.key for option in (*deepspeed.HOSTS, *deepspeed.WORKERS) if not option.instead]
"""Options that identify a deepspeed command line."""
OTHERS = {"parse_known_args", "parse_known_intermixed_args", "HfArgumentParser", "TrlParser"}
"""Parsers that accept any option, or a library's options: TrainingArguments has it."""


def with_local_rank(options: argparse.Namespace) -> list[str]:
    """The script's arguments, with the local rank for a deepspeed command line.

    As torchrun passes no local rank and deepspeed always does, the form of the command line
    decides. Scripts seen to refuse the option don't get it.
    """
    arguments: list[str] = list(options.arguments)
    is_stated = any(argument.partition("=")[0] in SPELLINGS for argument in arguments)
    if options.script is None or options.no_local_rank or is_stated:
        return arguments
    if not any(getattr(options, key) for key in FORM):
        return arguments
    spelling = (
        SPELLINGS[0] if options.no_python else _spelling(options.script, is_module=options.module)
    )
    return [f"{spelling}={LOCAL_RANK}", *arguments] if spelling else arguments


def _spelling(script: str, *, is_module: bool) -> str:
    """A script's spelling of the option; empty if it is seen to lack it."""
    trees = [tree_of(path) for path in dict.fromkeys(files_of(script, is_module=is_module))]
    seen = _Seen()
    for tree in trees:
        if tree is not None:
            seen.note(tree)
    if seen.names & OTHERS:
        return SPELLINGS[0]
    stated = [spelling for spelling in SPELLINGS if spelling in seen.texts]
    if stated:
        return stated[0]
    is_parameter = "local_rank" in seen.parameters
    if "typer" in seen.names:  # which makes an option with dashes of a parameter
        return SPELLINGS[1] if is_parameter else ""
    if seen.names & {"fire", "click"}:
        return SPELLINGS[0] if is_parameter else ""
    is_refused = "parse_args" in seen.names
    is_refused |= "argv" in seen.names and not any("local_rank" in text for text in seen.texts)
    return "" if is_refused else SPELLINGS[0]


@dataclass
class _Seen:
    """Words in source files.

    Attributes:
        names: modules, names and attributes.
        parameters: parameters of functions.
        texts: strings.
    """

    names: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def note(self, tree: ast.Module) -> None:
        """Adds a file's words."""
        self.names.update(imported(tree))
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    self.names.add(name)
                case ast.arg(arg=name):
                    self.parameters.add(name)
                case ast.Constant(value=str() as text):
                    self.texts.add(text)
