"""Settings that the plan enforces in this worker, or the launcher's answer at a boundary.

The launcher is asked, as a worker has more facts than any reader. The answer applies to the object
created at the boundary; only the checkpointing mode applies to the whole process. A boundary's key
includes all user frames: if one rank alone creates an object in a helper, the other keys stay the
same.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ..core import preset
from ..core.model import shape_of
from ..core.preset import parsed
from ..core.settings import Setting, Value, is_value
from ..evidence.observations import observations
from ..evidence.worker_messages import Answer, Ask, Boundary
from .callers import place, user_frames

PATIENCE = 30.0
"""Maximum seconds to wait for an answer; a search takes tens of milliseconds."""

_settled: dict[Setting, Value] = {}
_settled_replaced: dict[Setting, Value] = {}
"""The answers so far for the whole process, and the values that they replace."""


def overrides() -> dict[Setting, Value]:
    """Settings this worker enforces: the plan's, read from the environment, and later answers."""
    return {**_decoded(os.environ.get(preset.OVERRIDES_VARIABLE, "{}")), **_settled}


def replaced() -> dict[Setting, Value]:
    """The script's values of the enforced settings, if known."""
    return {**_decoded(os.environ.get(preset.REPLACED_VARIABLE, "{}")), **_settled_replaced}


@functools.lru_cache(maxsize=4)
def _decoded(text: str) -> dict[Setting, Value]:
    return preset.decode(text)


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
        _settle(answer)
    return answer


def _settle(answer: Answer) -> None:
    """Stores the part of an answer that applies to the whole process: the checkpointing mode."""
    name = Setting.GRADIENT_CHECKPOINTING
    for held, stated in ((_settled, answer.overrides), (_settled_replaced, answer.replaced)):
        held.update({key: value for key, value in parsed(stated).items() if key is name})


def changes_of(answer: Answer | None) -> dict[Setting, Value]:
    """The settings of an answer, without those enforced before."""
    return {} if answer is None else parsed(answer.overrides)


def settings_of(answer: Answer | None) -> dict[Setting, Value]:
    """The settings to enforce after an answer: the plan's, and the answer's changes."""
    return {**overrides(), **changes_of(answer)}
