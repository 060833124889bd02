"""The options that the fields of dataclasses are, where a parser is made of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.certainty import Origin
from .expressions import Evaluator
from .known_values import Unknown
from .library_classes import library_class
from .option import Option
from .source_files import LIBRARIES, SourceFile
from .statements import Site
from .unguarded_calls import called

Classes = Mapping[tuple[Path, str], tuple[SourceFile, ast.ClassDef]]
"""The user's classes by file and name."""
KINDS = (
    ("list", r"(?i)\b(list|sequence|tuple)\b"),
    ("str", r"\bstr\b"),
    ("bool", r"\bbool\b"),
    ("int", r"\bint\b"),
    ("float", r"\bfloat\b"),
)
"""Kinds of options by what an annotation has in it, the first that applies."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a class.

    Attributes:
        options: by name.
        classes: names of the libraries' classes among it and what it inherits from.
        is_all: all of them could be read.
        selves: ids of the nodes that stand for an object of the class in its `__post_init__`.
    """

    options: Mapping[str, Option] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    is_all: bool = True
    selves: frozenset[int] = frozenset()


def parsed_classes(call: ast.Call, file: SourceFile) -> list[str] | None:
    """The names of the classes that a parser is made of; None where not all are named."""
    given = [*call.args, *(w.value for w in call.keywords if w.arg == "dataclass_types")]
    names = []
    for node in given[:1]:
        whole = _list_named(node.id, file) or node if isinstance(node, ast.Name) else node
        for part in whole.elts if isinstance(whole, ast.Tuple | ast.List) else [whole]:
            match part:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    names.append(name)
                case _:
                    return None
    return names


def _list_named(name: str, file: SourceFile) -> ast.Tuple | ast.List | None:
    """The one list that a name is bound to in a file."""
    bound = [
        node.value
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == [name]
    ]
    return bound[0] if len(bound) == 1 and isinstance(bound[0], ast.Tuple | ast.List) else None


def fields_of(name: str, file: SourceFile, classes: Classes, evaluator: Evaluator) -> Fields:
    """The fields of a class and of what it inherits from.

    Args:
        name: of the class, as the file knows it.
        file: the file.
        classes: the user's.
        evaluator: of the script's files, without arguments.
    """
    found = _own_class(name, file, classes)
    if found is None:
        return _of_library(file.names.get(name, ("", name))[1], evaluator)
    where, node = found
    fewer = {place: each for place, each in classes.items() if each is not found}
    inherited = Fields()
    for base in node.bases:
        match base:
            case ast.Attribute(attr=above):  # `transformers.TrainingArguments`
                inherited = _joined(inherited, _of_library(above, evaluator))
            case ast.Name(id=above) if above not in ("object", "ABC"):
                inherited = _joined(inherited, fields_of(above, where, fewer, evaluator))
    own = {each.names[0]: each for each in _fields(node, where, Origin.SCRIPT, evaluator)}
    return _joined(inherited, Fields(own, selves=frozenset(_selves(node))))


def _joined(first: Fields, second: Fields) -> Fields:
    return Fields(
        {**first.options, **second.options},
        first.classes + second.classes,
        first.is_all and second.is_all,
        first.selves | second.selves,
    )


def _selves(node: ast.ClassDef) -> Iterator[int]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__post_init__":
            names = (part for part in ast.walk(statement) if isinstance(part, ast.Name))
            yield from (id(name) for name in names if name.id == "self")


def _of_library(name: str, evaluator: Evaluator) -> Fields:
    """The fields of a library's class and of what it inherits from, where it is installed."""
    found = library_class(name)
    if found is None:
        return Fields({}, (name,), is_all=False)
    file, node = found
    inherited = Fields()
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id != name:
            inherited = _joined(inherited, _of_library(base.id, evaluator))
    own = {each.names[0]: each for each in _fields(node, file, Origin.DEFAULT, evaluator)}
    return _joined(inherited, Fields(own, (name,)))


def _own_class(
    name: str, file: SourceFile, classes: Classes
) -> tuple[SourceFile, ast.ClassDef] | None:
    """The user's class of that name, as a file knows it; None for a library's."""
    if (file.path, name) in classes:
        return classes[file.path, name]
    module, original = file.names.get(name, ("", name))
    if module.partition(".")[0] in LIBRARIES or not module:
        return None
    last = module.rpartition(".")[2]
    places = [place for (_, own), place in classes.items() if own == original]
    exact = [place for place in places if last in (place[0].path.stem, place[0].path.parent.name)]
    chosen = exact or places
    return chosen[0] if len(chosen) == 1 else None


def _fields(
    node: ast.ClassDef, file: SourceFile, origin: Origin, evaluator: Evaluator
) -> Iterator[Option]:
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                text = ast.unparse(annotation)
                if "ClassVar" not in text:
                    default, aliases = _default(value, Site(statement, file), evaluator)
                    kind = kind_of(text)
                    place = file.place(statement)
                    yield Option((name, *aliases), kind, default, place, origin)


def kind_of(annotation: str) -> str:
    """The kind of an option of which only the annotation is known."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, annotation)), "str")


def _default(
    node: ast.expr | None, site: Site, evaluator: Evaluator
) -> tuple[Any, tuple[str, ...]]:
    """The default of a field, and the other names of its option."""
    if node is None:
        return None, ()
    if not (isinstance(node, ast.Call) and called(node) in ("field", "HfArg")):
        return evaluator.value_or_unknown(node, site), ()
    words = {word.arg: word.value for word in node.keywords}
    aliases = _aliases(words, site, evaluator)
    if "default" in words:
        return evaluator.value_or_unknown(words["default"], site), aliases
    match words.get("default_factory"):
        case ast.Lambda(body=body):
            return evaluator.value_or_unknown(body, site), aliases
        case ast.Name(id="list"):
            return [], aliases
        case None:
            return None, aliases
    return Unknown(), aliases


def _aliases(
    words: Mapping[str | None, ast.expr], site: Site, evaluator: Evaluator
) -> tuple[str, ...]:
    """The other names of a field's option (transformers/hf_argparser.py, `HfArg`)."""
    found: Any = ()
    if "aliases" in words:
        found = evaluator.value_or_unknown(words["aliases"], site)
    elif "metadata" in words:
        metadata = evaluator.value_or_unknown(words["metadata"], site)
        found = metadata.get("aliases", ()) if isinstance(metadata, dict) else ()
    names = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return tuple(str(name).lstrip("-").replace("-", "_") for name in names)
