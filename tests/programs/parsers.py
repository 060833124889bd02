"""Prints the options of the installed torchrun and deepspeed, as their own parsers have them."""

import argparse
import json
import sys


def described(parser: argparse.ArgumentParser) -> list[dict[str, object]]:
    """Each option: how it is spelt, whether it has a value, whether PET_* stands for it."""
    return [
        {
            "spellings": action.option_strings,
            "has_value": action.nargs != 0,
            "choices": sorted(action.choices) if action.choices else [],
            "variable": type(action).__module__ == "torch.distributed.argparse_util",
        }
        for action in parser._actions
        if action.option_strings and "--help" not in action.option_strings
    ]


class Seen(Exception):
    """The parser that was going to be used."""


def shown(parser: argparse.ArgumentParser, *_args: object, **_named: object) -> None:
    """Stands for `parse_args`."""
    raise Seen(parser)


if sys.argv[1] == "torchrun":
    from torch.distributed.run import get_args_parser

    found = get_args_parser()
else:
    from deepspeed.launcher import runner

    argparse.ArgumentParser.parse_args = shown
    try:
        runner.parse_args([])
    except Seen as seen:
        found = seen.args[0]
print(json.dumps(described(found)))
