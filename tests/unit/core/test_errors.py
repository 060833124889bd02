"""Errors as reasons in words."""

from __future__ import annotations

import ast
import errno
import gzip
import io
import json
import os
import re
import shlex
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import safe_launch
import yaml
from safe_launch.core.errors import HINTS, file_and_reason, hint_of, reason_of

SOURCE = Path(safe_launch.__file__).parent
SYSTEM = re.compile(r"\b(OSError|UnicodeDecodeError|UnicodeError|RecursionError)\b")
PYTHONS = re.compile(r"codec can't|Exceeds the limit|invalid literal|\[Errno|base \d+:|Traceback")


def _nested() -> None:
    json.loads("[" * 200_000)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (lambda: b"one\ntwo\xff".decode(), "it isn't UTF-8, by the byte 0xff in line 2"),
        (lambda: b"\x80".decode("ascii"), "it isn't ASCII, by the byte 0x80 in line 1"),
        (lambda: "a\udc80".encode(), "it has the character U+DC80, which utf-8 can't express"),
        (
            lambda: "\u00e4".encode("ascii"),
            "it has the character U+00E4, which ascii can't express",
        ),
        (lambda: int("9" * 5000), "it has a number of more than 4300 digits"),
        (lambda: json.loads("9" * 5000), "it has a number of more than 4300 digits"),
        (lambda: yaml.safe_load("a: " + "9" * 5000), "it has a number of more than 4300 digits"),
        (lambda: float(10**400), "it has a number that is out of range"),
        (lambda: int("two"), "'two' isn't a whole number"),
        (lambda: float("two"), "'two' isn't a number"),
        (lambda: os.stat("a\0b"), "it has a null character"),
        (lambda: shlex.split("'a"), "a quotation isn't closed"),
        (lambda: json.loads("[1,\n,"), "it isn't JSON: Expecting value in line 2"),
        (lambda: yaml.safe_load("a: [\n"), "expected the node content, but found '<stream end>'"),
        (lambda: ast.parse("a = (\n"), "'(' was never closed in line 1"),
        (_nested, "it is nested too deeply"),
        (lambda: gzip.decompress(b"plain text"), "it isn't in gzip's format, or is damaged"),
        (lambda: gzip.decompress(gzip.compress(b"a" * 99)[:-9]), "it is cut off"),
        (lambda: zlib.decompress(b"plain"), "its compressed data is damaged"),
        (lambda: Path("/nowhere/at/all").read_text(), "No such file or directory"),
        (lambda: Path("n" * 300).read_text(), "File name too long"),
        (lambda: Path("/").read_text(), "Is a directory"),
    ],
)
def test_reasons(cause: Callable[[], object], expected: str) -> None:
    """Each reason is a clause without Python's own words, and names the place."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of many types
        cause()
    reason = reason_of(caught.value)
    assert reason.startswith(expected)
    assert not PYTHONS.search(reason)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="another sentence, of the same meaning")
def test_the_limit_is_pythons() -> None:
    """The message has Python's limit in force."""
    assert sys.get_int_max_str_digits() == 4300


def test_an_error_without_words() -> None:
    """Only its type is known."""
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(OSError("it is a device")) == "it is a device"
    assert reason_of(io.UnsupportedOperation("not readable")) == "not readable"


def test_the_file_is_named_where_the_error_knows_it() -> None:
    """The error's file name is used if the message has none."""
    with pytest.raises(OSError, match="nowhere") as caught:
        Path("/nowhere/at/all").read_text(encoding="utf-8")
    assert file_and_reason(caught.value) == "/nowhere/at/all: No such file or directory"


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_room_is_made_for_what_needs_it_alone(number: int) -> None:
    """Only a full disk or a spent quota gets the hint to free space."""
    hint = hint_of(OSError(number, os.strerror(number)), "name another place")
    needs_room = number in (errno.ENOSPC, errno.EDQUOT)
    assert needs_room == ("room" in hint)
    assert hint.endswith("name another place")
    assert hint.startswith(HINTS.get(number, "name"))


def test_no_hint_without_a_number() -> None:
    """Without an errno there is no hint."""
    assert hint_of(ValueError("odd")) == ""
    assert hint_of(OSError("odd"), "name another place") == "name another place"


def _raw(handler: ast.ExceptHandler) -> list[str]:
    """Prints of a system error in Python's own words by a handler."""
    name = handler.name
    if name is None or handler.type is None or not SYSTEM.search(ast.unparse(handler.type)):
        return []
    told = [node for line in handler.body for node in ast.walk(line)]
    formatted = [node.value for node in told if isinstance(node, ast.FormattedValue)]
    strings = [
        node.args[0]
        for node in told
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args
    ]
    return [text for value in (*formatted, *strings) if (text := ast.unparse(value)) == name]


def test_one_function_tells_them() -> None:
    """No handler prints a system error directly or only its `strerror`."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = path.relative_to(SOURCE)
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                found += [f"{where}:{node.lineno}: {text}" for text in _raw(node)]
            if isinstance(node, ast.Attribute) and node.attr == "strerror":
                found += [f"{where}:{node.lineno}: strerror"]
    allowed = ("core/errors.py", "workers/forkserver/keeper.py")  # the latter calls os.strerror
    assert [text for text in found if not text.startswith(allowed)] == []
