"""Finds arguments unknown to a script's parser, each with the nearest known one.

Queries the parser itself: argparse's, click's or typer's is in the frames of the live exception,
and so is a class called with a keyword. Doesn't read the script's source.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from ..core.private_names import ACTIONS, OPTION_ACTIONS

MOST = 4
"""Maximum arguments to name."""
FLAG = 0.75
"""Minimum `difflib` similarity of a flag, from 0 to 1."""
KEYWORD = 0.85
"""Minimum similarity of a keyword, above that of keywords renamed between versions, such as
`evaluation_strategy` (now `eval_strategy`, 0.81), which have other advice."""
_CALLED = re.compile(
    r"^(?:[\w.<>]+?\.)??(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'"
)


def mistyped(error: BaseException) -> Mapping[str, str]:
    """The unknown arguments with the nearest known ones; empty if none is near."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, TypeError):
        return _nearest(*_of_call(str(error), frames), KEYWORD)
    is_usage_error = isinstance(error, SystemExit) and error.code == 2
    if not is_usage_error and "not used by the HfArgumentParser" not in str(error):
        return {}
    known = next(
        filter(None, (tuple(_options(frame.f_locals.get("self"))) for frame in frames)), ()
    )
    names = (argument.partition("=")[0] for argument in sys.argv[1:])
    unknown = [
        name
        for name in names
        if re.fullmatch(r"--?[A-Za-z][\w-]*", name)
        and not any(option.startswith(name) for option in known)
        and (name.startswith("--") or name[:2] not in known)  # a short one with a value: `-n4`
    ]
    return _nearest(known, unknown, FLAG)


def _nearest(known: Sequence[str], unknown: Sequence[str], likeness: float) -> Mapping[str, str]:
    by_plain: dict[str, str] = {}
    for name in known:
        by_plain.setdefault(_plain(name), name)
    nearest = {}
    for name in unknown:
        for near in difflib.get_close_matches(_plain(name), by_plain, n=1, cutoff=likeness):
            nearest[name] = by_plain[near]
    return dict(list(nearest.items())[:MOST])


def _plain(name: str) -> str:
    """Normalizes a name: `--batch-size` is `batch_size`."""
    return name.lstrip("-").replace("-", "_").lower()


def _options(parser: Any) -> Iterator[str]:
    """The options of an argparse parser or click command, and of subcommands."""
    if hasattr(parser, OPTION_ACTIONS.attribute):
        yield from OPTION_ACTIONS.of(parser)
        for action in ACTIONS.of(parser):
            if isinstance(action.choices, Mapping):  # subcommands
                for below in action.choices.values():
                    yield from _options(below)
    elif hasattr(parser, "params") and hasattr(parser, "make_context"):
        for parameter in parser.params:
            yield from (*parameter.opts, *parameter.secondary_opts)
        for below in getattr(parser, "commands", {}).values():
            yield from _options(below)


def _of_call(message: str, frames: Sequence[FrameType]) -> tuple[Sequence[str], Sequence[str]]:
    """The keywords of a function or class, and the unexpected one."""
    match = _CALLED.match(message)
    if match is None or not frames:
        return (), ()
    names = {**frames[-1].f_globals, **frames[-1].f_locals}
    with suppress(KeyError, TypeError, ValueError):  # there is no such name, or no signature
        return tuple(inspect.signature(names[match[1]]).parameters), (match[2],)
    return (), ()
