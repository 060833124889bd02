"""The options that a script's own parser declares: by argparse, by Fire, as dataclasses."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .argparse_options import argument, with_default
from .dataclass_options import Fields, fields_of, parsed_classes
from .expressions import Evaluator
from .function_options import options_of_function
from .given import PARSERS
from .known_values import Unknown
from .option import Option
from .statements import Site
from .unguarded_calls import called

OF_DEEPSPEED: Mapping[str, Any] = {"deepspeed": False, "deepspeed_config": None}
"""What deepspeed.add_config_arguments declares (deepspeed/__init__.py)."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What a script's own parser takes.

    Attributes:
        options: by every spelling.
        classes: names of the libraries' dataclasses whose fields are options.
        is_parsed: a parser is made of dataclasses, and all of them were found.
        is_all: nothing else can declare any.
        selves: ids of the nodes that stand for the arguments in methods of those classes.
    """

    options: Mapping[str, Option] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()
    is_parsed: bool = False
    is_all: bool = True
    selves: frozenset[int] = frozenset()


def declared(sites: Sequence[Site], world: int, *, is_all: bool) -> Declared:
    """The options that the statements and calls of a script's files declare.

    Args:
        sites: of all files.
        world: number of workers.
        is_all: no other file can declare any.
    """
    evaluator = Evaluator(sites, {}, world)
    calls = [
        (site, site.node)
        for site in sites
        if isinstance(site.node, ast.Call) and evaluator.reaches(site) is not False
    ]
    found: list[Option] = []
    parsed: list[Fields] = []
    for site, call in calls:
        name = called(call)
        if name == "add_argument" and isinstance(call.func, ast.Attribute):
            option = argument(call, site, evaluator)
            is_all = is_all and option is not None
            found += [] if option is None else [option]
        elif name == "add_config_arguments":
            place = site.file.place(call)
            found += [Option((each,), "bool", it, place) for each, it in OF_DEEPSPEED.items()]
        elif name == "Fire":
            found += options_of_function(call, sites, evaluator)
        elif name in PARSERS:
            parsed += _parsed(site, call, evaluator)
    found += [option for fields in parsed for option in fields.options.values()]
    for site, call in calls:
        if called(call) == "set_defaults":
            found = [with_default(option, call, site, evaluator) for option in found]
    classes = frozenset(name for fields in parsed for name in fields.classes)
    is_parsed = all(fields.is_all for fields in parsed)
    selves = frozenset(node for fields in parsed for node in fields.selves)
    is_all = is_all and is_parsed
    return Declared(_merged(found), classes, bool(parsed) and is_parsed, is_all, selves)


def _parsed(site: Site, call: ast.Call, evaluator: Evaluator) -> list[Fields]:
    """The fields of the classes that a parser is made of."""
    names = parsed_classes(call, site.file)
    if names is None:
        return [Fields(is_all=False)]
    own = {
        (each.file.path, each.node.name): (each.file, each.node)
        for each in evaluator.sites
        if isinstance(each.node, ast.ClassDef)
    }
    return [fields_of(name, site.file, own, evaluator) for name in names]


def _merged(found: Iterable[Option]) -> dict[str, Option]:
    """Options by spelling; where two of one name differ, the default isn't known."""
    options: dict[str, Option] = {}
    for option in found:
        for name in option.names:
            earlier = options.get(name)
            if earlier is None or earlier.origin < option.origin:
                options[name] = option
            elif earlier.origin == option.origin and earlier.default != option.default:
                options[name] = replace(option, default=Unknown())
    return options
