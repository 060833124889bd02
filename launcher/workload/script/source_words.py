"""The words of a script's source files: which arguments it may decide itself, and what it names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from .source_files import SourceFile


@dataclass(frozen=True, slots=True)
class SourceWords:
    """What the source says, without what it means: that only the run tells.

    Attributes:
        set: names that get a value somewhere: variables, attributes, fields, parameters, keywords
            of calls; and all texts, among them keys and the options of a parser.
        assigned: attributes of parsed arguments that it replaces, as in `args.bf16 = ...`.
        named: all names.
    """

    set: frozenset[str] = frozenset()
    assigned: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()


def words_of(files: Sequence[SourceFile]) -> SourceWords:
    """The words of all files of a script."""
    nodes = [node for file in files for node in ast.walk(file.tree)]
    return SourceWords(*(frozenset(chain(*map(of, nodes))) for of in (_set, _assigned, _named)))


def _set(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=word, ctx=ast.Store()) | ast.Attribute(attr=word, ctx=ast.Store()):
            yield word
        case ast.keyword(value=ast.Constant(value=None)):
            return  # which leaves it to the default
        case ast.keyword(arg=str(word)) | ast.arg(arg=word) | ast.Constant(value=str(word)):
            yield word


def _assigned(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(attr=word, ctx=ast.Store(), value=ast.Name(id=owner)):
            if owner.endswith(("args", "arguments")):
                yield word


def _named(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
            yield word
        case ast.keyword(arg=str(word)):
            yield word
        case ast.FunctionDef(name=word) | ast.ClassDef(name=word):
            yield word
        case ast.ImportFrom(module=str(word)):
            yield word
