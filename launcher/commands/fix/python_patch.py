"""Changes arguments of a call, or a value, in Python; everything else stays as it was written."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from ...core.reasons import reason_of
from ...core.refused import Refused
from ...workload.script.harmless_calls import dotted

Splice = tuple[int, int, str]
"""From where to where, in characters of the text, and what stands there afterwards."""
Place = Callable[[Mapping[str, object]], list[Splice] | Refused]
"""Gives what sets values at a place, and sets them in the tree."""
NO_CODE = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}


@dataclass(frozen=True, slots=True)
class _Source:
    """A text and its syntax tree, whose columns count bytes of UTF-8."""

    text: str
    tree: ast.Module
    lines: Sequence[str]

    def at(self, line: int, column: int) -> int:
        """The character at a position of the tree's."""
        before = sum(map(len, self.lines[: line - 1]))
        return before + len(self.lines[line - 1].encode()[:column].decode())

    def begin(self, node: ast.expr) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None, "a parsed node has an end"
        assert node.end_col_offset is not None, "a parsed node has an end"
        return self.at(node.end_lineno, node.end_col_offset)

    def after(self, node: ast.stmt) -> str:
        """The code behind a statement on its last line."""
        rest = self.text[self.end(node) :].partition("\n")[0]
        return rest.partition("#")[0].strip()


def patched(text: str, line: int, name: str, values: Mapping[str, object]) -> str | Refused:
    """The text with other values.

    Args:
        text: of a file in Python.
        line: number of the line at which the call, or the value, stands.
        name: of the function that is called there, dotted as it stands; or of the argument, key,
            variable or attribute whose value stands there.
        values: what they become, by the names of arguments, keys, variables or attributes; those
            that aren't given yet are added.

    Returns:
        The new text, or why it can't be changed safely.
    """
    if re.search(r"\r(?!\n)|\f", text):
        return Refused("it has line ends that not every program counts")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        return Refused(f"it isn't Python: {reason_of(error)}")
    source = _Source(text, tree, re.findall(r"[^\n]*\n|[^\n]+", text))
    places = [*_places(source, line, name)]
    if len(places) != 1:
        return Refused(f"it isn't clear what sets `{name}` at line {line}: it may have changed")
    splices = places[0](values)
    if isinstance(splices, Refused):
        return splices
    for begin, end, new in sorted(splices, reverse=True):
        text = text[:begin] + new + text[end:]
    # The same was set in the tree: the texts may differ in that alone.
    with suppress(SyntaxError):
        if ast.dump(ast.parse(text)) == ast.dump(tree):
            return text
    return Refused("what stands there is written in a way that can't be changed safely")


def _places(source: _Source, line: int, name: str) -> Iterator[Place]:
    """The calls, mappings and assignments that are meant by a name at a line."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(keywords=keywords) if (
                node.lineno == line and dotted(node.func) == name
            ) or any(each.arg == name and _is_at(line, each, each.value) for each in keywords):
                yield partial(_in_call, source, node)
            case ast.Dict(keys=keys, values=values) if any(
                _key(key) == name and _is_at(line, key, value)
                for key, value in zip(keys, values, strict=True)
            ):
                yield partial(_in_dict, source, node)
        for _, block in ast.iter_fields(node):
            for place, each in enumerate(block if isinstance(block, list) else ()):
                if isinstance(each, ast.Assign) and _assigns(each, line, name):
                    yield partial(_in_assignment, source, block, place)


def _is_at(line: int, *nodes: ast.expr | ast.keyword | None) -> bool:
    return any(node is not None and node.lineno == line for node in nodes)


def _assigns(node: ast.Assign, line: int, name: str) -> bool:
    """Whether it is `name = ...` or `some.name = ...` at a line."""
    is_alone = node.lineno == line and len(node.targets) == 1
    return is_alone and dotted(node.targets[0]).rpartition(".")[2] == name


def _key(key: ast.expr | None) -> object:
    return key.value if isinstance(key, ast.Constant) else None


def _in_call(
    source: _Source, call: ast.Call, values: Mapping[str, object]
) -> list[Splice] | Refused:
    given = {each.arg: each for each in call.keywords if each.arg is not None}
    missing = {name: value for name, value in values.items() if name not in given}
    if missing and len(given) < len(call.keywords):
        return Refused(f"the call takes `**`, which may hold {' and '.join(missing)}")
    splices = [
        _replaced(source, given[name].value, value)
        for name, value in values.items()
        if name in given
    ]
    splices += _added(
        source, call, [f"{name}={_written(value)}" for name, value in missing.items()]
    )
    for name, value in values.items():
        if name in given:
            given[name].value = _tree(value)
        else:
            call.keywords.append(ast.keyword(name, _tree(value)))
    return splices


def _in_dict(
    source: _Source, found: ast.Dict, values: Mapping[str, object]
) -> list[Splice] | Refused:
    given = {_key(key): place for place, key in enumerate(found.keys)}
    missing = {name: value for name, value in values.items() if name not in given}
    if missing and None in found.keys:
        return Refused(f"the mapping takes `**`, which may hold {' and '.join(missing)}")
    splices = [
        _replaced(source, found.values[given[name]], value)
        for name, value in values.items()
        if name in given
    ]
    texts = [f"{_written(name)}: {_written(value)}" for name, value in missing.items()]
    splices += _added(source, found, texts)
    for name, value in values.items():
        if name in given:
            found.values[given[name]] = _tree(value)
        else:
            found.keys.append(_tree(name))
            found.values.append(_tree(value))
    return splices


def _in_assignment(
    source: _Source, block: list[ast.stmt], place: int, values: Mapping[str, object]
) -> list[Splice] | Refused:
    """Another value, and further assignments of the same kind on the lines below."""
    first = block[place]
    assert isinstance(first, ast.Assign), "only an assignment is such a place"
    assert first.end_lineno is not None, "a parsed node has an end"
    target = first.targets[0]
    owner, dot, old = dotted(target).rpartition(".")
    missing = {name: value for name, value in values.items() if name != old}
    indent = source.lines[first.lineno - 1][: first.col_offset]
    last = source.lines[first.end_lineno - 1]
    if missing and (indent.strip() or not last.endswith("\n") or source.after(first)):
        return Refused("it shares its line with other code")
    splices = []
    if old in values:
        splices.append(_replaced(source, first.value, values[old]))
        first.value = _tree(values[old])
    added = [f"{owner}{dot}{name} = {_written(value)}" for name, value in missing.items()]
    block[place + 1 : place + 1] = [node for text in added for node in ast.parse(text).body]
    below = source.at(first.end_lineno, 0) + len(last)
    text = "".join(f"{indent}{each}{_line_end(last)}" for each in added)
    return [*splices, (below, below, text)]


def _replaced(source: _Source, old: ast.expr, value: object) -> Splice:
    return source.begin(old), source.end(old), _written(value)


def _added(source: _Source, node: ast.Call | ast.Dict, texts: Sequence[str]) -> Iterator[Splice]:
    """Further arguments or items at the end, on lines of their own where others are."""
    if not texts:
        return
    closing = source.end(node) - 1
    last = _last_code(source, closing)
    before = source.text[last - 1]
    if before in "({":
        yield last, last, ", ".join(texts)
    elif before != ",":
        yield last, last, "".join(f", {text}" for text in texts)
    elif "\n" not in source.text[last:closing]:
        yield last, last, " " + ", ".join(texts)
    else:
        below = source.text.index("\n", last) + 1
        line = source.lines[_last_line(node) - 1]
        indent = line[: len(line) - len(line.lstrip())]
        text = "".join(f"{indent}{text},{_line_end(line)}" for text in texts)
        yield below, below, text


def _last_line(node: ast.Call | ast.Dict) -> int:
    """The line on which the last argument or item begins."""
    if isinstance(node, ast.Call):
        given: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
        return max(each.lineno for each in given)
    return (node.keys[-1] or node.values[-1]).lineno


def _last_code(source: _Source, closing: int) -> int:
    """Where the last code before a closing bracket ends."""
    starts = [0, *accumulate(map(len, source.lines))]
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source.text, newline="").readline):
        if starts[token.start[0] - 1] + token.start[1] >= closing:
            break
        if token.type not in NO_CODE:
            last = starts[token.end[0] - 1] + token.end[1]
    return last


def _line_end(line: str) -> str:
    return "\r\n" if line.endswith("\r\n") else "\n"


def _written(value: object) -> str:
    """A value as Python's source has it, with double quotes."""
    match value:
        case str():
            quoted = repr(value)
            return f'"{quoted[1:-1]}"' if '"' not in quoted else quoted
        case dict():
            items = (f"{_written(key)}: {_written(each)}" for key, each in value.items())
            return f"{{{', '.join(items)}}}"
        case _:
            return repr(value)


def _tree(value: object) -> ast.expr:
    return ast.parse(_written(value), mode="eval").body
