"""The throughput of a run, and the part of its time lost to failures and relaunches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from ..core.quantities import count_of
from ..core.settings import BATCH, Fact
from ..diagnosis.attempt import Outcome
from ..diagnosis.observed import with_seen
from ..progress.board import RankProgress

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Rate = Annotated[float, Meta(ge=0, lt=1e18)]


class Throughput(TypedDict):
    """The throughput of a run, as in `outcome.json`; unknown values are missing.

    The rates are those of the last attempt that has timed steps: all but its first.

    Attributes:
        steps: optimizer steps that this run has done, without those before a resume that began it.
        seconds: the time of those that were timed, without evaluation and saving.
        samples_per_second: by the samples of a step on all ranks, as seen, else as known.
        tokens_per_sample: as seen, padding included.
        reached: the last step, if the run began by a resume.
        lost: part of the run's time that went into failed attempts, but for steps that a later
            attempt went on from, and into the pauses between attempts.
    """

    steps: Count
    seconds: Rate
    steps_per_second: Rate
    samples_per_second: NotRequired[Rate]
    tokens_per_sample: NotRequired[Count]
    tokens_per_second: NotRequired[Rate]
    reached: NotRequired[Count]
    lost: Rate


def line_of(document: Throughput) -> str:
    """A throughput as a line of text."""
    parts = [f"{_number(document['steps_per_second'])} steps/s"]
    if "samples_per_second" in document:
        parts.append(f"{_number(document['samples_per_second'])} samples/s")
    if "tokens_per_second" in document and "tokens_per_sample" in document:
        length = f"{document['tokens_per_sample']:,} a sample"
        parts.append(f"{_number(document['tokens_per_second'])} tokens/s at {length}")
    lost = document["lost"]
    failures = f"; {lost:.0%} of the time lost to failures" if lost >= 0.005 else ""
    steps = document["steps"]
    done = count_of(steps, "step")
    if "reached" in document:
        done += f", up to step {document['reached']:,}"
    return f"trained {done}: {', '.join(parts)}{failures}"


def throughput_of(outcomes: Sequence[Outcome]) -> Throughput | None:
    """The throughput of a run; None without timed steps."""
    last = next((outcome for outcome in reversed(outcomes) if _first(outcome)), None)
    row = None if last is None else _first(last)
    if last is None or row is None or row.step is None:
        return None
    start = min(first.start for first in map(_first, outcomes) if first is not None)
    rate, lost = row.timed / row.trained, _lost(outcomes)
    seconds, steps = row.trained, row.step - start
    known = Throughput(steps=steps, seconds=seconds, steps_per_second=rate, lost=lost)
    batch, length = _sizes(last, row.timed)
    if batch is not None:
        known["samples_per_second"] = rate * batch
    if batch is not None and length is not None:
        known["tokens_per_sample"] = round(length)
        known["tokens_per_second"] = rate * batch * length
    if start:
        known["reached"] = row.step
    return known


def _first(outcome: Outcome) -> RankProgress | None:
    """The first rank's progress; None if it has timed no step."""
    row = next(iter(outcome.seen.rows), None)
    return row if row is not None and row.timed and row.trained and row.step else None


def _sizes(outcome: Outcome, steps: int) -> tuple[float | None, float | None]:
    """Samples of a step and tokens of a sample, each None if it is only assumed.

    The observations of node 0's ranks represent all ranks.
    """
    plan = outcome.attempt.plan
    rows = outcome.seen.rows
    samples, tokens = sum(row.samples for row in rows), sum(row.tokens for row in rows)
    if plan.workload.value(Fact.MODEL_PARALLEL):
        return None, None
    if samples:
        batch = samples * plan.request.world / len(rows) / steps
        return batch, tokens / samples or None
    workload = with_seen(plan.workload, outcome.attempt, outcome.seen)
    requested = {name: workload.requested.get(name) for name in BATCH if workload.is_certain(name)}
    micro, accumulation = ({**requested, **plan.overrides}.get(name) for name in BATCH)
    if micro is None or accumulation is None or workload.makes_batches:
        return None, None
    return int(micro) * int(accumulation) * plan.request.world, None


def _lost(outcomes: Sequence[Outcome]) -> float:
    """The part of the time outside the last attempt and the steps that it continued from."""
    begin, end = outcomes[0].seen.span[0], outcomes[-1].seen.span[1]
    used = [end - outcomes[-1].seen.span[0], *map(_kept, outcomes, outcomes[1:])]
    return max(0.0, 1 - sum(used) / (end - begin)) if end > begin else 0.0


def _kept(outcome: Outcome, following: Outcome) -> float:
    """Seconds of an attempt's steps from which the following attempt continued."""
    done, next_done = _first(outcome), _first(following)
    if done is None or next_done is None:
        return 0.0
    begun, resumed = _begin(done), _begin(next_done)
    return done.trained * min(1.0, max(0.0, (resumed - begun) / done.timed))


def _begin(row: RankProgress) -> int:
    """Steps done before the first that was timed."""
    return (row.step or 0) - row.timed


def _number(value: float) -> str:
    """A rate with three figures."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
