"""The script's own parser and what its source makes of the arguments, read as syntax."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...core.certainty import Origin
from .argument_files import given_in_files
from .assigned import assigned
from .decided import decided
from .decisive_calls import ANYTHING, LOADED_IN, TRAINING
from .declared import Declared, declared
from .expressions import Evaluator
from .given import Given
from .harmless_calls import dotted
from .known_values import Unknown
from .option import value_of
from .reached import reached
from .source_files import SourceFile, SourceFiles
from .statements import Site
from .unguarded_calls import called

OWN_BATCHES = {
    *("batch_sampler", "BatchSampler", "get_train_dataloader"),
    *("split_batches", "dispatch_batches"),
}
"""Names by which batches are made otherwise than by a size for each rank."""


@dataclass(frozen=True, slots=True)
class OwnParser:
    """What the script's source says of its arguments.

    Attributes:
        options: names of those that the script itself declares.
        defaults: defaults of the libraries whose classes it parses.
        unknown: arguments that the source decides, in a way that isn't known.
        classes: libraries' dataclasses whose fields are options.
        builds: classes of training arguments that it makes by calling them.
        is_parsed: a parser is made of dataclasses, and all of them were found.
        adapter: what it says of adapters: a member of `Adapter`, or empty for another kind than
            those; None where nothing tells.
        zeros: options whose default is 0.
        makes_batches: it says itself which samples make a batch, so that no option does.
    """

    options: frozenset[str] = frozenset()
    defaults: Mapping[str, Given] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    builds: frozenset[str] = frozenset()
    is_parsed: bool = False
    adapter: Given | None = None
    zeros: frozenset[str] = frozenset()
    makes_batches: bool = False

    @property
    def takes_training_arguments(self) -> bool:
        """Whether a Trainer's arguments are parsed or made, so that what is absent is default."""
        return bool(self.builds) or any(map(TRAINING.search, self.classes))


def own_parser(
    files: SourceFiles, given: Mapping[str, Given], world: int
) -> tuple[OwnParser, dict[str, Given]]:
    """What the source says, and the script's arguments as it leaves them.

    Args:
        files: the script's.
        given: what is given to the script by name.
        world: number of workers.
    """
    sites = reached(files.files)
    known = declared(sites, world, is_all=files.is_all)
    given = {_in_full(name, known): each for name, each in given.items()}
    evaluator = Evaluator(sites, _arguments(known, given), world, _holders(sites), known.selves)
    filed = given_in_files(evaluator)
    if filed is None:
        known = replace(known, options={})
    given = {**given, **(filed or {})}
    evaluator = replace(evaluator, arguments=_arguments(known, given))
    changed, unknown = assigned(evaluator, given)
    unknown |= {ANYTHING} if filed is None else set()
    arguments = {
        **evaluator.arguments,
        **{name: each.value for name, each in changed.items()},
        **dict.fromkeys(unknown, Unknown()),
    }
    found = decided(replace(evaluator, arguments=arguments), given, _bases(sites))
    unknown |= found.unknown | {
        name
        for name, option in known.options.items()
        if isinstance(option.default, Unknown) and not given.keys() & set(option.names)
    }
    own = {
        name: each
        for name, each in _defaults(known, given, Origin.SCRIPT).items()
        if name not in LOADED_IN
    }
    flags = {**own, **_named(known, given), **changed, **found.values}
    parser = OwnParser(
        frozenset(n for n, option in known.options.items() if option.origin is Origin.SCRIPT),
        _defaults(known, given, Origin.DEFAULT),
        frozenset(unknown),
        known.classes,
        found.builds,
        known.is_parsed,
        found.adapter,
        frozenset(n for n, each in known.options.items() if _is_zero(each.default)),
        any(map(_makes_batches, files.files)),
    )
    return parser, {name: each for name, each in flags.items() if name not in unknown}


def _in_full(name: str, known: Declared) -> str:
    """The option's name of which a flag is the beginning: argparse takes one that fits no other."""
    fitting = [] if name in known.options else [n for n in known.options if n.startswith(name)]
    return fitting[0] if known.is_all and len(fitting) == 1 else name


def _makes_batches(file: SourceFile) -> bool:
    """Whether it names any of `OWN_BATCHES`."""
    return any(
        (isinstance(node, ast.keyword) and node.arg in OWN_BATCHES)
        or (isinstance(node, ast.Name) and node.id in OWN_BATCHES)
        or (isinstance(node, ast.Attribute) and node.attr in OWN_BATCHES)
        or (isinstance(node, ast.FunctionDef) and node.name in OWN_BATCHES)
        for node in ast.walk(file.tree)
    )


def _is_zero(default: Any) -> bool:
    return default == 0 and not isinstance(default, bool)


def _named(known: Declared, given: Mapping[str, Given]) -> dict[str, Given]:
    """What is given, under the name that the script's parser gives it as well."""
    also = {
        known.options[name].names[0]: each for name, each in given.items() if name in known.options
    }
    return {**also, **given}


def _arguments(known: Declared, given: Mapping[str, Given]) -> dict[str, Any]:
    """The values of all arguments, as the parser makes them."""
    values: dict[str, Any] = {}
    for option in known.options.values():
        values[option.names[0]] = option.default
    for name, each in given.items():
        option_ = known.options.get(name)
        if option_ is None:
            values[name] = list(each.words) if len(each.words) > 1 else value_of(each)
        else:
            values[option_.names[0]] = option_.value(each)
    return values


def _defaults(known: Declared, given: Mapping[str, Given], origin: Origin) -> dict[str, Given]:
    """What options of one origin are where they aren't given; None of the script's says nothing."""
    return {
        option.names[0]: Given(option.default, origin, f"{option.source}: {option.names[0]}")
        for option in known.options.values()
        if option.origin is origin
        and (option.default is not None or origin is Origin.DEFAULT)
        and not isinstance(option.default, Unknown)
        and not given.keys() & set(option.names)
    }


def _holders(sites: list[Site]) -> frozenset[str]:
    """The names that parsed arguments are given to, and the functions that Fire gives them to."""
    found: set[str] = set()
    for site in sites:
        match site.node:
            case ast.Assign(targets=[target], value=ast.Call() as call):
                if called(call).startswith("parse"):
                    names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                    found |= {dotted(name).removeprefix("self.") for name in names} - {""}
            case ast.Call(args=[ast.Name(id=name), *_]) if called(site.node) == "Fire":
                found.add(name)
    return frozenset(found)


def _bases(sites: list[Site]) -> dict[str, list[str]]:
    """What the user's classes inherit from, by name."""
    return {
        site.node.name: [
            base.id if isinstance(base, ast.Name) else base.attr
            for base in site.node.bases
            if isinstance(base, ast.Name | ast.Attribute)
        ]
        for site in sites
        if isinstance(site.node, ast.ClassDef)
    }
