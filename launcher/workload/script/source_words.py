"""Collects words of a script's source files: possibly assigned arguments, and names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain

from ...frameworks.framework import SourceWords
from .source_files import SourceFiles


def words_of(sources: SourceFiles) -> SourceWords:
    """Collects the words of all files of a script."""
    nodes = [node for file in sources.files for node in ast.walk(file.tree)]
    set_, assigned, named = (frozenset(chain(*map(of, nodes))) for of in (_set, _assigned, _named))
    return SourceWords(set_, assigned, named, sources.is_all)


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
