"""Tracebacks of exception groups, which are read as those of their first exception."""

from __future__ import annotations

import asyncio
import traceback

import pytest
from safe_launch.logs.tracebacks import Trace, Tracebacks
from support.tables import table


def read(text: str) -> list[Trace]:
    """The exceptions in a text."""
    reader = Tracebacks()
    traces = [reader.feed(number, line)[1] for number, line in enumerate(text.splitlines(), 1)]
    return [trace for trace in (*traces, reader.end()) if trace is not None]


async def fails(number: int) -> None:
    """Raises an error of two lines."""
    raise ValueError(f"sample {number}\nis empty")


async def runs() -> None:
    """Fails in two tasks of a task."""

    async def inner() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(1))
            group.create_task(fails(2))

    async with asyncio.TaskGroup() as group:
        group.create_task(inner())


@pytest.fixture
def printed() -> str:
    """The traceback of a group within a group."""
    try:
        asyncio.run(runs())
    except BaseExceptionGroup as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("hidden", ["", "  ", "  | "], ids=["none", "spaces", "margin"])
def test_the_first_exception(printed: str, hidden: str) -> None:
    """It has its message and the frames that led to it, also if a prefix has hidden a margin."""
    lines = [line.removeprefix(hidden) for line in printed.splitlines()]
    (found,) = read("\n".join(["step 7", *lines, "INFO: the end", "  | a table |"]))
    assert (found.raised.exception, found.raised.message) == ("ValueError", "sample 1\nis empty")
    assert [frame.function for frame in found.frames if frame.file == __file__] == [
        *("printed", "runs", "inner", "fails"),
    ]
    assert found.raised.frame == found.frames[-1]


@table(
    ("frame", "source"),
    [
        ('  File "a.py", line 3, in f', "    assert x, \"one 'x'\""),
        ('  Fille "a.py", line 3, in f', '    raise KeyError("x")'),
        ("  File a.py, line 3, in f", "f(x)"),
        ("env/a.py, line 3, in f", "a[0]"),
    ],
)
def test_a_copy_that_has_lost_line_ends(frame: str, source: str) -> None:
    """The exception stands behind the source line; the frame may be misspelt or lack its quotes."""
    (found,) = read(f"{frame}\n{source} KeyError: 'x' isn't there\n")
    assert (found.raised.exception, found.raised.message) == ("KeyError", "'x' isn't there")
    assert (found.frames[-1].file[-4:], found.frames[-1].line) == ("a.py", 3)
    assert found.frames[-1].source == source.strip()


@table(
    "source",
    [
        "raise ValueError('it (x) KeyError: y')",
        "g(x)  # a KeyError: x",
        "f('(a) KeyError: x')",
    ],
)
def test_a_source_line_with_an_exception_in_it(source: str) -> None:
    """It is code, and no copy that has lost a line's end."""
    (found,) = read(f'  File "a.py", line 3, in f\n    {source}\nKeeperError: shut\n')
    assert (found.raised.exception, found.raised.message) == ("KeeperError", "shut")
    assert found.frames[-1].source == source


def test_a_group_that_is_cut(printed: str) -> None:
    """A traceback after its first lines is read as usual."""
    cut = printed.splitlines()[:5]
    after = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()"]
    (found,) = read("\n".join([*cut, *after, "KeyError: 'x'"]))
    assert (found.raised.exception, found.frames[-1].file) == ("KeyError", "a.py")


def test_a_member_without_a_traceback() -> None:
    """An exception that was never raised has none; the group's frames lead to it."""
    try:
        raise ExceptionGroup("both", [KeyError("x"), ValueError("y")])
    except ExceptionGroup as error:
        printed = "".join(traceback.format_exception(error))
    (found,) = read(printed)
    assert (found.raised.exception, found.frames[-1].file) == ("KeyError", __file__)
