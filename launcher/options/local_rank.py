"""Puts a worker's local rank before the script's arguments, as deepspeed's launcher does."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..workload.script.user_files import files_of, imported, tree_of
from . import deepspeed

LOCAL_RANK = "${local_rank}"
"""The placeholder that a worker fills in, as under torchrun."""
SPELLINGS = ("--local_rank", "--local-rank")
"""deepspeed's, then that of torch.distributed.launch."""
FORM = [option.key for option in (*deepspeed.HOSTS, *deepspeed.WORKERS) if not option.instead]
"""The options that make a command line one of deepspeed's."""
OTHERS = {"parse_known_args", "parse_known_intermixed_args", "HfArgumentParser", "TrlParser"}
"""Parsers that refuse no option, or whose options are a library's: TrainingArguments has it."""


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
    """How a script spells the option; empty if it is seen to have no such option."""
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
    """Words that files mention.

    Attributes:
        names: modules, and what is used by name or as an attribute.
        parameters: of their functions.
        texts: their strings.
    """

    names: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def note(self, tree: ast.Module) -> None:
        """Adds a file."""
        self.names.update(imported(tree))
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    self.names.add(name)
                case ast.arg(arg=name):
                    self.parameters.add(name)
                case ast.Constant(value=str() as text):
                    self.texts.add(text)
