"""The memory model against the real engines' bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from support.benchmarks import benchmark_of
from support.stacks import CURRENT
from support.warm_python import Training, warm


def assert_bytes(benchmark: ModuleType, cases: Sequence[dict[str, Any]], ranks: int = 0) -> None:
    """Checks each case on rank 0: states within 1 %, peak 8 %."""
    own = ("one", json.dumps(cases))
    output = warm(CURRENT).run(Training(str(benchmark.__file__), own, ranks)).outputs[0]
    found = [line for line in output.splitlines() if line.startswith("RESULT ")]
    assert len(found) == len(cases), output[-2000:]
    for line in found:
        row = json.loads(line.removeprefix("RESULT "))
        states, peak = benchmark.compare({name: str(one) for name, one in row.items()}).errors
        assert abs(states) < 0.01, row
        assert abs(peak) < 0.08, row


def test_the_real_engine_holds_these_bytes() -> None:
    """DeepSpeed on the CPU, rank 0 of 8, the other 7 being fake."""
    benchmark = benchmark_of("against_deepspeed")
    variants: list[dict[str, Any]] = [
        {},
        {"checkpointing": "non_reentrant", "micro_batch": 4},
        {"lora": True},
        {"offload": "optimizer", "checkpointing": "non_reentrant"},
    ]
    for stage in (2, 3):
        common = {"model": "llama-5m", "stage": stage, **benchmark.BASE}
        assert_bytes(benchmark, [{**common, **variant} for variant in variants])


def test_two_ranks_of_fsdp2_hold_these_bytes() -> None:
    """Real ranks over gloo, with accelerate's units and a script's."""
    benchmark = benchmark_of("against_fsdp")
    cases = [
        {"model": "llama-5m", "way": way, **benchmark.BASE, "world": 2, **variant}
        for way in ("accelerate", "plain")
        for variant in ({"checkpointing": "non_reentrant"}, {"resharded": False})
    ]
    assert_bytes(benchmark, cases, ranks=2)
