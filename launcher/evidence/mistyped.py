"""Finds the arguments that a script's parser lacks, each with the nearest that it has.

The parser itself is asked: argparse's, click's or typer's is in the frames of the live exception,
and so is the class that was called with a keyword. Nothing is read in the script's source.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from ..core.private_names import ACTIONS, OPTION_ACTIONS

MOST = 4
"""Arguments that are named at most."""
FLAG = 0.75
"""The least likeness of a flag, by `difflib`, from 0 to 1."""
KEYWORD = 0.85
"""That of a keyword. Keywords get other names in other versions, as `evaluation_strategy` (now
`eval_strategy`, 0.81): other advice is about that."""
_CALLED = re.compile(
    r"^(?:[\w.<>]+?\.)??(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'"
)


def mistyped(error: BaseException) -> Mapping[str, str]:
    """Each unknown argument with the nearest known; empty if there is none, or none is near."""
    frames = list(_frames(error.__traceback__))
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
        and not any(option.startswith(name) or _is_short(name, option) for option in known)
    ]
    return _nearest(known, unknown, FLAG)


def _nearest(known: Sequence[str], unknown: Sequence[str], likeness: float) -> Mapping[str, str]:
    by_plain: dict[str, str] = {}
    for name in known:
        by_plain.setdefault(_plain(name), name)
    found = {}
    for name in unknown:
        for near in difflib.get_close_matches(_plain(name), by_plain, n=1, cutoff=likeness):
            found[name] = by_plain[near]
    return dict(list(found.items())[:MOST])


def _plain(name: str) -> str:
    """A name without what people mix up: `--batch-size` is `batch_size`."""
    return name.lstrip("-").replace("-", "_").lower()


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _is_short(name: str, option: str) -> bool:
    """Whether it is `-n4`, if `-n` is an option."""
    return len(option) == 2 and not name.startswith("--") and name.startswith(option)


def _options(parser: Any) -> Iterator[str]:
    """The options of a parser of argparse's or a command of click's, and of those below it."""
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
    """The keywords of a function or a class, and the one that it doesn't take."""
    found = _CALLED.match(message)
    if found is None or not frames:
        return (), ()
    names = {**frames[-1].f_globals, **frames[-1].f_locals}
    with suppress(KeyError, TypeError, ValueError):  # there is no such name, or no signature
        return tuple(inspect.signature(names[found[1]]).parameters), (found[2],)
    return (), ()
