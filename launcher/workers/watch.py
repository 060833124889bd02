"""What the supervisor of an attempt calls when something happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.settings import Value
from ..hangs.report import HangReport


@dataclass(frozen=True, slots=True)
class Watch:
    """Callbacks of the supervisor.

    Attributes:
        allowed: whether the plan may continue, given what a worker has observed: settings and
            facts, and the model's shape.
        notice: called with a line that the user should see at once.
        imported: called with what a worker has imported (`extra_imports.Report`).
        hung: called with where every rank stands, when none moves or somebody has asked.
    """

    allowed: Callable[[Mapping[str, Value], dict[str, Any] | None], bool]
    notice: Callable[[str], None]
    imported: Callable[[dict[str, Any]], None]
    hung: Callable[[HangReport], None]
