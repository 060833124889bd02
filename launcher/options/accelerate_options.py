"""Equivalents of `accelerate launch` options that safe-launch lacks."""

from __future__ import annotations

from ..frameworks.config_files.vocabulary import DEEPSPEED

EQUIVALENT = {
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
"""Equivalents by option."""
SECTIONS = ("deepspeed_", "dynamo_", "fp8_", "fsdp_", "megatron_lm_", "parallelism_config_")
"""Prefixes of keys in sections of the configuration file."""
KEYS = (
    *("cpu", "debug", "downcast_bf16", "enable_cpu_affinity", "gradient_accumulation_steps"),
    *("gradient_clipping", "main_training_function", "mixed_precision", "multi_gpu"),
    *("offload_optimizer_nvme_path", "offload_param_nvme_path", "same_network", "use_deepspeed"),
    *("use_fsdp", "use_megatron_lm", "mpirun_ccl", "use_parallelism_config", "use_xpu"),
    *("zero3_init_flag", "zero3_save_16bit_model", *DEEPSPEED),
)
"""Other keys of the configuration file, or derived ones."""
ELSEWHERE = (
    *("aws_access_key_id", "aws_secret_access_key", "env", "no_tpu_cluster", "tpu", "tpu_cluster"),
    *("tpu_use_sudo", "vm"),
)
"""Options for TPUs and SageMaker."""


def hint(option: str) -> str:
    """The equivalent of an `accelerate launch` option; empty for unknown options."""
    if not option.startswith("--"):
        return ""
    name = option.removeprefix("--").replace("-", "_")
    if same := EQUIVALENT.get(name):
        return f"accelerate's {option} is {same} here"
    if name in KEYS or name.startswith(SECTIONS):
        return (
            f"`accelerate launch` has {option}: write it to a file with `accelerate config "
            "--config_file FILE`, and give that as --accelerate-config FILE"
        )
    return "only `accelerate launch` starts workers there" if name in ELSEWHERE else ""
