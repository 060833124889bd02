"""The options of torchrun and deepspeed, as safe-launch takes or refuses them.

torchrun's are those of torch/distributed/run.py, get_args_parser; deepspeed's, if torchrun lacks
them, of deepspeed/launcher/runner.py, parse_args.
"""

from __future__ import annotations

from functools import partial

from .option import DEEPSPEED, TORCHRUN, Option

BOTH = (TORCHRUN, DEEPSPEED)
_torchrun = partial(Option, tools=(TORCHRUN,), variable=True)
_deepspeed = partial(Option, tools=(DEEPSPEED,))

NODES = (
    _torchrun(
        "--nnodes",
        "number of nodes; with a range, the job starts and continues with at least MIN",
        "N|MIN:MAX",
        differs="a lost node ends the job unless the script uses the Trainer: its batch would "
        "change",
    ),
    _torchrun(
        "--node-rank",
        "rank of this node, from 0; by default node 0 numbers the nodes as they join",
        "N",
        tools=BOTH,
    ),
    _torchrun("--master-addr", "name or address of node 0", "HOST", tools=BOTH),
    _torchrun(
        "--master-port",
        "port of node 0 (default: 29500)",
        "PORT",
        tools=BOTH,
        differs="with several nodes this is the launchers' port; the workers' MASTER_PORT is a "
        "free one, different in every attempt",
    ),
    _torchrun(
        "--rdzv-endpoint",
        "--master-addr and --master-port in one; the first launcher on this host is node 0",
        "HOST[:PORT]",
    ),
    _torchrun("--rdzv-id", "id of the job; launchers with another id are refused", "NAME"),
    _torchrun(
        "--rdzv-backend",
        "static or c10d; equivalent here",
        "NAME",
        differs="etcd and etcd-v2 are refused: node 0's launcher does what they did",
    ),
    _torchrun(
        "--rdzv-conf",
        "join_timeout, last_call_timeout, is_host, ... as in torchrun",
        "KEY=VALUE,...",
        differs="store_type=file is refused; an unknown key is noted",
    ),
    _torchrun(
        "--local-addr", "address of this node, if it can't be derived from the endpoint", "HOST"
    ),
    _torchrun("--standalone", "train on this node alone and ignore the scheduler"),
)

HOSTS = (
    _deepspeed(
        "--hostfile",
        "file with lines `host slots=N`; starts a launcher on each host (default: /job/hostfile)",
        "FILE",
        short=("-H",),
        differs="a named file that doesn't exist is an error",
    ),
    _deepspeed(
        "--include", "use only these hosts or devices: host1@host2:0,2", "SPEC", short=("-i",)
    ),
    _deepspeed("--exclude", "leave these out; format as for --include", "SPEC", short=("-e",)),
    _deepspeed("--num-nodes", "use the first N hosts", "N"),
    _deepspeed(
        "--num-gpus",
        "use the first N devices of each host, or of this host if there is no hostfile",
        "N",
        short=("--num-accelerators",),
        differs="on a machine without devices the number of workers",
    ),
    _deepspeed("--ssh-port", "port of the hosts' ssh servers", "PORT"),
    _deepspeed(
        "--launcher",
        "ssh; pdsh is treated as ssh",
        "NAME",
        differs="openmpi, mpich, impi, mvapich and slurm are refused with the command to use",
    ),
    _deepspeed(
        "--launcher-args",
        "options to pass to ssh, as one word: --launcher_args='-i ~/.ssh/cluster'",
        "ARGS",
        differs="of ssh, not of pdsh",
    ),
    _deepspeed("--force-multi", "use ssh even if this host is the only one"),
    _deepspeed(
        "--no-ssh",
        "launch only this host's part of the hostfile; run the command on every host yourself",
        differs="--node_rank may be left out if this host's name is in the hostfile; --master_addr "
        "defaults to the first host's name",
    ),
    _deepspeed("--no-ssh-check", "no effect: all hosts are always checked before the launch"),
    _deepspeed(
        "--venv-script",
        "bash file to source on every host before its launcher starts",
        "FILE",
        differs="a missing file is an error",
    ),
)

WORKERS = (
    _torchrun(
        "--nproc-per-node",
        "workers on this node: a number; gpu: one per GPU or NPU; cpu: one per core; auto: gpu if "
        "there is one, else cpu (default: gpu if there is one, else 1)",
        "N",
        short=("--nproc",),
        differs="torchrun starts one worker by default, and its gpu is CUDA's alone; npu is the "
        "same as gpu, and other devices that torch counts have their names: xpu, mlu",
    ),
    _torchrun(
        "--max-restarts",
        "restarts, with unchanged settings, after failures of unknown cause or signals from "
        "outside (default: 0)",
        "N",
        differs="corrections of known failures don't count; a failure known to be the script's "
        "mistake, or one that has occurred twice in the same way, isn't followed by a restart",
    ),
    _torchrun(
        "--monitor-interval",
        "no effect: a worker's exit is noticed at once",
        "SECONDS",
        differs="there is no polling",
    ),
    _torchrun(
        "--start-method",
        "spawn: start each worker as a fresh process; forkserver: fork it from a process that "
        "has already imported the script's modules; fork: same as forkserver (default: "
        "forkserver)",
        "spawn|fork|forkserver",
        differs="torchrun's applies to functions; a script is always a fresh process there",
    ),
    _torchrun(
        "--event-log-handler",
        "null",
        "NAME",
        differs="other handlers are refused: the run directory keeps what happens",
    ),
    _torchrun("--role", "the workers' ROLE_NAME", "NAME"),
    _torchrun(
        "--module", "the script is a module name, as for `python -m`", tools=BOTH, short=("-m",)
    ),
    _torchrun(
        "--no-python",
        "the script is an executable to run directly",
        tools=BOTH,
        differs="nothing can be corrected inside a program",
    ),
    _torchrun(
        "--run-path",
        "no effect: the script is given by its path",
        differs="no other mode is needed; not together with -m",
    ),
    _torchrun(
        "--signals-to-handle",
        "further signals to pass on to the workers",
        "SIGNAL,...",
        differs="SIGTERM, SIGINT and SIGHUP always stop the workers, SIGQUIT reports where every "
        "rank stands; SIGUSR1, SIGUSR2 and the named signals go to the workers with a handler for "
        "them, and the training continues (torchrun ends it); signals that were ignored when "
        "safe-launch was started, such as SIGHUP under nohup, stay ignored",
    ),
    _torchrun(
        "--shutdown-timeout",
        "time between SIGTERM and SIGKILL (default: 15)",
        "SECONDS",
        differs="without it TORCH_ELASTIC_SHUTDOWN_TIMEOUT is used; torchrun waits 30 s",
    ),
    _torchrun(
        "--virtual-local-rank",
        "each worker sees only one device, with LOCAL_RANK=0",
        differs="ASCEND_RT_VISIBLE_DEVICES is cut as well",
    ),
    _torchrun(
        "--numa-binding",
        "bind each worker to the cores near its GPU, as in torch",
        "node|socket|exclusive|core-complex",
        differs="an error if no GPU or no numactl is found; workers are fresh processes",
        variable=False,
    ),
    _deepspeed(
        "--no-local-rank",
        "don't pass --local_rank=N to the script; --use-env in torch.distributed.launch",
        short=("--use-env",),
        differs="without it, the option is passed if another of deepspeed's options for hosts or "
        "workers is given, unless the script's source refuses it",
    ),
    _deepspeed(
        "--bind-cores-to-rank",
        "bind each worker to its share of the cores and set OMP_NUM_THREADS to match",
        differs="without numactl; memory isn't bound; not with --no_python",
    ),
    _deepspeed("--bind-core-list", "cores to bind workers to: 0-3,8", "LIST"),
    _deepspeed(
        "--save-pid",
        "write the launcher's process id to /tmp/PID.deepspeed",
        differs="the file is removed when the launcher ends",
    ),
    _deepspeed(
        "--autotuning",
        value="tune|run",
        instead="isn't done here: `safe-launch plan SCRIPT ...` chooses the settings without runs; "
        "`deepspeed --autotuning` itself still works",
    ),
    _deepspeed(
        "--elastic-training",
        instead="isn't needed here: --nnodes MIN:MAX continues with the remaining nodes",
    ),
    _deepspeed(
        "--min-elastic-nodes",
        value="N",
        instead="isn't taken here: use --nnodes MIN:MAX on every node",
    ),
    _deepspeed(
        "--max-elastic-nodes",
        value="N",
        instead="isn't taken here: use --nnodes MIN:MAX on every node",
    ),
)

OUTPUT = (
    _torchrun(
        "--log-dir",
        "parent of the run directory (default: safe-launch/runs in the user's cache)",
        "FOLDER",
        differs="attempt-N/rank-N.log has both streams of a rank, and is always written",
    ),
    _torchrun(
        "--redirects",
        "streams to keep off the console: 1 stdout, 2 stderr, 3 both; per local rank: 0:1,1:2",
        "STREAMS",
        short=("-r",),
        differs="they are in rank-N.stdout.log and rank-N.stderr.log, and in rank-N.log",
    ),
    _torchrun(
        "--tee",
        "streams to write to separate files and, prefixed with the rank, to the console",
        "STREAMS",
        short=("-t",),
        differs="rank-N.stdout.log and rank-N.stderr.log",
    ),
    _torchrun(
        "--log-line-prefix-template",
        "prefix of lines shown by --tee; may use ${role_name}, ${rank}, ${local_rank}, ${hostname} "
        "(default: [${role_name}${local_rank}]:)",
        "TEMPLATE",
        differs="without it TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE is used; ${pid} isn't known yet",
    ),
    _torchrun("--local-ranks-filter", "local ranks to show on the console", "N,..."),
    _torchrun(
        "--duplicate-stdout-filters",
        "also copy lines with one of these words to attempt-N/filtered_stdout.log",
        "WORD,...",
        differs="of all ranks, whether --tee is given or not",
    ),
    _torchrun(
        "--duplicate-stderr-filters",
        "the same for stderr, to filtered_stderr.log",
        "WORD,...",
        differs="of all ranks, whether --tee is given or not",
    ),
    _torchrun(
        "--logs-specs",
        "default",
        "NAME",
        differs="others are refused: output goes through the launcher's own pipes, where failures "
        "are seen",
        variable=False,
    ),
    _torchrun(
        "--print-completion",
        "print a shell completion script and exit",
        "bash|zsh|fish|tcsh",
        differs="the same as `safe-launch completion`: it completes safe-launch",
        variable=False,
    ),
    _deepspeed(
        "--enable-each-rank-log",
        "write each rank's output to FOLDER/TIME_rankN.log instead of the console",
        "FOLDER",
        differs="every attempt has separate files",
    ),
    _deepspeed(
        "--log-level",
        "warning, error, critical: like --quiet; debug, info: everything",
        "LEVEL",
        differs="for the launcher's own lines",
    ),
    _deepspeed(
        "--quiet",
        "print nothing about unchanged plans and successful runs",
        short=("-q",),
        differs="errors, changes and diagnoses are always shown",
    ),
)

TABLE = (*NODES, *HOSTS, *WORKERS, *OUTPUT)
