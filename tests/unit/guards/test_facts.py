"""Values of a training's first calls, copied and read when they have arrived."""

from __future__ import annotations

from types import SimpleNamespace

from safe_launch.guards.checks.copies import Copy, Facts
from support.lazy import Lazy

torch = Lazy("torch")


def test_facts_of_calls() -> None:
    """They are there once there are enough, and none is on its way."""
    facts = Facts(2)
    assert (len(facts), facts.have_arrived, facts.are_there, facts.where) == (0, True, False, "")
    assert facts.add(torch.tensor(2) == 2, torch.zeros(1), call=3)
    assert facts.where.startswith("tests/unit/guards/test_facts.py:")
    assert (3 in facts, 0 in facts, facts.are_enough) == (True, False, False)
    weight = torch.tensor(2.5, requires_grad=True)
    assert facts.add(weight, torch.tensor([[1]]))
    assert facts.are_there
    assert facts.parts() == [[[1.0], [0.0]], [[2.5], [1.0]]]
    assert facts.truths() == [[True, False], [True, True]]
    facts._copies[7] = Copy(None, SimpleNamespace(query=lambda: False), ())
    assert (facts.are_enough, facts.have_arrived, facts.are_there) == (True, False, False)
