"""torchrun's options: torch/distributed/run.py, get_args_parser."""

from __future__ import annotations

from .option import DEEPSPEED, TORCHRUN, Option

BOTH = (TORCHRUN, DEEPSPEED)
OWN = (TORCHRUN,)

NODES = (
    Option(
        "--nnodes",
        OWN,
        "number of nodes; with a range, the job starts and continues with at least MIN",
        "N|MIN:MAX",
        differs="a lost node ends the job unless the script uses the Trainer: its batch would "
        "change",
        variable=True,
    ),
    Option(
        "--node-rank",
        BOTH,
        "rank of this node, from 0; by default node 0 numbers the nodes as they join",
        "N",
        variable=True,
    ),
    Option("--master-addr", BOTH, "name or address of node 0", "HOST", variable=True),
    Option(
        "--master-port",
        BOTH,
        "port of node 0 (default: 29500)",
        "PORT",
        differs="with several nodes this is the launchers' port; the workers use a free one, their "
        "MASTER_PORT, in every attempt another",
        variable=True,
    ),
    Option(
        "--rdzv-endpoint",
        OWN,
        "--master-addr and --master-port in one; the first launcher on this host is node 0",
        "HOST[:PORT]",
        variable=True,
    ),
    Option(
        "--rdzv-id",
        OWN,
        "id of the job; launchers with another id are refused",
        "NAME",
        variable=True,
    ),
    Option(
        "--rdzv-backend",
        OWN,
        "static or c10d; equivalent here",
        "NAME",
        differs="etcd and etcd-v2 are refused: node 0's launcher does what they did",
        variable=True,
    ),
    Option(
        "--rdzv-conf",
        OWN,
        "join_timeout, last_call_timeout, is_host, ... as in torchrun",
        "KEY=VALUE,...",
        differs="store_type=file is refused; an unknown key is noted",
        variable=True,
    ),
    Option(
        "--local-addr",
        OWN,
        "address of this node, if it can't be derived from the endpoint",
        "HOST",
        variable=True,
    ),
    Option("--standalone", OWN, "train on this node alone and ignore the scheduler", variable=True),
)

WORKERS = (
    Option(
        "--nproc-per-node",
        OWN,
        "workers on this node: a number; gpu: one per GPU or NPU; cpu: one per core; auto: gpu if "
        "there is one, else cpu (default: gpu if there is one, else 1)",
        "N",
        short=("--nproc",),
        differs="torchrun starts one worker by default, and its gpu is CUDA's alone; npu is the "
        "same as gpu, and other devices that torch counts have their names: xpu, mlu",
        variable=True,
    ),
    Option(
        "--max-restarts",
        OWN,
        "restarts, with unchanged settings, after failures of unknown cause or signals from "
        "outside (default: 0)",
        "N",
        differs="corrections of known failures don't count; what is known to be the script's own "
        "mistake, or has failed in the same way twice, isn't restarted",
        variable=True,
    ),
    Option(
        "--monitor-interval",
        OWN,
        "no effect: a worker's exit is noticed at once",
        "SECONDS",
        differs="there is no polling",
        variable=True,
    ),
    Option(
        "--start-method",
        OWN,
        "spawn: start each worker as a fresh process; forkserver: fork it from a process that "
        "has already imported the script's modules; fork: same as forkserver (default: "
        "forkserver)",
        "spawn|fork|forkserver",
        differs="torchrun's applies to functions; a script is always a fresh process there",
        variable=True,
    ),
    Option(
        "--event-log-handler",
        OWN,
        "null",
        "NAME",
        differs="other handlers are refused: the run directory keeps what happens",
        variable=True,
    ),
    Option("--role", OWN, "the workers' ROLE_NAME", "NAME", variable=True),
    Option(
        "--module",
        BOTH,
        "the script is a module name, as for `python -m`",
        short=("-m",),
        variable=True,
    ),
    Option(
        "--no-python",
        BOTH,
        "the script is an executable to run directly",
        differs="nothing can be corrected inside a program",
        variable=True,
    ),
    Option(
        "--run-path",
        OWN,
        "no effect: the script is given by its path",
        differs="no other mode is needed; not together with -m",
        variable=True,
    ),
    Option(
        "--signals-to-handle",
        OWN,
        "further signals to pass on to the workers",
        "SIGNAL,...",
        differs="SIGTERM, SIGINT and SIGHUP always stop the workers, SIGQUIT asks where every rank "
        "stands; SIGUSR1, SIGUSR2 and whatever else is named goes to the workers with a handler "
        "for it, and the training continues, where torchrun ends it; what was ignored when "
        "safe-launch was started, as SIGHUP is under nohup, stays ignored",
        variable=True,
    ),
    Option(
        "--shutdown-timeout",
        OWN,
        "time between SIGTERM and SIGKILL (default: 15)",
        "SECONDS",
        differs="without it TORCH_ELASTIC_SHUTDOWN_TIMEOUT is used; torchrun waits 30 s",
        variable=True,
    ),
    Option(
        "--virtual-local-rank",
        OWN,
        "each worker sees only one device, with LOCAL_RANK=0",
        differs="ASCEND_RT_VISIBLE_DEVICES is cut as well",
        variable=True,
    ),
    Option(
        "--numa-binding",
        OWN,
        "bind each worker to the cores near its GPU, as in torch",
        "node|socket|exclusive|core-complex",
        differs="an error where no GPU or no numactl is found; workers are fresh processes",
    ),
)

OUTPUT = (
    Option(
        "--log-dir",
        OWN,
        "parent of the run directory (default: safe-launch/runs in the user's cache)",
        "FOLDER",
        differs="attempt-N/rank-N.log has both streams of a rank, and is always written",
        variable=True,
    ),
    Option(
        "--redirects",
        OWN,
        "streams to keep off the console: 1 stdout, 2 stderr, 3 both; per local rank: 0:1,1:2",
        "STREAMS",
        short=("-r",),
        differs="they are in rank-N.stdout.log and rank-N.stderr.log, and in rank-N.log",
        variable=True,
    ),
    Option(
        "--tee",
        OWN,
        "streams to write to separate files and, prefixed with the rank, to the console",
        "STREAMS",
        short=("-t",),
        differs="rank-N.stdout.log and rank-N.stderr.log",
        variable=True,
    ),
    Option(
        "--log-line-prefix-template",
        OWN,
        "prefix of lines shown by --tee; may use ${role_name}, ${rank}, ${local_rank}, ${hostname} "
        "(default: [${role_name}${local_rank}]:)",
        "TEMPLATE",
        differs="without it TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE is used; ${pid} isn't known yet",
        variable=True,
    ),
    Option(
        "--local-ranks-filter",
        OWN,
        "local ranks to show on the console",
        "N,...",
        variable=True,
    ),
    Option(
        "--duplicate-stdout-filters",
        OWN,
        "also copy lines with one of these words to attempt-N/filtered_stdout.log",
        "WORD,...",
        differs="of all ranks, whether --tee is given or not",
        variable=True,
    ),
    Option(
        "--duplicate-stderr-filters",
        OWN,
        "the same for stderr, to filtered_stderr.log",
        "WORD,...",
        differs="of all ranks, whether --tee is given or not",
        variable=True,
    ),
    Option(
        "--logs-specs",
        OWN,
        "default",
        "NAME",
        differs="others are refused: output goes through the launcher's own pipes, where failures "
        "are seen",
    ),
    Option(
        "--print-completion",
        OWN,
        "print a shell completion script and exit",
        "bash|zsh|fish|tcsh",
        differs="the same as `safe-launch completion`: it completes safe-launch",
    ),
)

TABLE = (*NODES, *WORKERS, *OUTPUT)
