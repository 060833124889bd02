"""Asks the launcher for the settings at a boundary, where a worker has more facts than any reader.

The answer holds for the object that is made at the boundary; only the implementation of
checkpointing belongs to the process. A key names the way to the boundary by all of the user's
frames: if one rank alone makes an object in a helper, the others' keys stay the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.described_model import shape_of
from ..core.settings import Setting, Value, is_value, parse_value
from ..evidence.observations import Observations
from ..evidence.worker_messages import Answer, Ask, Boundary
from . import enforced
from .callers import place, user_frames

PATIENCE = 30.0
"""Seconds for an answer at most; a search takes some tens of milliseconds."""


def settings_at(
    boundary: Boundary,
    changeable: Iterable[Setting],
    facts: Mapping[str, object],
    observations: Observations,
    *,
    framework: str = "",
    model: object = None,
) -> dict[Setting, Value]:
    """Settings enforced at a boundary: known before the launch, or answered now.

    Args:
        boundary: where the worker stands.
        changeable: settings that can still be changed there.
        facts: settings in force and facts, by name. What isn't known, or no value that a plan could
            have (a script may give anything, and its framework says so), isn't reported.
        observations: of this worker.
        framework: the owner of the training loop, if the boundary determines it.
        model: the model, if there is one.
    """
    changes = changes_at(
        boundary, changeable, facts, observations, framework=framework, model=model
    )
    return {**enforced.overrides(), **changes}


def changes_at(
    boundary: Boundary,
    changeable: Iterable[Setting],
    facts: Mapping[str, object],
    observations: Observations,
    *,
    framework: str = "",
    model: object = None,
) -> dict[Setting, Value]:
    """The changes of the answer at a boundary, without the settings that are enforced already.

    The arguments are those of `settings_at`.
    """
    answer = answer_at(boundary, changeable, facts, observations, framework=framework, model=model)
    return {} if answer is None else parsed(answer.overrides)


def answer_at(
    boundary: Boundary,
    changeable: Iterable[Setting],
    facts: Mapping[str, object],
    observations: Observations,
    *,
    framework: str = "",
    model: object = None,
) -> Answer | None:
    """The launcher's answer at a boundary; its part for the whole process is enforced already.

    None if there is none, or no launcher. The arguments are those of `settings_at`.
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
    """The shape of a model; None if there is none, or an unusual one."""
    with suppress(Exception):
        return None if model is None else shape_of(model)
    return None


def parsed(values: Mapping[str, Value]) -> dict[Setting, Value]:
    """Settings of an answer, by their names."""
    return {Setting(name): parse_value(Setting(name), value) for name, value in values.items()}


def _name(frame: tuple[str, int]) -> str:
    """A frame without its folder, which may differ on another node."""
    file, line = frame
    return f"{Path(file).name}:{line}"
