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

from ..core.model import shape_of
from ..core.preset import parsed
from ..core.settings import Setting, Value, is_value
from ..evidence.observations import observations
from ..evidence.worker_messages import Answer, Ask, Boundary
from . import enforced
from .callers import place, user_frames

PATIENCE = 30.0
"""Maximum seconds to wait for an answer; a search takes tens of milliseconds."""


def answer_at(
    boundary: Boundary,
    changeable: Iterable[Setting],
    facts: Mapping[str, object],
    *,
    framework: str = "",
    model: object = None,
) -> Answer | None:
    """The launcher's answer at a boundary; None without an answer or a launcher.

    Enforces its process-wide part.

    Args:
        boundary: the worker's position.
        changeable: settings that can still change there.
        facts: settings in force and facts, by name. Unknown values are left out, and values no plan
            can have, which the framework itself rejects.
        framework: the owner of the training loop, if the boundary determines it.
        model: the model, if it exists.
    """
    shape = None
    with suppress(Exception):  # an unusual model
        shape = None if model is None else shape_of(model)
    frames = list(user_frames())
    # Without folders, which may differ between nodes.
    names = " ".join(f"{Path(file).name}:{line}" for file, line in frames)
    question = Ask(
        key=f"{boundary}@{zlib.crc32(names.encode(errors='surrogateescape')):08x}",
        boundary=boundary,
        changeable=[str(setting) for setting in changeable],
        facts={name: value for name, value in facts.items() if is_value(value, name)},
        framework=framework,
        shape=shape,
        frame=place(*frames[0]) if frames else "",
    )
    answer = observations.ask(question)
    if answer is not None:
        enforced.settle(parsed(answer.overrides), parsed(answer.replaced))
    return answer


def changes_of(answer: Answer | None) -> dict[Setting, Value]:
    """The settings of an answer, without those enforced before."""
    return {} if answer is None else parsed(answer.overrides)


def settings_of(answer: Answer | None) -> dict[Setting, Value]:
    """The settings to enforce after an answer: the plan's, and the answer's changes."""
    return {**enforced.overrides(), **changes_of(answer)}
