"""Creates a record from a live exception in a worker."""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ..core.workload import VERSIONED
from . import from_memory
from .failure_record import FailureRecord, Frame, Raised
from .mistyped import mistyped
from .observations import Observations

OURS = tuple(f"{path.parent.parent}/" for path in (Path(__file__), Path(__file__).resolve()))
"""Folders of the launcher's code, as in its frames and with links resolved."""
USAGE = 2
"""Exit code of argparse and click after arguments that they refuse."""
LEAVING = ("click.exceptions.Exit",)
"""Exceptions that only carry an exit code, which click turns into `SystemExit`."""
MOST_FRAMES = 80
MOST_TEXT = 20_000
MOST_NAMES = 8


def cause_of(error: BaseException) -> BaseException:
    """The exception that ended the script: the one it left for, and of a group the first.

    Scripts catch an exception, print it and call `sys.exit(1)`. A text for `sys.exit` is a reason
    itself, 2 is a parser's refusal of the arguments, and click's `Exit` is no failure.
    """
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code != USAGE:
        left_for = error.__cause__ or error.__context__
        if isinstance(left_for, Exception) and name_of(type(left_for)) not in LEAVING:
            error = left_for
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def first_record(error: BaseException, rank: int, at: float, exit_code: int) -> FailureRecord:
    """The immediate part of a record, without running the exception's code.

    It was caught `at` a time in seconds of the monotonic clock.
    """
    return FailureRecord(rank, at, name_of(type(error)), exit_code=exit_code)


def full_record(
    error: BaseException, first: FailureRecord, observations: Observations
) -> FailureRecord:
    """The complete record from the exception, its frames and the observations."""
    trace = (*frames(trimmed(error.__traceback__)), *_unparsed(error))
    led = (raised.frame.file for raised in chain(error) if raised.frame is not None)
    # A module whose import failed isn't loaded.
    passed = filter(_is_users(), (*(frame.file for frame in trace), *led))
    text = "".join(traceback.format_exception(type(error), error, trimmed(error.__traceback__)))
    return replace(
        first,
        message=message_of(error)[:MOST_TEXT],
        chain=tuple(chain(error)),
        frames=trace[-MOST_FRAMES:],
        traceback=text if len(text) <= MOST_TEXT else f"...\n{text[-MOST_TEXT:]}",
        step=or_none(observations.step),
        has_trained=observations.has_trained,
        start=observations.progress.start,
        mistyped=or_none(lambda: mistyped(error)) or {},
        parameters=tuple(or_none(lambda: parameters(error, observations)) or ())[:MOST_NAMES],
        observed=dict(observations.observed),
        model=or_none(observations.describe_model) or {},
        versions={
            name: str(getattr(sys.modules[name], "__version__", ""))
            for name in VERSIONED
            if name in sys.modules
        },
        user_files=tuple(dict.fromkeys((*user_files(), *passed))),
        memory=or_none(lambda: memory(error, observations.before_model)) or {},
    )


def memory(error: BaseException, before_model: int | None) -> dict[str, int]:
    """Memory numbers of process and device, if the failure is about memory."""
    if not from_memory.is_about_memory(error, message_of(error)):
        return {}
    before = {} if before_model is None else {"before_model": before_model}
    return {**from_memory.seen(), **before}


def or_none(question: Any) -> Any:
    """The result of `question`, or None if it raises: a broken model must not hide the failure."""
    with contextlib.suppress(Exception):
        return question()
    return None


def message_of(error: BaseException) -> str:
    """The exception's message, even if its `__str__` raises."""
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__qualname__} without a readable message>"


def name_of(kind: type[BaseException]) -> str:
    """The qualified name of an exception's type."""
    return f"{kind.__module__}.{kind.__qualname__}"


def raised(error: BaseException) -> Raised:
    """Type, message and innermost frame of one exception."""
    innermost = [None, *frames(error.__traceback__)][-1]
    return Raised(name_of(type(error)), message_of(error)[:MOST_TEXT], innermost)


def chain(error: BaseException) -> Iterator[Raised]:
    """The earlier exceptions in the chain, nearest first."""
    seen = {id(error)}
    while True:
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield replace(raised(cause), was_handled=error.__cause__ is None)
        error = cause


def is_launcher_code(filename: str) -> bool:
    """Whether a frame belongs to the launcher or its way of running the script."""
    return filename.startswith((*OURS, "<frozen runpy>"))


def trimmed(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the launcher's frames."""
    kept = [
        entry
        for entry in _entries(trace)
        if not is_launcher_code(entry.tb_frame.f_code.co_filename)
    ]
    result: TracebackType | None = None
    for entry in reversed(kept):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def frames(trace: TracebackType | None) -> Iterator[Frame]:
    """File, line, function and source text of each frame, outermost first."""
    for entry in _entries(trace):
        code = entry.tb_frame.f_code
        source = linecache.getline(code.co_filename, entry.tb_lineno).strip()
        yield Frame(code.co_filename, entry.tb_lineno, code.co_name, source)


def parameters(error: BaseException, observations: Observations) -> Iterator[str]:
    """Names of the parameters involved, if the framework printed only a number.

    The most certain first: a parameter that occurs twice in a list of one of the innermost frames
    or of their `self` (a bucket); a parameter in a local variable there; DDP's index into the
    parameters that it reduces; the full shape in autograd's message.
    """
    if "torch" not in sys.modules:
        return
    models = list(observations.models())
    names = {id(parameter): name for model in models for name, parameter in named(model)}
    innermost = [entry.tb_frame.f_locals for entry in list(_entries(error.__traceback__))[-3:]]
    text = message_of(error)
    for matches in (
        [names[key] for scope in innermost for key in _repeated_ids(scope) if key in names],
        [names[id(value)] for scope in innermost for value in scope.values() if id(value) in names],
        list(_by_index(text, models)),
        list(_by_shape(text, models)),
    ):
        if matches:
            yield from dict.fromkeys(matches)
            return


def _repeated_ids(scope: Mapping[str, Any]) -> Iterator[int]:
    """Ids of objects that occur more than once in a list, in a scope or in its `self`."""
    for value in (*scope.values(), *getattr(scope.get("self"), "__dict__", {}).values()):
        if isinstance(value, list):
            seen: set[int] = set()
            for key in map(id, value):
                if key in seen:
                    yield key
                seen.add(key)


def _by_index(text: str, models: Iterable[Any]) -> Iterator[str]:
    """Parameters by DDP's index, which counts only those that require a gradient."""
    for index in re.findall(r"Parameter at index (\d+)", text):
        for model in models:
            trained = [name for name, parameter in named(model) if parameter.requires_grad]
            if int(index) < len(trained):
                yield trained[int(index)]


def _by_shape(text: str, models: Iterable[Any]) -> Iterator[str]:
    """Parameters with the full shape that autograd expected."""
    for shape in re.findall(r"expected shape compatible with \[([\d, ]+)\]", text):
        expected = tuple(int(part) for part in shape.split(","))
        for model in models:
            for name, parameter in named(model):
                whole = getattr(parameter, "ds_shape", parameter.shape)
                if parameter.requires_grad and tuple(whole) == expected:
                    yield name


def named(model: Any) -> Iterator[tuple[str, Any]]:
    """A model's parameters by name, without the prefixes of its wrappers."""
    for name, parameter in model.named_parameters():
        yield name.removeprefix("module.").removeprefix("_orig_mod."), parameter


def user_files() -> Iterator[str]:
    """Files of loaded modules outside of Python, packages and the launcher.

    Paths are as in frames, with links unresolved.
    """
    is_users = _is_users()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
        if path and is_users(path):
            yield path


def _is_users() -> Callable[[str], bool]:
    """A test for source files outside of Python, packages and the launcher."""
    folders = {*sysconfig.get_paths().values(), *(p for p in sys.path if "-packages" in p)}
    installed = tuple(str(Path(path).resolve()) for path in folders)

    def is_users(path: str) -> bool:
        if not path.endswith(".py"):
            return False
        resolved = str(Path(path).resolve())
        return not resolved.startswith(installed) and not is_launcher_code(resolved)

    return is_users


def _unparsed(error: BaseException) -> Iterator[Frame]:
    """The unparsable line of a user's file, as a frame."""
    if not isinstance(error, SyntaxError) or error.filename is None or not error.lineno:
        return
    if _is_users()(error.filename):
        source = (error.text or "").strip()
        yield Frame(error.filename, error.lineno, "<module>", source[:MOST_TEXT])
