"""deepspeed's options that torchrun doesn't have: deepspeed/launcher/runner.py, parse_args."""

from __future__ import annotations

from .option import DEEPSPEED, Option

OWN = (DEEPSPEED,)

HOSTS = (
    Option(
        "--hostfile",
        OWN,
        "lines `host slots=N`; a launcher is started on each (default: /job/hostfile, if any)",
        "FILE",
        short=("-H",),
        differs="a named file that doesn't exist is an error",
    ),
    Option(
        "--include",
        OWN,
        "use only these: host1@host2:0,2 is all of host1, two devices of host2",
        "SPEC",
        short=("-i",),
    ),
    Option("--exclude", OWN, "leave these out; written as for --include", "SPEC", short=("-e",)),
    Option("--num-nodes", OWN, "the first N hosts", "N"),
    Option(
        "--num-gpus",
        OWN,
        "the first N devices of each host; without a hostfile, of this one",
        "N",
        short=("--num-accelerators",),
        differs="on a machine without devices the number of workers",
    ),
    Option("--ssh-port", OWN, "port of the hosts' ssh servers", "PORT"),
    Option(
        "--launcher",
        OWN,
        "ssh; pdsh means the same here, and isn't needed",
        "NAME",
        differs="openmpi, mpich, impi, mvapich and slurm are refused with the command to use",
    ),
    Option(
        "--launcher-args",
        OWN,
        "further options of ssh, as one word: --launcher_args='-i ~/.ssh/cluster'",
        "ARGS",
        differs="of ssh, not of pdsh",
    ),
    Option("--force-multi", OWN, "use ssh even where this host is the only host"),
    Option(
        "--no-ssh",
        OWN,
        "launch only this host's part of the hostfile; run the same command on every host",
        differs="--node_rank may be left out where this host's name is in the hostfile; the first "
        "host's name is --master_addr where none is given",
    ),
    Option(
        "--no-ssh-check",
        OWN,
        "no effect: every host is asked at once, and all must answer, before anything starts",
    ),
    Option(
        "--venv-script",
        OWN,
        "sourced by bash on every host before the launcher there is started",
        "FILE",
        differs="a missing file is an error",
    ),
)

WORKERS = (
    Option(
        "--no-local-rank",
        OWN,
        "never put --local_rank=N before the script's arguments; torch.distributed.launch calls it "
        "--use-env",
        short=("--use-env",),
        differs="without it that is done where another of deepspeed's options for hosts or workers "
        "is given, and the script isn't seen to refuse it",
    ),
    Option(
        "--bind-cores-to-rank",
        OWN,
        "a share of the cores for each worker, and OMP_NUM_THREADS to match",
        differs="without numactl; memory isn't bound; not with --no_python",
    ),
    Option("--bind-core-list", OWN, "the cores to share out: 0-3,8", "LIST"),
    Option(
        "--save-pid",
        OWN,
        "write this process's id to /tmp/PID.deepspeed",
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
        "each rank's output goes to FOLDER/TIME_rankN.log instead of the console",
        "FOLDER",
        differs="every attempt has files of its own",
    ),
    Option(
        "--log-level",
        OWN,
        "warning, error, critical: as --quiet; debug, info: everything",
        "LEVEL",
        differs="for the launcher's own lines",
    ),
    Option(
        "--quiet",
        OWN,
        "print nothing on a plan without changes, or on a success",
        short=("-q",),
        differs="errors, changes and diagnoses are always shown",
    ),
)

TABLE = (*HOSTS, *WORKERS, *OUTPUT)
