"""Checks from which samples a script decides: to save the best weights, or to lower the rate."""

from __future__ import annotations

from .finding import Check, Finding

SAVES, LOWERS = "the best weights are chosen", "a schedule lowers the rate"
"""What a script decides by a value of an evaluation."""


def by_one_share(what: str, step: int) -> Finding:
    """Reports a decision by values of one rank's share of an evaluation's samples.

    Args:
        what: what is decided.
        step: optimizer steps so far.
    """
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"{what} by an evaluation of this rank's share of the samples alone: since it "
        "began, the ranks have exchanged nothing",
        advice="Sum the values and the number of samples over the ranks first, by all_reduce (with "
        "accelerate: gather_for_metrics)",
        step=step,
    )
