"""TRL by its own command, by DeepSpeed's launcher, and from a script of the user's own."""

from __future__ import annotations

from pathlib import Path

from frameworks.cases import Case, Failure, logged_losses

PACKAGES = ("trl", "transformers", "peft", "accelerate", "deepspeed", "torch")
COMMON = (
    *("--max_steps", "8"),
    *("--save_steps", "8"),
    *("--logging_steps", "1"),
    *("--report_to", "none"),
    *("--use_cpu", "True"),
    *("--bf16", "False"),
    *("--per_device_train_batch_size", "4"),
    *("--max_length", "128"),
    *("--output_dir", "out"),
    *("--learning_rate", "1e-2"),
    *("--gradient_checkpointing", "True"),
)
MODEL = ("--model_name_or_path", "model", "--dtype", "float32")
LORA = (
    *("--use_peft", "True"),
    *("--lora_r", "8"),
    *("--lora_dropout", "0"),
    *("--lora_target_modules", "q_proj", "k_proj", "v_proj"),
)
SFT = ("--dataset_name", "conversations", *MODEL, *LORA, *COMMON)
DPO = ("--dataset_name", "preferences", *MODEL, *LORA, *COMMON)
# What `trl` hands to `accelerate launch`.
TWO = (
    *("--num_processes", "2"),
    *("--num_machines", "1"),
    *("--multi_gpu", "--main_process_port", "0"),
    *("--mixed_precision", "no"),
    *("--dynamo_backend", "no"),
)
REENTRANT = ("--gradient_checkpointing_kwargs", '{"use_reentrant": true}')


def case(
    name: str,
    own: tuple[str, ...],
    launched: tuple[str, ...],
    healthy: tuple[str, ...],
    attempts: int,
    failing: tuple[str, ...] | None = None,
) -> Case:
    """A training with adapters; what fails is DDP with reentrant checkpointing."""
    failing = healthy if failing is None else failing
    return Case(
        name=name,
        framework="TRL",
        environment="trainers",
        packages=PACKAGES,
        prepare=Path(__file__).with_name("prepare.py"),
        own=own,
        launched=launched,
        healthy=healthy,
        failure=Failure(
            arguments=(*failing, *REENTRANT),
            dies="Expected to mark a variable ready only once",
            entry="ddp-parameter-ready-twice",
            change="gradient_checkpointing: reentrant -> non_reentrant",
            attempts=attempts,
            reference=None if failing == healthy else failing,
        ),
        losses=logged_losses,
        variables={"HF_HOME": "hub"},
    )


WRAP = ("safe-launch", "wrap", "--log-dir", "runs", "--")
CASES = (
    case("trl-sft", ("trl", "sft", *TWO), (*WRAP, "trl", "sft", *TWO), SFT, attempts=1),
    case("trl-dpo", ("trl", "dpo", *TWO), (*WRAP, "trl", "dpo", *TWO), DPO, attempts=1),
    # DeepSpeed's launcher serves DDP as well: what fails leaves the configuration out.
    case(
        "trl-dpo-deepspeed",
        ("deepspeed", "--num_gpus", "2", "--master_port", "29537", "--module", "trl.scripts.dpo"),
        ("safe-launch", "--log-dir", "runs", "--num_gpus", "2", "--module", "trl.scripts.dpo"),
        (*DPO, "--deepspeed", "zero2.json"),
        attempts=1,
        failing=DPO,
    ),
    # The adapters are in the code, so no argument tells of them: the worker does.
    case(
        "trl-dpo-script",
        ("torchrun", "--nproc-per-node=2", "train_dpo.py"),
        ("safe-launch", "--nproc-per-node=2", "--log-dir=runs", "train_dpo.py"),
        COMMON,
        attempts=2,
    ),
)
