"""Errors of a command line in the user's words, with what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..core.errors import LaunchError
from ..core.nearest import meant, near
from ..core.quotation import shortened
from ..frameworks.config_files.vocabulary import DEEPSPEED

CHOICE = re.compile(r"argument (\S+): invalid choice: (.+) \(choose from (.+)\)", re.DOTALL)
VALUE = re.compile(r"argument (\S+): invalid (\S+) value: (.+)", re.DOTALL)
LACKING = re.compile(r"argument (\S+): expected one argument")
OTHER = re.compile(r"argument (-\S+): (.+)", re.DOTALL)
"""argparse's messages (https://github.com/python/cpython/blob/3.11/Lib/argparse.py)."""
LONGEST = 60
"""Maximum characters to show of a value."""
KINDS = {"int": "a whole number", "float": "a number"}
"""Descriptions of option values, by names of Python types."""
ACCELERATES = {
    "config_file": "--accelerate-config",
    "gpu_ids": "CUDA_VISIBLE_DEVICES",
    "machine_rank": "--node-rank",
    "main_process_ip": "--master-addr",
    "main_process_port": "--master-port",
    "mpirun_hostfile": "--hostfile",
    "num_cpu_threads_per_process": "OMP_NUM_THREADS",
    "num_machines": "--nnodes",
    "num_processes": "--nproc (workers on each machine)",
}
"""Equivalents of `accelerate launch` options that safe-launch lacks, by option."""
SECTIONS = ("deepspeed_", "dynamo_", "fp8_", "fsdp_", "megatron_lm_", "parallelism_config_")
"""Prefixes of keys in sections of accelerate's configuration file."""
KEYS = (
    *("cpu", "debug", "downcast_bf16", "enable_cpu_affinity", "gradient_accumulation_steps"),
    *("gradient_clipping", "main_training_function", "mixed_precision", "multi_gpu"),
    *("offload_optimizer_nvme_path", "offload_param_nvme_path", "same_network", "use_deepspeed"),
    *("use_fsdp", "use_megatron_lm", "mpirun_ccl", "use_parallelism_config", "use_xpu"),
    *("zero3_init_flag", "zero3_save_16bit_model", *DEEPSPEED),
)
"""Other keys of that file, or derived ones."""
ELSEWHERE = (
    *("aws_access_key_id", "aws_secret_access_key", "env", "no_tpu_cluster", "tpu", "tpu_cluster"),
    *("tpu_use_sudo", "vm"),
)
"""Its options for TPUs and SageMaker."""


def sentence(message: str) -> str:
    """Argparse's message without internal names."""
    if match := CHOICE.fullmatch(message):
        value, known = shortened(match[2].strip("'\""), LONGEST), ", ".join(_choices(match[3]))
        return f"{_typed(match[1])}: `{value}` is none of {known}".removeprefix(": ")
    if match := VALUE.fullmatch(message):
        value = shortened(match[3].strip("'\""), LONGEST)
        kind = KINDS.get(match[2])
        problem = f"`{value}` isn't {kind}" if kind else f"`{value}` can't be read"
        return f"{_typed(match[1])}: {problem}".removeprefix(": ")
    if match := LACKING.fullmatch(message):
        return f"{_typed(match[1])}: a value is needed"
    if match := OTHER.fullmatch(message):
        return f"{_typed(match[1])}: {match[2]}"
    return message


def hint(message: str, known: Iterable[str]) -> str:
    """The likely spelling of a misspelled word, or its equivalent; empty if unknown."""
    if match := CHOICE.fullmatch(message):
        return meant(match[2].strip("'\""), _choices(match[3]))
    word = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
    similar = meant(word, known) if word.startswith("--") else ""
    return accelerate_hint(word) or similar


def accelerate_hint(option: str) -> str:
    """The equivalent of an `accelerate launch` option; empty for unknown options."""
    if not option.startswith("--"):
        return ""
    name = option.removeprefix("--").replace("-", "_")
    if same := ACCELERATES.get(name):
        return f"accelerate's {option} is {same} here"
    if name in KEYS or name.startswith(SECTIONS):
        return (
            f"`accelerate launch` has {option}: write it to a file with `accelerate config "
            "--config_file FILE`, and give that as --accelerate-config FILE"
        )
    return "only `accelerate launch` starts workers there" if name in ELSEWHERE else ""


def refuse_misspelt_command(word: str, commands: Sequence[str]) -> None:
    """Refuses a script that doesn't exist and has nearly a command's name, or no suffix at all.

    Raises:
        LaunchError: it has.
    """
    if meant(word, commands) or word.isalpha():
        problem = f"there is no script `{word}`, nor a command of that name"
        raise LaunchError(problem, near(word, commands))


def _choices(listed: str) -> list[str]:
    return [word.strip("'\"") for word in listed.split(", ")]


def _typed(name: str) -> str:
    """An option's first long name; empty for positional words."""
    names = name.split("/")
    if not names[0].startswith("-"):
        return ""
    return next((each for each in names if each.startswith("--")), names[0])
