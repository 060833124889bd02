"""The memory model against the real engine's bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from support.stacks import CURRENT, ROOT


def test_the_real_engine_holds_these_bytes() -> None:
    """DeepSpeed on the CPU, rank 0 of 8 of which 7 are fake: states within 1 %, peak 8 %."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "memory"))
    try:
        import against_deepspeed as benchmark
    finally:
        sys.path.pop(0)
    variants: list[dict[str, Any]] = [
        {},
        {"checkpointing": "non_reentrant", "micro_batch": 4},
        {"lora": True},
        {"offload": "optimizer", "checkpointing": "non_reentrant"},
    ]
    CURRENT.compile_adam()
    rows = []
    for stage in (2, 3):
        cases = [
            {"model": "qwen3-21m", "stage": stage, **benchmark.BASE, **variant}
            for variant in variants
        ]
        done = subprocess.run(
            [sys.executable, benchmark.__file__, "one", json.dumps(cases)],
            env=CURRENT.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert len(found) == len(cases), done.stderr[-2000:]
        rows += [json.loads(line.removeprefix("RESULT ")) for line in found]
    for row in rows:
        compared = benchmark.compare({name: str(value) for name, value in row.items()})
        states, peak = compared.errors
        assert abs(states) < 0.01, row
        assert abs(peak) < 0.08, row
