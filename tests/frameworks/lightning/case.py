"""PyTorch Lightning, started as its users start it: `python train.py` makes the other process.

Under safe-launch Lightning finds torchrun's environment and makes none. Its DeepSpeed strategy
refuses whatever isn't a CUDA device; `train.py` gives it processors that claim to be one.
"""

from __future__ import annotations

from pathlib import Path

from frameworks.cases import Case, Failure, written_losses


def case(name: str, strategy: str, failure: Failure, *others: str) -> Case:
    """A case of one strategy, which `others` are installed for."""
    return Case(
        name=name,
        framework="PyTorch Lightning",
        environment="trainers",
        packages=("lightning", *others, "torch"),
        prepare=Path(__file__).with_name("prepare.py"),
        own=("python", "train.py", "--strategy", strategy),
        launched=("safe-launch", "--nproc=2", "--log-dir=runs", "train.py", "--strategy", strategy),
        healthy=(),
        failure=failure,
        losses=written_losses,
    )


CASES = (
    case(
        "lightning-ddp",
        "ddp",
        Failure(
            arguments=("--one_head",),
            dies="It looks like your LightningModule has parameters that were not used",
            entry="ddp-unused-parameters",
            change="find_unused_parameters: False -> True",
            attempts=2,
            # The later of two flags holds.
            reference=("--one_head", "--strategy", "ddp_find_unused_parameters_true"),
        ),
    ),
    case(
        "lightning-deepspeed",
        "deepspeed_stage_2",
        Failure(
            arguments=("--checkpoint", "reentrant"),
            dies=r"The parameter \S+ has already been reduced",
            entry="zero2-gradient-reduced-twice",
            change="gradient_checkpointing: reentrant -> non_reentrant",
            attempts=2,
        ),
        "deepspeed",
    ),
)
