"""deepspeed's options that torchrun lacks: deepspeed/launcher/runner.py, parse_args."""

from __future__ import annotations

from functools import partial

from .option import DEEPSPEED, Option

_option = partial(Option, tools=(DEEPSPEED,))

HOSTS = (
    _option(
        "--hostfile",
        "file with lines `host slots=N`; starts a launcher on each host (default: /job/hostfile)",
        "FILE",
        short=("-H",),
        differs="a named file that doesn't exist is an error",
    ),
    _option("--include", "use only these hosts or devices: host1@host2:0,2", "SPEC", short=("-i",)),
    _option("--exclude", "leave these out; format as for --include", "SPEC", short=("-e",)),
    _option("--num-nodes", "use the first N hosts", "N"),
    _option(
        "--num-gpus",
        "use the first N devices of each host, or of this host if there is no hostfile",
        "N",
        short=("--num-accelerators",),
        differs="on a machine without devices the number of workers",
    ),
    _option("--ssh-port", "port of the hosts' ssh servers", "PORT"),
    _option(
        "--launcher",
        "ssh; pdsh is treated as ssh",
        "NAME",
        differs="openmpi, mpich, impi, mvapich and slurm are refused with the command to use",
    ),
    _option(
        "--launcher-args",
        "options to pass to ssh, as one word: --launcher_args='-i ~/.ssh/cluster'",
        "ARGS",
        differs="of ssh, not of pdsh",
    ),
    _option("--force-multi", "use ssh even if this host is the only one"),
    _option(
        "--no-ssh",
        "launch only this host's part of the hostfile; run the command on every host yourself",
        differs="--node_rank may be left out if this host's name is in the hostfile; --master_addr "
        "defaults to the first host's name",
    ),
    _option("--no-ssh-check", "no effect: all hosts are always checked before the launch"),
    _option(
        "--venv-script",
        "bash file to source on every host before its launcher starts",
        "FILE",
        differs="a missing file is an error",
    ),
)

WORKERS = (
    _option(
        "--no-local-rank",
        "don't pass --local_rank=N to the script; --use-env in torch.distributed.launch",
        short=("--use-env",),
        differs="without it, the option is passed if another of deepspeed's options for hosts or "
        "workers is given, unless the script's source refuses it",
    ),
    _option(
        "--bind-cores-to-rank",
        "bind each worker to its share of the cores and set OMP_NUM_THREADS to match",
        differs="without numactl; memory isn't bound; not with --no_python",
    ),
    _option("--bind-core-list", "cores to bind workers to: 0-3,8", "LIST"),
    _option(
        "--save-pid",
        "write the launcher's process id to /tmp/PID.deepspeed",
        differs="the file is removed when the launcher ends",
    ),
    _option(
        "--autotuning",
        value="tune|run",
        instead="isn't done here: `safe-launch plan SCRIPT ...` chooses the settings without runs; "
        "`deepspeed --autotuning` itself still works",
    ),
    _option(
        "--elastic-training",
        instead="isn't needed here: --nnodes MIN:MAX continues with the remaining nodes",
    ),
    _option(
        "--min-elastic-nodes",
        value="N",
        instead="isn't taken here: use --nnodes MIN:MAX on every node",
    ),
    _option(
        "--max-elastic-nodes",
        value="N",
        instead="isn't taken here: use --nnodes MIN:MAX on every node",
    ),
)

OUTPUT = (
    _option(
        "--enable-each-rank-log",
        "write each rank's output to FOLDER/TIME_rankN.log instead of the console",
        "FOLDER",
        differs="every attempt has separate files",
    ),
    _option(
        "--log-level",
        "warning, error, critical: like --quiet; debug, info: everything",
        "LEVEL",
        differs="for the launcher's own lines",
    ),
    _option(
        "--quiet",
        "print nothing about unchanged plans and successful runs",
        short=("-q",),
        differs="errors, changes and diagnoses are always shown",
    ),
)

TABLE = (*HOSTS, *WORKERS, *OUTPUT)
