"""deepspeed's options that torchrun lacks: deepspeed/launcher/runner.py, parse_args."""

from __future__ import annotations

from .option import DEEPSPEED, Option

OWN = (DEEPSPEED,)

HOSTS = (
    Option(
        "--hostfile",
        OWN,
        "file with lines `host slots=N`; starts a launcher on each host (default: /job/hostfile)",
        "FILE",
        short=("-H",),
        differs="a named file that doesn't exist is an error",
    ),
    Option(
        "--include",
        OWN,
        "use only these hosts or devices: host1@host2:0,2",
        "SPEC",
        short=("-i",),
    ),
    Option("--exclude", OWN, "leave these out; format as for --include", "SPEC", short=("-e",)),
    Option("--num-nodes", OWN, "use the first N hosts", "N"),
    Option(
        "--num-gpus",
        OWN,
        "use the first N devices of each host, or of this host if there is no hostfile",
        "N",
        short=("--num-accelerators",),
        differs="on a machine without devices the number of workers",
    ),
    Option("--ssh-port", OWN, "port of the hosts' ssh servers", "PORT"),
    Option(
        "--launcher",
        OWN,
        "ssh; pdsh is treated as ssh",
        "NAME",
        differs="openmpi, mpich, impi, mvapich and slurm are refused with the command to use",
    ),
    Option(
        "--launcher-args",
        OWN,
        "options to pass to ssh, as one word: --launcher_args='-i ~/.ssh/cluster'",
        "ARGS",
        differs="of ssh, not of pdsh",
    ),
    Option("--force-multi", OWN, "use ssh even if this host is the only one"),
    Option(
        "--no-ssh",
        OWN,
        "launch only this host's part of the hostfile; run the command on every host yourself",
        differs="--node_rank may be left out where this host's name is in the hostfile; the first "
        "host's name is --master_addr where none is given",
    ),
    Option(
        "--no-ssh-check",
        OWN,
        "no effect: all hosts are always checked before the launch",
    ),
    Option(
        "--venv-script",
        OWN,
        "bash file to source on every host before its launcher starts",
        "FILE",
        differs="a missing file is an error",
    ),
)

WORKERS = (
    Option(
        "--no-local-rank",
        OWN,
        "don't pass --local_rank=N to the script; --use-env in torch.distributed.launch",
        short=("--use-env",),
        differs="without it that is done where another of deepspeed's options for hosts or workers "
        "is given, and the script isn't seen to refuse it",
    ),
    Option(
        "--bind-cores-to-rank",
        OWN,
        "bind each worker to its share of the cores and set OMP_NUM_THREADS to match",
        differs="without numactl; memory isn't bound; not with --no_python",
    ),
    Option("--bind-core-list", OWN, "cores to bind workers to: 0-3,8", "LIST"),
    Option(
        "--save-pid",
        OWN,
        "write the launcher's process id to /tmp/PID.deepspeed",
        differs="the file is removed when the launcher ends",
    ),
    Option(
        "--autotuning",
        OWN,
        "",
        "tune|run",
        instead="isn't done here: `safe-launch plan SCRIPT ...` chooses the settings without runs; "
        "`deepspeed --autotuning` itself still works",
    ),
    Option(
        "--elastic-training",
        OWN,
        "",
        instead="isn't needed here: --nnodes MIN:MAX continues with the remaining nodes",
    ),
    Option(
        "--min-elastic-nodes",
        OWN,
        "",
        "N",
        instead="isn't taken here: use --nnodes MIN:MAX on every node",
    ),
    Option(
        "--max-elastic-nodes",
        OWN,
        "",
        "N",
        instead="isn't taken here: use --nnodes MIN:MAX on every node",
    ),
)

OUTPUT = (
    Option(
        "--enable-each-rank-log",
        OWN,
        "write each rank's output to FOLDER/TIME_rankN.log instead of the console",
        "FOLDER",
        differs="every attempt has files of its own",
    ),
    Option(
        "--log-level",
        OWN,
        "warning, error, critical: like --quiet; debug, info: everything",
        "LEVEL",
        differs="for the launcher's own lines",
    ),
    Option(
        "--quiet",
        OWN,
        "print nothing about unchanged plans and successful runs",
        short=("-q",),
        differs="errors, changes and diagnoses are always shown",
    ),
)

TABLE = (*HOSTS, *WORKERS, *OUTPUT)
