"""A loop of the user's own with accelerate, by `accelerate launch`."""

from __future__ import annotations

from pathlib import Path

from frameworks.cases import Case, Failure, written_losses

LAUNCH = (
    *("accelerate", "launch"),
    *("--num_processes", "2"),
    *("--num_machines", "1"),
    *("--main_process_port", "0"),
    *("--mixed_precision", "no"),
    *("--dynamo_backend", "no"),
)


def case(name: str, options: tuple[str, ...], failure: Failure, *others: str) -> Case:
    """A case of one engine, which `others` are installed for."""
    own = (*LAUNCH, *options, "train.py")
    return Case(
        name=name,
        framework="accelerate",
        environment="trainers",
        packages=("accelerate", *others, "torch"),
        prepare=Path(__file__).with_name("prepare.py"),
        own=own,
        launched=("safe-launch", "wrap", "--log-dir", "runs", "--", *own),
        healthy=(),
        failure=failure,
        losses=written_losses,
    )


CASES = (
    case(
        "accelerate-ddp",
        ("--multi_gpu",),
        Failure(
            arguments=("--one_head",),
            dies="Expected to have finished reduction in the prior iteration",
            entry="ddp-unused-parameters",
            change="find_unused_parameters: False -> True",
            attempts=2,
            reference=("--one_head", "--find_unused"),
        ),
    ),
    case(
        "accelerate-deepspeed",
        ("--use_deepspeed", "--zero_stage", "2"),
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
