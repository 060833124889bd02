"""A real out-of-memory error of the device's allocator, corrected by the next plan.

A variable limits the allocator's memory, unknown to the plan; the script is unchanged. The training
then fits with smaller micro batches and the same losses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .bench import ALLOCATOR, GIB, Bench, Figure, SkippedError, last_line
from .failures import CLOSE, losses

TITLE = "Out of memory"
NEEDS = ("torch", "transformers", "accelerate", "pytest")
SECONDS = 90
BATCH, MOST = 16, 3e8
"""Samples of 128 tokens a rank, which need 400 MB, and the available bytes."""


def run(bench: Bench) -> Iterator[Figure]:
    """One launch, and the same training without a limit in one process."""
    from support.trainings import MEMORY, SHORT

    longer = 1 if bench.tiny else 8
    common = [one for one in SHORT if one != "--use_cpu"]
    common += ["--max_steps=4", f"--model_max_length={128 * longer}"]
    whole = BATCH * bench.ranks
    smaller = (f"--per_device_train_batch_size={whole // 4}", "--gradient_accumulation_steps=4")
    expected = losses(bench, bench.folder, "python", MEMORY, *common, *smaller)
    command = ("safe-launch", f"--nproc={bench.ranks}", "--log-dir=runs", MEMORY, *common)
    found = losses(
        *(bench, bench.folder, *command, f"--per_device_train_batch_size={BATCH}"),
        **limit(bench, MOST * longer),
    )
    told = (bench.folder / "said").read_text()
    attempts = re.findall(r"^\[safe-launch\] attempt (\d+): (.*)", told, re.MULTILINE)
    change = re.search(r"micro_batch: \d+ -> \d+", told)
    known = "(accelerator-out-of-memory)" in told
    off = max(abs(one / other - 1) for one, other in zip(found, expected, strict=True))
    yield Figure(
        f"{MOST * longer / GIB:.2f} GiB allowed, {bench.ranks_told}",
        f"{'recognized' if known else 'not recognized'}; {change[0] if change else 'no change'}, "
        f"{len(set(attempts))} attempts, losses within {off:.1e} of the reference's",
        "on a CPU: at most 3 attempts, within 1e-4",
        wrong=not known or change is None or len(set(attempts)) > 3 or off > CLOSE,
        raw={"attempts": attempts, "losses": found, "reference": expected},
    )


def limit(bench: Bench, size: float) -> dict[str, str]:
    """Variables that limit the allocator to this many bytes.

    Raises:
        SkippedError: there is no such limit.
    """
    share = f"expandable_segments:True,per_process_memory_fraction:{size / bench.memory:.6f}"
    variables = (
        {"STANDIN_NPU_MEMORY": f"{size:.0f}"} if bench.tiny else {ALLOCATOR[bench.kind]: share}
    )
    probe = f"import torch; torch.empty({2 * size:.0f}, dtype=torch.uint8, device='{bench.kind}')"
    done = bench.run("python", "-c", probe, **variables)
    if "out of memory" not in done.stderr:
        said = last_line(done.stderr) or "it has what it isn't allowed"
        raise SkippedError(f"the allocator can't be limited by its variable: {said}")
    return variables
