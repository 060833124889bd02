"""Prints the options of the installed torchrun, deepspeed or accelerate, as their parsers have."""

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


def shown(parser: argparse.ArgumentParser, *_args: object, **_named: object) -> None:
    """Stands for `parse_args`."""
    print(json.dumps(described(parser)))
    sys.exit()


if sys.argv[1] == "torchrun":
    from torch.distributed.run import get_args_parser

    shown(get_args_parser())
elif sys.argv[1] == "accelerate":
    from accelerate.commands.launch import launch_command_parser

    shown(launch_command_parser())
else:
    from deepspeed.launcher import runner

    argparse.ArgumentParser.parse_args = shown
    runner.parse_args([])
