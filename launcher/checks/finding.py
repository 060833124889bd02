"""A finding: a fault that a check observed in a running training."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ..core.limits import Count, Line
from ..core.quantities import ranks_text
from ..core.request import CheckOptions

VARIABLE = "SAFE_LAUNCH_CHECKS"
"""Workers' environment variable with the enabled checks, separated by commas."""
MOST = 64
"""Maximum findings, and reasons of skipped checks, to keep per attempt."""
BATCHES = 3
"""Minimum batches in a row to judge."""


class Check(StrEnum):
    """The checks, by the names `--mute` takes."""

    TRAINED = "trained"
    """Exactly the right parameters are trained."""
    REPLICAS = "replicas"
    """Replicated weights are equal on all ranks."""
    GRADIENTS = "gradients"
    """The optimizer gets the mean of the gradients that backward passes add."""
    DATA = "data"
    """Batches differ between ranks and steps, and have labels."""
    DIVIDED = "divided"
    """The loss is divided by the accumulation once."""
    SCHEDULE = "schedule"
    """The learning rate schedule steps with the optimizer."""
    PRECISION = "precision"
    """Updates use a dtype that can represent them."""
    SAVED = "saved"
    """Trained weights are saved."""
    RESUMED = "resumed"
    """A resumed training continues as the saved one would have."""
    OURS = "ours"
    """A corrected run trains as before."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's finding.

    Attributes:
        check: the check.
        certain: whether it can't be intended; otherwise it only deserves a look.
        sentence: the fault.
        advice: the remedy.
        step: the optimizer step of the observation, from 1; None outside of steps.
        ranks: the affected ranks.
        parameter: the first affected parameter; empty if none.
        where: the user's line, as `file:line`; empty if unknown.
    """

    check: Check
    certain: bool = field(default=False, kw_only=True)
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
        """Key that merges findings of several ranks; a resume is seen by workers and launcher."""
        where = "" if self.check is Check.RESUMED else self.where
        return self.check, self.certain, self.sentence.partition(":")[0], where


@dataclass(frozen=True, slots=True)
class Fault:
    """What findings of one kind have alike.

    Attributes:
        sentence: the fault, with places for what was observed, as `str.format` has them.
        advice: the remedy, likewise.
        certain: whether it can't be intended.
        least: how many of the first `BATCHES` must show it, if each shows it or doesn't.
        check: the check that reports it.
    """

    sentence: str
    advice: str
    certain: bool = False
    least: int = BATCHES
    check: Check = Check.DATA

    def found(self, step: int | None = None, /, **seen: object) -> Finding:
        """Reports the fault, with what was observed at an optimizer step."""
        sentence, advice = (text.format(**seen) for text in (self.sentence, self.advice))
        return Finding(self.check, sentence, advice, step, certain=self.certain)

    def judged(self, shown: Sequence[bool]) -> Finding | None:
        """Reports the fault.

        Args:
            shown: whether each of the first batches shows it.
        """
        is_found = len(shown) >= BATCHES and sum(shown) >= self.least
        return self.found(step=1) if is_found else None


def first_of(names: Collection[str], one: str = "", several: str = "") -> str:
    """The first name, the number of the others, and a verb for them: `a.weight and 3 more are`."""
    first, *more = names
    found, verb = (f"{first} and {len(more):,} more", several) if more else (first, one)
    return f"{found} {verb}" if verb else found


def active(options: CheckOptions) -> str:
    """Value of the workers' variable with the enabled checks."""
    is_off = options.mode == "off"
    return ",".join(() if is_off else (check for check in Check if check not in options.muted))


def is_on(check: Check, environment: Mapping[str, str]) -> bool:
    """Whether a check is enabled in a worker."""
    return check in environment.get(VARIABLE, "").split(",")
