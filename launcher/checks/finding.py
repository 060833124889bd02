"""A finding: a fault that a check has seen in a running training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..core.limits import Count, Line
from ..core.ranks_text import ranks_text
from ..core.request import CheckOptions

VARIABLE = "SAFE_LAUNCH_CHECKS"
"""Environment variable of the workers with the checks that are on, separated by commas."""
MOST = 64
"""Findings that are kept of an attempt, and reasons of skipped checks."""


class Check(StrEnum):
    """The checks, by the name that `--mute` takes."""

    TRAINED = "trained"
    """Whether the right parameters are trained, and nothing else."""
    REPLICAS = "replicas"
    """Whether the ranks hold the same weights."""
    GRADIENTS = "gradients"
    """Whether the optimizer gets the mean of the gradients that backward passes add."""
    DATA = "data"
    """Whether the batches differ between ranks and steps, and have labels."""
    DIVIDED = "divided"
    """Whether the loss is divided by the accumulation once."""
    SCHEDULE = "schedule"
    """Whether the learning rate's schedule steps with the optimizer."""
    PRECISION = "precision"
    """Whether updates are made in a type that can hold them."""
    SAVED = "saved"
    """Whether the trained weights are saved."""
    RESUMED = "resumed"
    """Whether a training that resumes goes on as it would have."""
    OURS = "ours"
    """Whether a corrected run trains as before."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's finding.

    Attributes:
        check: the check.
        certain: whether it can't be meant; else it is worth a look.
        sentence: what is wrong.
        advice: what to do.
        step: the optimizer step at which it was seen, from 1; None outside of any.
        ranks: the ranks that have it.
        parameter: the first parameter that it is about; empty for none.
        where: the user's line, as `file:line`; empty where none is known.
    """

    check: Check
    certain: bool
    sentence: Line
    advice: Line = ""
    step: Count | None = None
    ranks: tuple[int, ...] = ()
    parameter: Line = ""
    where: Line = ""

    @property
    def line(self) -> str:
        """The finding as one line."""
        since = "" if self.step is None else f"step {self.step}"
        who = ranks_text(self.ranks) if self.ranks else ""
        about = ", ".join(filter(None, (since, who, self.where)))
        may = "" if self.certain else " (it may be meant)"
        advice = f" {self.advice}" if self.advice else ""
        return f"check {self.check}: {self.sentence}{may}{f' [{about}]' if about else ''}.{advice}"

    @property
    def identity(self) -> tuple[object, ...]:
        """The key by which findings of several ranks are one."""
        return self.check, self.certain, self.sentence.partition(":")[0], self.where


def first_of(names: Collection[str]) -> str:
    """The first name and the number of the others: `a.weight and 3 more`."""
    first, *more = names
    return f"{first} and {len(more):,} more" if more else first


def active(options: CheckOptions) -> str:
    """The checks that are made, as the workers' variable has them."""
    is_off = options.mode == "off"
    return ",".join(() if is_off else (each for each in Check if each not in options.muted))


def is_on(check: Check, environment: Mapping[str, str]) -> bool:
    """Whether a worker makes a check."""
    return check in environment.get(VARIABLE, "").split(",")
