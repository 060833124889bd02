"""torchrun's options: torch/distributed/run.py, get_args_parser."""

from __future__ import annotations

from functools import partial

from .option import DEEPSPEED, TORCHRUN, Option

BOTH = (TORCHRUN, DEEPSPEED)
_option = partial(Option, tools=(TORCHRUN,), variable=True)

NODES = (
    _option(
        "--nnodes",
        "number of nodes; with a range, the job starts and continues with at least MIN",
        "N|MIN:MAX",
        differs="a lost node ends the job unless the script uses the Trainer: its batch would "
        "change",
    ),
    _option(
        "--node-rank",
        "rank of this node, from 0; by default node 0 numbers the nodes as they join",
        "N",
        tools=BOTH,
    ),
    _option("--master-addr", "name or address of node 0", "HOST", tools=BOTH),
    _option(
        "--master-port",
        "port of node 0 (default: 29500)",
        "PORT",
        tools=BOTH,
        differs="with several nodes this is the launchers' port; the workers' MASTER_PORT is a "
        "free one, different in every attempt",
    ),
    _option(
        "--rdzv-endpoint",
        "--master-addr and --master-port in one; the first launcher on this host is node 0",
        "HOST[:PORT]",
    ),
    _option("--rdzv-id", "id of the job; launchers with another id are refused", "NAME"),
    _option(
        "--rdzv-backend",
        "static or c10d; equivalent here",
        "NAME",
        differs="etcd and etcd-v2 are refused: node 0's launcher does what they did",
    ),
    _option(
        "--rdzv-conf",
        "join_timeout, last_call_timeout, is_host, ... as in torchrun",
        "KEY=VALUE,...",
        differs="store_type=file is refused; an unknown key is noted",
    ),
    _option(
        "--local-addr", "address of this node, if it can't be derived from the endpoint", "HOST"
    ),
    _option("--standalone", "train on this node alone and ignore the scheduler"),
)

WORKERS = (
    _option(
        "--nproc-per-node",
        "workers on this node: a number; gpu: one per GPU or NPU; cpu: one per core; auto: gpu if "
        "there is one, else cpu (default: gpu if there is one, else 1)",
        "N",
        short=("--nproc",),
        differs="torchrun starts one worker by default, and its gpu is CUDA's alone; npu is the "
        "same as gpu, and other devices that torch counts have their names: xpu, mlu",
    ),
    _option(
        "--max-restarts",
        "restarts, with unchanged settings, after failures of unknown cause or signals from "
        "outside (default: 0)",
        "N",
        differs="corrections of known failures don't count; a failure known to be the script's "
        "mistake, or one that has occurred twice in the same way, isn't followed by a restart",
    ),
    _option(
        "--monitor-interval",
        "no effect: a worker's exit is noticed at once",
        "SECONDS",
        differs="there is no polling",
    ),
    _option(
        "--start-method",
        "spawn: start each worker as a fresh process; forkserver: fork it from a process that "
        "has already imported the script's modules; fork: same as forkserver (default: "
        "forkserver)",
        "spawn|fork|forkserver",
        differs="torchrun's applies to functions; a script is always a fresh process there",
    ),
    _option(
        "--event-log-handler",
        "null",
        "NAME",
        differs="other handlers are refused: the run directory keeps what happens",
    ),
    _option("--role", "the workers' ROLE_NAME", "NAME"),
    _option(
        "--module", "the script is a module name, as for `python -m`", tools=BOTH, short=("-m",)
    ),
    _option(
        "--no-python",
        "the script is an executable to run directly",
        tools=BOTH,
        differs="nothing can be corrected inside a program",
    ),
    _option(
        "--run-path",
        "no effect: the script is given by its path",
        differs="no other mode is needed; not together with -m",
    ),
    _option(
        "--signals-to-handle",
        "further signals to pass on to the workers",
        "SIGNAL,...",
        differs="SIGTERM, SIGINT and SIGHUP always stop the workers, SIGQUIT reports where every "
        "rank stands; SIGUSR1, SIGUSR2 and the named signals go to the workers with a handler for "
        "them, and the training continues (torchrun ends it); signals that were ignored when "
        "safe-launch was started, such as SIGHUP under nohup, stay ignored",
    ),
    _option(
        "--shutdown-timeout",
        "time between SIGTERM and SIGKILL (default: 15)",
        "SECONDS",
        differs="without it TORCH_ELASTIC_SHUTDOWN_TIMEOUT is used; torchrun waits 30 s",
    ),
    _option(
        "--virtual-local-rank",
        "each worker sees only one device, with LOCAL_RANK=0",
        differs="ASCEND_RT_VISIBLE_DEVICES is cut as well",
    ),
    _option(
        "--numa-binding",
        "bind each worker to the cores near its GPU, as in torch",
        "node|socket|exclusive|core-complex",
        differs="an error if no GPU or no numactl is found; workers are fresh processes",
        variable=False,
    ),
)

OUTPUT = (
    _option(
        "--log-dir",
        "parent of the run directory (default: safe-launch/runs in the user's cache)",
        "FOLDER",
        differs="attempt-N/rank-N.log has both streams of a rank, and is always written",
    ),
    _option(
        "--redirects",
        "streams to keep off the console: 1 stdout, 2 stderr, 3 both; per local rank: 0:1,1:2",
        "STREAMS",
        short=("-r",),
        differs="they are in rank-N.stdout.log and rank-N.stderr.log, and in rank-N.log",
    ),
    _option(
        "--tee",
        "streams to write to separate files and, prefixed with the rank, to the console",
        "STREAMS",
        short=("-t",),
        differs="rank-N.stdout.log and rank-N.stderr.log",
    ),
    _option(
        "--log-line-prefix-template",
        "prefix of lines shown by --tee; may use ${role_name}, ${rank}, ${local_rank}, ${hostname} "
        "(default: [${role_name}${local_rank}]:)",
        "TEMPLATE",
        differs="without it TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE is used; ${pid} isn't known yet",
    ),
    _option("--local-ranks-filter", "local ranks to show on the console", "N,..."),
    _option(
        "--duplicate-stdout-filters",
        "also copy lines with one of these words to attempt-N/filtered_stdout.log",
        "WORD,...",
        differs="of all ranks, whether --tee is given or not",
    ),
    _option(
        "--duplicate-stderr-filters",
        "the same for stderr, to filtered_stderr.log",
        "WORD,...",
        differs="of all ranks, whether --tee is given or not",
    ),
    _option(
        "--logs-specs",
        "default",
        "NAME",
        differs="others are refused: output goes through the launcher's own pipes, where failures "
        "are seen",
        variable=False,
    ),
    _option(
        "--print-completion",
        "print a shell completion script and exit",
        "bash|zsh|fish|tcsh",
        differs="the same as `safe-launch completion`: it completes safe-launch",
        variable=False,
    ),
)

TABLE = (*NODES, *WORKERS, *OUTPUT)
