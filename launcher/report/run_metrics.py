"""A run as metrics: in OpenMetrics for scrapers, and as a line of JSON."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import fmean

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.openmetrics.exposition import generate_latest

from ..progress.board import Phase
from .run_status import RankStatus, RunStatus

PREFIX = "safe_launch"
RUN = ("run", "script")
RANK = ("run", "rank", "host")


def openmetrics(status: RunStatus) -> bytes:
    """The run as a whole document of OpenMetrics 1.0."""

    class Run:
        """Collects the run's families once."""

        def collect(self) -> Iterator[Metric]:
            return families(status)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Run())
    return bytes(generate_latest(registry))  # type: ignore[no-untyped-call]


def json_line(status: RunStatus) -> bytes:
    """The run as a line of JSON, with the time of the wall clock in seconds."""
    document = {"time": time.time(), "lost_seconds": lost_seconds(status), **status.document()}
    return json.dumps(document).encode() + b"\n"


def families(status: RunStatus) -> Iterator[Metric]:
    """The families of metrics, each with all samples of the run."""
    head = next(iter(status.launchers), None)
    script = "" if head is None else _script(head.command)
    run = (status.folder.name, script)

    def of_run(name: str, text: str, value: float, unit: str = "", *, sums: bool = False) -> Metric:
        kind = CounterMetricFamily if sums else GaugeMetricFamily
        family = kind(f"{PREFIX}_{name}", text, labels=RUN, unit=unit)
        family.add_metric(run, value)
        return family

    info = InfoMetricFamily(f"{PREFIX}_run", "The run.", labels=RUN)
    info.add_metric(run, {"host": "" if head is None else head.host})
    yield info
    yield of_run("running", "Whether the run's launcher runs.", status.is_running)
    if head is not None:
        text = "When the run began, in seconds since the epoch."
        yield of_run("begun_timestamp_seconds", text, head.begun, "seconds")
    if status.outcome is not None:
        code = status.outcome["exit_code"]
        yield of_run("exit_code", "The exit code of a run that has ended.", code)
    yield of_run("attempts", "Attempts that were started.", len(status.failures), sums=True)
    text = "Seconds of attempts that failed, and between them."
    yield of_run("lost_seconds", text, lost_seconds(status), "seconds", sums=True)
    failures = CounterMetricFamily(
        f"{PREFIX}_failures",
        "Attempts that failed, by known failure or exception.",
        labels=(*RUN, "failure"),
    )
    for failure, number in Counter(map(_kind, filter(None, status.failures.values()))).items():
        failures.add_metric((*run, failure), number)
    yield failures
    yield from _of_ranks(status)


def _of_ranks(status: RunStatus) -> Iterator[Metric]:
    """The progress of the last attempt's ranks; nothing once the run has ended."""
    ranks = status.ranks if status.is_running else ()
    for name, text, value_of in GAUGES:
        unit = "seconds" if name.endswith("_seconds") else ""
        family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=RANK, unit=unit)
        for rank in ranks:
            if (value := value_of(rank)) is not None:
                family.add_metric(_labels(status, rank), value)
        yield family
    phases = StateSetMetricFamily(f"{PREFIX}_rank_phase", "The phase of the rank.", labels=RANK)
    for rank in ranks:
        now = rank.progress.phase
        states = {phase.name.lower(): phase is now for phase in Phase}
        phases.add_metric(_labels(status, rank), states)
    yield phases


def _labels(status: RunStatus, rank: RankStatus) -> tuple[str, str, str]:
    return status.folder.name, str(rank.progress.rank), rank.host


def _mean(values: tuple[float, ...]) -> float | None:
    return fmean(values) if values else None


GAUGES: tuple[tuple[str, str, Callable[[RankStatus], float | None]], ...] = (
    ("rank_step", "Optimizer steps done.", lambda rank: rank.progress.step),
    (
        "rank_step_seconds",
        "Mean time of the latest steps.",
        lambda rank: _mean(rank.progress.whole),
    ),
    (
        "rank_own_seconds",
        "Mean time of the latest steps without waiting for other ranks.",
        lambda rank: _mean(rank.progress.own),
    ),
    (
        "rank_quiet_seconds",
        "Time since the rank last moved.",
        lambda rank: rank.progress.quiet + rank.age,
    ),
)
"""Metrics of a rank: name, help and value."""


def lost_seconds(status: RunStatus) -> float:
    """Seconds from the first attempt's start to the last's; to the end if that failed too."""
    begins = [begin for number in status.failures if (begin := _begin(status.folder, number))]
    if not begins:
        return 0.0
    ends = [launcher.ended for launcher in status.launchers[:1] if launcher.ended]
    failed = status.outcome is not None and status.outcome["exit_code"] != 0
    return max(0.0, (ends[0] if failed and ends else begins[-1]) - begins[0])


def _begin(run: Path, number: int) -> float | None:
    """When an attempt's plan was written."""
    with suppress(OSError):
        return (run / f"attempt-{number}" / "plan.json").stat().st_mtime
    return None


def _kind(failure: str) -> str:
    """A failure without its rank and its message: few different ones, as a label has to be."""
    who, colon, rest = failure.partition(": ")
    text = rest if colon and who.startswith("rank ") else failure
    return text.partition(": ")[0]


def _script(command: str) -> str:
    words = command.split()
    return Path(words[1] if words[:1] == ["-m"] else words[0]).name if words else ""
