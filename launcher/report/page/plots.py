"""The plots of a run's page: SVG whose text is text, in the page's colours."""

from __future__ import annotations

import io
import operator
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ...core.quantities import GIB
from ...progress.snapshot import Point, Snapshot
from .past_attempt import PastAttempt

INK, FAINT = "#010101", "#020202"
GOOD, BAD = "#030303", "#040404"
SERIES = ("#050505", "#060606", "#070707", "#080808", "#090909", "#0a0a0a")
NAMES = {
    INK: "ink",
    FAINT: "faint",
    GOOD: "good",
    BAD: "bad",
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES)},
}
"""Colours that are drawn, and the variables of the page's style that take their places."""
WIDTH = 9.0
"""Inches; the page scales it."""
MOST_NODES = 32
FINEST = 40
"""Parts of the time over which a speed is taken at most: a step may be longer than two looks."""
SHORTEST = 0.25
"""Seconds that a speed is taken over, at least."""
LEGEND_COLUMNS = 4
STYLE = {
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), INK
    ),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "text.parse_math": False,  # a host may have any name
    "svg.fonttype": "none",
}
"""Settings of matplotlib, which draws nothing else in this process."""


def timeline(attempts: Sequence[PastAttempt], hosts: Sequence[str]) -> str:
    """The attempts over all nodes; empty if no attempt's times are known."""
    timed = [(attempt, attempt.span) for attempt in attempts if attempt.span]
    if not timed:
        return ""
    begin, names = timed[0][1][0], hosts[:MOST_NODES] or ("this node",)
    figure, axes = _axes(0.55 + 0.3 * len(names))
    for attempt, (first, last) in timed:
        ends = {snapshot.node: snapshot.written for snapshot in attempt.nodes}
        colour = BAD if attempt.failures else GOOD
        for node in range(len(names)):
            end = min(last, ends.get(node, last))
            axes.barh(node, max(end - first, 0), left=first - begin, color=colour, height=0.62)
        axes.text((first + last) / 2 - begin, -0.5, str(attempt.number), ha="center", va="bottom")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("seconds since the first attempt began; above, the attempts' numbers")
    return _svg(figure, "timeline")


def curves(attempts: Sequence[PastAttempt]) -> str:
    """Losses and steps a second across attempts; empty if neither is known."""
    parts = [any(attempt.losses for attempt in attempts), any(map(_speeds, attempts))]
    if not any(parts):
        return ""
    figure, all_axes = _figure(sum(parts), 2.4 * sum(parts))
    axes = iter(all_axes)
    if parts[0]:
        _draw(next(axes), attempts, "loss", "epochs")
    if parts[1]:
        _draw(next(axes), attempts, "steps a second", "seconds since the first attempt began")
    return _svg(figure, "curves")


def memory(attempts: Sequence[PastAttempt]) -> str:
    """Predicted memory by component, and the observed memory.

    Of attempts that have trained or have run out of memory; empty without one.
    """
    shown = [
        attempt
        for attempt in attempts
        if attempt.observed_memory or (attempt.components and attempt.has_trained)
    ]
    if not shown:
        return ""
    names = list(dict.fromkeys(name for attempt in shown for name in attempt.components))
    legend = -(-len(names) // LEGEND_COLUMNS)
    figure, axes = _axes(0.9 + 0.5 * len(shown) + 0.22 * legend)
    for row, attempt in enumerate(shown):
        left = 0.0
        for number, name in enumerate(names):
            size = attempt.components.get(name, 0) / GIB
            colour, label = SERIES[number % len(SERIES)], name if row == 0 else None
            alpha = 1.0 if number < len(SERIES) else 0.5
            axes.barh(row, size, left=left, color=colour, alpha=alpha, height=0.5, label=label)
            left += size
        for name, colour in (("held", INK), ("limit", BAD)):
            if held := attempt.observed_memory.get(name):
                axes.plot([held / GIB] * 2, [row - 0.38, row + 0.38], color=colour, lw=2.5)
                text = "observed" if name == "held" else name
                axes.text(held / GIB, row - 0.4, text, ha="center", va="bottom", color=colour)
    axes.set_yticks(range(len(shown)), [f"attempt {attempt.number}" for attempt in shown])
    axes.set_ylim(len(shown) - 0.4, -0.75)
    axes.set_xlim(left=0)
    axes.set_xlabel("GiB a rank")
    if names:
        figure.legend(ncols=LEGEND_COLUMNS, loc="outside lower center", frameon=False)
    return _svg(figure, "memory")


def _draw(axes: Any, attempts: Sequence[PastAttempt], what: str, unit: str) -> None:
    """One curve for each attempt; a line marks the start of each relaunch."""
    begin = next((attempt.span[0] for attempt in attempts if attempt.span), None)
    if begin is None:
        moments = (moment for attempt in attempts for moment, _ in _speeds(attempt))
        begin = min(moments, default=0.0)
    for number, attempt in enumerate(attempts):
        if what == "loss":
            points = [(loss.epoch, loss.loss) for loss in attempt.losses]
            start = points[0][0] if points else None
        else:
            points = [(moment - begin, speed) for moment, speed in _speeds(attempt)]
            start = attempt.span[0] - begin if attempt.span else None
        colour = SERIES[number % len(SERIES)]
        if points:
            steps, values = zip(*points, strict=True)
            if what == "loss":
                marker = "o" if len(points) < FINEST else ""
                axes.plot(steps, values, color=colour, lw=1.8, marker=marker, ms=3)
            else:
                axes.plot(steps, values, color=colour, lw=1.8, drawstyle="steps-pre")
                axes.set_ylim(0, max(axes.get_ylim()[1] if number else 0, 1.1 * max(values)))
        if number and start is not None:
            axes.axvline(start, color=FAINT, ls="--", lw=1)
            text = f" relaunched: attempt {attempt.number}"
            axes.text(
                start, 1.0, text, transform=axes.get_xaxis_transform(), va="bottom", color=INK
            )
    axes.set_ylabel(what)
    axes.set_xlabel(unit)
    axes.grid(visible=True, color=FAINT, lw=0.4, alpha=0.4)


def _speeds(attempt: PastAttempt) -> list[tuple[float, float]]:
    """Until when there were so many steps a second; first, from when on."""
    last = [point for node in attempt.nodes[:1] for point in _last_steps(node)]
    seen = sorted({*attempt.points, *last}, reverse=True)
    first_seen = {step: moment for moment, step in seen}
    points = [*_apart(sorted((moment, step) for step, moment in first_seen.items()))]
    speeds = [
        (later, (step - before) / (later - earlier))
        for (earlier, before), (later, step) in pairwise(points)
    ]
    return [(points[0][0], speeds[0][1]), *speeds] if speeds else []


def _apart(points: Sequence[Point]) -> Iterator[Point]:
    """Points that are so far apart that each step shows."""
    if not points:
        return
    gap = max(SHORTEST, (points[-1][0] - points[0][0]) / FINEST)
    last = points[0]
    yield last
    for point in points[1:]:
        if point[0] - last[0] > gap and point[1] > last[1]:
            last = point
            yield last


def _last_steps(node: Snapshot) -> list[Point]:
    """When the last steps of the node's first rank ended."""
    row = next(iter(node.rows), None)
    if row is None or row.step is None:
        return []
    ends = accumulate(reversed(row.whole), operator.sub, initial=node.written - row.quiet)
    return [(end, row.step - n) for n, end in enumerate(ends)][::-1]


def _axes(height: float) -> tuple[Any, Any]:
    figure, (axes,) = _figure(1, height)
    return figure, axes


def _figure(rows: int, height: float) -> tuple[Any, Any]:
    """A figure with axes in rows, all in the page's colours."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams.update(STYLE)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, 1, squeeze=False)[:, 0]


def _svg(figure: Any, name: str) -> str:
    """The figure as SVG: its ids begin with the name, so that no other figure's are the same."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": name, "svg.id": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in NAMES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return svg
