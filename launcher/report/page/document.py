"""The HTML documents: the page of a run, and the index of a folder of runs."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any

from ...core.errors import LaunchError
from ...core.quantities import count_of
from ...core.quotation import cleaned
from ...progress.stragglers import stragglers
from ...system import regular_files
from ...system.redaction import redacted
from ..run_status import RUN_HEAD, PastRun, span
from ..throughput import line_of
from . import plots
from .past_attempt import Failure, PastAttempt, read_attempt

MOST_RANKS = 64
"""Rows of the table of ranks."""
NEEDED = ("jinja2", "matplotlib")
MARK = b'<meta name="generator" content="safe-launch">'
"""Every page has it in its first `HEAD_SIZE` bytes."""
HEAD_SIZE = 1024
CODE = re.compile(r"`([^`\n]+)`")
"""Spans of a text that are shown as code."""


def require_libraries() -> None:
    """Checks that what makes pages is installed.

    Raises:
        LaunchError: it isn't.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        which = "which aren't" if len(missing) > 1 else "which isn't"
        problem = f"a report needs {' and '.join(missing)}, {which} installed"
        raise LaunchError(problem, "pip install 'safe-launch[report]'")


def page(run: PastRun) -> str:
    """The page of a run."""
    status = run.status
    numbers = sorted(status.failures)
    attempts = [
        read_attempt(status.folder / f"attempt-{number}", number, max(1, len(status.launchers)))
        for number in numbers
    ]
    last = attempts[-1] if attempts else None
    rows = [(node.host, row) for node in (last.nodes if last else ()) for row in node.rows]
    slow = stragglers([row for _, row in rows])
    hosts = {row.rank: host for host, row in rows}
    speed = status.outcome and status.outcome.get("throughput")
    return _filled(
        "page.html",
        run=run,
        verdict=verdict(run, attempts),
        when="" if run.begun is None else time.strftime("%F %R", time.localtime(run.begun)),
        took="" if run.seconds is None else span(run.seconds),
        attempts=attempts,
        timeline=plots.timeline(attempts, [launcher.host for launcher in status.launchers]),
        curves=plots.curves(attempts),
        memory=plots.memory(attempts),
        ranks=rows[:MOST_RANKS],
        left=max(0, len(rows) - MOST_RANKS),
        slow=[straggler.text(hosts[straggler.rank]) for straggler in slow],
        speed=line_of(speed) if speed else "",
    )


def index(runs: Sequence[PastRun], links: Sequence[str]) -> str:
    """The index of runs, each with the link to its page."""
    return _filled("index.html", head=RUN_HEAD, runs=list(zip(runs, links, strict=True)))


def is_page(path: Path) -> bool:
    """Whether a file is a page that was made here.

    Raises:
        OSError: it can't be read.
    """
    if not path.is_file():
        return False
    with regular_files.opened(path) as file:
        return MARK in file.read(HEAD_SIZE)


def verdict(run: PastRun, attempts: Sequence[PastAttempt]) -> str:
    """The result of the run, in a sentence."""
    first = next((attempt.failures[0] for attempt in attempts if attempt.failures), None)
    cause = "" if first is None else _cause(first)
    changes = ", ".join(run.changes)
    if run.status.is_running:
        return "The run is in progress."
    outcome = run.status.outcome
    if outcome is not None and outcome["exit_code"] == 0:
        if first is not None and changes:
            ending = f"in attempt {len(attempts)} with {changes}"
            return f"It trained to the end {ending}, after the failure of {cause}."
        return f"It trained to the end{f', with {changes}' if changes else ''}."
    if first is not None:
        again = (
            f" in the first of {count_of(len(attempts), 'attempt')}" if len(attempts) > 1 else ""
        )
        return f"It failed{again}: {cause}."
    return f"It {run.status.state_text()}."


def _cause(failure: Failure) -> str:
    what = shorten(failure.what, 160, placeholder=" ...")
    return f"{failure.who}: {what}{f' ({failure.entry})' if failure.entry else ''}"


def _filled(name: str, **values: Any) -> str:
    """A template with its values: escaped, without secrets and control characters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("safe_launch.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["span"] = span
    environment.filters["prose"] = _prose
    return environment.get_template(name).render(**values)


def _prose(text: str) -> object:
    """A text with its backticks rendered as code."""
    from markupsafe import Markup, escape

    return Markup(CODE.sub(r"<code>\1</code>", str(escape(cleaned(redacted(text))))))


def _shown(value: object) -> object:
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return cleaned(redacted(str(value))) if is_text else value
