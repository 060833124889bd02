"""What a process keeps for its guards, as in a new worker."""

from __future__ import annotations

import pytest
from safe_launch.evidence.observations import Observations, observations
from safe_launch.guards import optimizer, step_times
from safe_launch.guards.checks import (
    collectives,
    early_steps,
    first_steps,
    gathers,
    held_parameters,
    reporting,
    resumes,
    schedules,
)

SINGLE = (
    observations,
    optimizer.steps,
    step_times.times,
    first_steps.first_steps,
    gathers.gathers,
    collectives.padding,
    resumes.resumes,
    schedules.schedules,
)
"""Objects that a process has one of."""


def begin() -> Observations:
    """Sets them back; returns the observations."""
    for each in SINGLE:
        vars(each).clear()
        type(each).__init__(each)
    reporting._sent.clear()
    held_parameters._replaced.clear()
    early_steps._waiting.clear()
    return observations


@pytest.fixture(autouse=True)
def new_worker() -> None:
    """A test begins without what the one before it has left."""
    begin()
