"""Asks the launcher for settings at a boundary: a worker has more facts than any reader.

The answer applies to the object created at the boundary; only the checkpointing mode applies to
the whole process. A boundary's key includes all user frames: if one rank alone creates an
object in a helper, the other keys stay the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.described_model import shape_of
from ..core.preset import parsed
from ..core.settings import Setting, Value, is_value
from ..evidence.observations import observations
from ..evidence.worker_messages import Answer, Ask, Boundary
from . import enforced
from .callers import place, user_frames

PATIENCE = 30.0
"""Maximum seconds to wait for an answer; a search takes tens of milliseconds."""


def settings_at(
    boundary: Boundary,
    changeable: Iterable[Setting],
    facts: Mapping[str, object],
    *,
    framework: str = "",
    model: object = None,
) -> dict[Setting, Value]:
    """Settings enforced at a boundary, from the plan or the launcher's answer.

    Args:
        boundary: the worker's position.
        changeable: settings that can still change there.
        facts: settings in force and facts, by name. Unknown values are left out, and values no plan
            can have, which the framework itself rejects.
        framework: the owner of the training loop, if the boundary determines it.
        model: the model, if it exists.
    """
    changes = changes_at(boundary, changeable, facts, framework=framework, model=model)
    return {**enforced.overrides(), **changes}


def changes_at(
    boundary: Boundary,
    changeable: Iterable[Setting],
    facts: Mapping[str, object],
    *,
    framework: str = "",
    model: object = None,
) -> dict[Setting, Value]:
    """Changes in the answer at a boundary, without settings enforced already.

    The arguments are those of `settings_at`.
    """
    answer = answer_at(boundary, changeable, facts, framework=framework, model=model)
    return {} if answer is None else parsed(answer.overrides)


def answer_at(
    boundary: Boundary,
    changeable: Iterable[Setting],
    facts: Mapping[str, object],
    *,
    framework: str = "",
    model: object = None,
) -> Answer | None:
    """The launcher's answer at a boundary; None without an answer or a launcher.

    Enforces its process-wide part. The arguments are those of `settings_at`.
    """
    frames = list(user_frames())
    names = " ".join(map(_name, frames)).encode(errors="surrogateescape")
    question = Ask(
        key=f"{boundary}@{zlib.crc32(names):08x}",
        boundary=boundary,
        changeable=[str(setting) for setting in changeable],
        facts={name: value for name, value in facts.items() if is_value(value, name)},
        framework=framework,
        shape=_shape(model),
        frame=place(*frames[0]) if frames else "",
    )
    answer = observations.ask(question)
    if answer is not None:
        enforced.settle(parsed(answer.overrides), parsed(answer.replaced))
    return answer


def _shape(model: object) -> dict[str, Any] | None:
    """The shape of a model, if it has a usual one."""
    with suppress(Exception):
        return None if model is None else shape_of(model)
    return None


def _name(frame: tuple[str, int]) -> str:
    """Formats a frame without its folder, which may differ between nodes."""
    file, line = frame
    return f"{Path(file).name}:{line}"
