"""LLaMA-Factory by `llamafactory-cli train`, which starts torchrun for itself."""

from __future__ import annotations

from pathlib import Path

from frameworks.cases import Case, Failure, logged_losses

CASES = (
    Case(
        name="llama-factory-sft",
        framework="LLaMA-Factory",
        environment="llama-factory",
        packages=("llamafactory", "transformers", "peft", "trl", "deepspeed", "torch"),
        prepare=Path(__file__).with_name("prepare.py"),
        own=("llamafactory-cli", "train"),
        launched=(
            *("safe-launch", "wrap", "--log-dir", "runs", "--"),
            *("llamafactory-cli", "train"),
        ),
        healthy=("zero2.yaml",),
        failure=Failure(
            arguments=("ddp_unused.yaml",),
            dies="Expected to mark a variable ready only once",
            entry="ddp-parameter-ready-twice",
            change="gradient_checkpointing: reentrant -> non_reentrant",
            attempts=1,
            reference=("ddp.yaml",),
        ),
        losses=logged_losses,
        variables={"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "2"},
        seconds=600,
    ),
)
