"""What the documentation allows for a trial: exit codes, time, and who must be named."""

from __future__ import annotations

from dataclasses import dataclass

from support.faults.job import JOINING, NAMES, SILENCE
from support.faults.trial import Trial

STOPS = {"SIGHUP": 129, "SIGINT": 130, "SIGTERM": 143}
FAILURE = frozenset({*range(1, 256), *range(-64, 0)})
"""What says that a run has failed, where nobody has said more."""
QUICK = 20.0
"""Seconds in which a run ends that has to: the stop times are 1, 1 and 3 s."""
WHOLE = 120.0
"""Seconds in which a run ends that goes on to its end: four on an idle machine, which few are."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may come of a trial.

    Attributes:
        codes: exit codes of each host's launcher.
        seconds: from the fault to the end of the last launcher.
        named: what must be said where the run has failed: a pattern; empty where nothing must.
    """

    codes: tuple[frozenset[int], ...]
    seconds: float
    named: str = ""


def allowed(trial: Trial, way: str) -> Allowed:
    """What is allowed under our launcher, or under torchrun, whose codes only tell if it failed."""
    ours = _ours(trial)
    if way == "safe-launch":
        return ours
    codes = tuple(
        frozenset().union(*(FAILURE if code else {0} for code in each)) for each in ours.codes
    )
    return Allowed(codes, ours.seconds, _named_by_torchrun(trial))


def _ours(trial: Trial) -> Allowed:
    fault, moment, node = trial.fault, trial.moment, trial.node
    late = {0} if moment == "teardown" else set()
    joining = JOINING if moment in ("start", "imports") and trial.hosts > 1 else 0
    # Struck while the first attempt is still being ended: its failure is how the run ends.
    failed = {1} if moment == "relaunch" else set()
    lost = rf"node {node}\b|{NAMES[node]}\b|rank {node}\b"
    match fault.partition("-")[0]:
        case "kill" if fault == "kill-rank":
            return _all(trial, {137, *late}, QUICK, rf"rank {trial.rank} .*SIGKILL")
        case "kill" if fault == "kill-store":
            if moment == "relaunch":  # each attempt has a store of its own
                return _all(trial, {0, 70}, WHOLE, "TCPStore")
            return _all(trial, {70, *late}, QUICK, "TCPStore")
        case "kill" if fault in ("kill-launcher", "kill-both"):
            codes = _each(trial, {75, *late, *failed}, {-9, *late})
            return Allowed(codes, QUICK + joining, lost if trial.hosts > 1 else "")
        case "SIGTERM" | "SIGINT" | "SIGHUP":
            stop = STOPS[fault]
            # Before Python has begun to run the launcher, the signal does what it always does.
            early = {128 - stop} if moment == "start" else set()
            others = {75} if joining else set()
            codes = _each(trial, {stop, *late, *others}, {stop, *late, *early})
            return Allowed(codes, QUICK + joining)
        case "hold" if fault != "hold-guardian":
            return _all(trial, {143, *late}, QUICK)
        case "cut" | "unplug":
            return _all(trial, {75, *late, *failed}, QUICK + SILENCE * 2 + joining, lost)
        case "full" if fault == "full-runs" and moment == "start":
            # The disk may be full only after the files are there.
            named = "can't be written|missing|lost|isn't written any further"
            return _all(trial, {0, 73, 75}, WHOLE, named)
        case "full" if fault == "full-checkpoints":
            return _all(trial, {1}, WHOLE, r"rank 0\b")
        case "descriptors":
            return _all(trial, {0, 1, 64, 73, 75}, WHOLE)
    return _all(trial, {0}, WHOLE)


def _all(trial: Trial, codes: set[int], seconds: float, named: str = "") -> Allowed:
    return Allowed((frozenset(codes),) * trial.hosts, seconds, named)


def _each(trial: Trial, others: set[int], own: set[int]) -> tuple[frozenset[int], ...]:
    """Codes of the launcher that is hit, and of the others."""
    hosts = range(trial.hosts)
    return tuple(frozenset(own if node == trial.node else others) for node in hosts)


def _named_by_torchrun(trial: Trial) -> str:
    """How torchrun says whom it was, where it says anything."""
    match trial.fault:
        case "kill-rank":
            return rf"rank\s*: {trial.rank} "
        case "full-checkpoints":
            return r"rank\s*: 0 "
        case "kill-launcher" | "cut" | "unplug":
            return rf"(?<!master_addr=){NAMES[trial.node]}\b" if trial.hosts > 1 else ""
    return ""
