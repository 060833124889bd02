"""The files that a script's source takes its arguments from, by methods of HfArgumentParser."""

from __future__ import annotations

import ast
from pathlib import Path

from ...core.certainty import Origin
from ...system.typed_yaml import read_mapping
from .decisive_calls import reached_calls
from .expressions import Evaluator
from .given import Given

READING = {"parse_json_file": "json_file", "parse_yaml_file": "yaml_file", "parse_dict": "args"}
"""Methods that take all arguments from elsewhere than the command line, with the name of their
parameter (transformers/hf_argparser.py)."""


def given_in_files(evaluator: Evaluator) -> dict[str, Given] | None:
    """The arguments in the files that are read for certain; None where one isn't known.

    Raises:
        LaunchError: a file can't be read.
    """
    found: dict[str, Given] = {}
    for site, call, is_sure in reached_calls(evaluator, READING.__contains__):
        if not is_sure or not isinstance(call.func, ast.Attribute):
            continue
        words = {word.arg: word.value for word in call.keywords}
        node = call.args[0] if call.args else words.get(READING[call.func.attr])
        source = None if node is None else evaluator.value_or_unknown(node, site)
        if not isinstance(source, str) or not Path(source).is_file():
            return None
        for name, value in read_mapping(Path(source)).items():
            if value is not None:
                found[name] = Given(value, Origin.CONFIG, f"{Path(source).name}: {name}")
    return found
