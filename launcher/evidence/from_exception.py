"""From a live exception in a worker to a record of it."""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ..core.workload import FRAMEWORKS
from . import from_memory, observations
from .failure_record import FailureRecord, Frame, Raised

OURS = tuple(f"{one.parent.parent}/" for one in (Path(__file__), Path(__file__).resolve()))
"""Where our own code lies: as its frames name it, and where a link leads."""
MOST_FRAMES = 80
MOST_TEXT = 20_000
MOST_NAMES = 8


def announcement(error: BaseException, rank: int, at: float, exit_code: int) -> dict[str, Any]:
    """The part of a record that is known at once, before any code of the exception's own is run.

    Args:
        error: the exception.
        rank: this worker's rank.
        at: when it was caught, in seconds of the monotonic clock.
        exit_code: what the process will exit with.
    """
    return {"rank": rank, "at": at, "exception": name_of(type(error)), "exit_code": exit_code}


def record(error: BaseException, first: Mapping[str, Any]) -> FailureRecord:
    """What the exception, its frames and the guards' sightings tell.

    Args:
        error: the exception, with its traceback.
        first: what has been announced of it.
    """
    text = "".join(traceback.format_exception(type(error), error, trimmed(error.__traceback__)))
    return FailureRecord(
        **first,
        message=message_of(error)[:MOST_TEXT],
        chain=tuple(chain(error)),
        frames=tuple(frames(trimmed(error.__traceback__)))[-MOST_FRAMES:],
        traceback=text if len(text) <= MOST_TEXT else f"...\n{text[-MOST_TEXT:]}",
        step=attempted(observations.step),
        parameters=tuple(attempted(lambda: parameters(error)) or ())[:MOST_NAMES],
        observed=dict(observations.observed),
        model=attempted(observations.describe_model) or {},
        versions={
            name: str(getattr(sys.modules[name], "__version__", ""))
            for name in FRAMEWORKS
            if name in sys.modules
        },
        user_files=tuple(dict.fromkeys(user_files())),
        memory=attempted(lambda: memory(error)) or {},
    )


def memory(error: BaseException) -> dict[str, int]:
    """What the process and its device tell of memory, where that is what has failed."""
    if not from_memory.is_about_memory(error, message_of(error)):
        return {}
    before = observations.before_model
    return {**from_memory.seen(), **({} if before is None else {"before_model": before})}


def attempted(question: Any) -> Any:
    """The answer, or None where asking fails: a half-dead model must not hide the real failure."""
    with contextlib.suppress(Exception):
        return question()
    return None


def message_of(error: BaseException) -> str:
    """The exception's message, also where its own `__str__` raises."""
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
    """The exceptions that led to this one, nearest first."""
    seen = {id(error)}
    while True:
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield replace(raised(cause), was_handled=error.__cause__ is None)
        error = cause


def is_ours(filename: str) -> bool:
    """Whether a frame belongs to the launcher, or to how it runs the script."""
    return filename.startswith((*OURS, "<frozen runpy>"))


def trimmed(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the launcher's own frames."""
    kept = [one for one in _links(trace) if not is_ours(one.tb_frame.f_code.co_filename)]
    result: TracebackType | None = None
    for one in reversed(kept):
        result = TracebackType(result, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return result


def _links(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def frames(trace: TracebackType | None) -> Iterator[Frame]:
    """File, line, function and source text of each frame, outermost first."""
    for one in _links(trace):
        code = one.tb_frame.f_code
        source = linecache.getline(code.co_filename, one.tb_lineno).strip()
        yield Frame(code.co_filename, one.tb_lineno, code.co_name, source)


def parameters(error: BaseException) -> Iterator[str]:
    """Names of the parameters that the failure is about, where the framework printed a number.

    The surest first: a parameter that stands twice in a list of one of the innermost frames or of
    the object at work there (a bucket); a parameter held by a local variable there; DDP's index
    into the parameters that it reduces; the full shape in autograd's message.
    """
    if "torch" not in sys.modules:
        return
    names = {id(one): name for model in observations.models() for name, one in named(model)}
    innermost = [link.tb_frame.f_locals for link in list(_links(error.__traceback__))[-3:]]
    text = message_of(error)
    for found in (
        [names[one] for scope in innermost for one in _twice(scope) if one in names],
        [names[id(one)] for scope in innermost for one in scope.values() if id(one) in names],
        list(_by_index(text)),
        list(_by_shape(text)),
    ):
        if found:
            yield from dict.fromkeys(found)
            return


def _twice(scope: Mapping[str, Any]) -> Iterator[int]:
    """Identities of what stands more than once in a list, in a scope or in its `self`."""
    for value in (*scope.values(), *getattr(scope.get("self"), "__dict__", {}).values()):
        if isinstance(value, list):
            seen: set[int] = set()
            for one in map(id, value):
                if one in seen:
                    yield one
                seen.add(one)


def _by_index(text: str) -> Iterator[str]:
    """Parameters by DDP's index, which counts those that require a gradient."""
    for index in re.findall(r"Parameter at index (\d+)", text):
        for model in observations.models():
            trained = [name for name, one in named(model) if one.requires_grad]
            if int(index) < len(trained):
                yield trained[int(index)]


def _by_shape(text: str) -> Iterator[str]:
    """Parameters whose whole shape is the one that autograd expected."""
    for shape in re.findall(r"expected shape compatible with \[([\d, ]+)\]", text):
        expected = tuple(int(part) for part in shape.split(","))
        for model in observations.models():
            for name, one in named(model):
                if one.requires_grad and tuple(getattr(one, "ds_shape", one.shape)) == expected:
                    yield name


def named(model: Any) -> Iterator[tuple[str, Any]]:
    """A model's parameters by name, without the prefixes of its wrappers."""
    for name, parameter in model.named_parameters():
        yield name.removeprefix("module.").removeprefix("_orig_mod."), parameter


def user_files() -> Iterator[str]:
    """Files of the loaded modules that are neither Python's own, installed, nor ours.

    Each as its frames name it, though a link may lead there.
    """
    installed = tuple(
        str(Path(path).resolve()) for path in {*sysconfig.get_paths().values(), *_site_folders()}
    )
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
        if path and path.endswith(".py"):
            resolved = str(Path(path).resolve())
            if not resolved.startswith(installed) and not is_ours(resolved):
                yield path


def _site_folders() -> list[str]:
    return [path for path in sys.path if "-packages" in path]
