"""The memory model against all measured bytes of the engines."""

from __future__ import annotations

from statistics import median

import pytest
from support.benchmarks import benchmark_of


@pytest.mark.parametrize("name", ["against_deepspeed", "against_fsdp"])
def test_estimates_agree_with_the_measured_bytes(name: str) -> None:
    """Bounds in docs/measured: median error 3 % of states and peak, worst row 10 %."""
    benchmark = benchmark_of(name)
    rows = benchmark.fake_world.compared(benchmark.RESULTS, benchmark.compare)
    assert len(rows) > 100
    for kind in (0, 1):
        errors = [abs(row.errors[kind]) for row in rows]
        assert median(errors) < 0.03
        assert max(errors) < 0.10
