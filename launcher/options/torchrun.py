"""torchrun's options: torch/distributed/run.py, get_args_parser."""

from __future__ import annotations

from .option import DEEPSPEED, TORCHRUN, Option

BOTH = (TORCHRUN, DEEPSPEED)
OWN = (TORCHRUN,)

NODES = (
    Option(
        "--nnodes",
        OWN,
        "nodes of the job; with a range it starts, and continues, with fewer",
        "N|MIN:MAX",
        differs="a lost node ends the job where the script isn't on the Trainer: its batch would "
        "change",
        variable=True,
    ),
    Option(
        "--node-rank",
        BOTH,
        "number of this node, from 0; without it node 0 numbers them as they join",
        "N",
        variable=True,
    ),
    Option("--master-addr", BOTH, "name or address of node 0", "HOST", variable=True),
    Option(
        "--master-port",
        BOTH,
        "where node 0 listens (default: 29500)",
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
        "id of the job, the same for all its launchers; others are refused",
        "NAME",
        variable=True,
    ),
    Option(
        "--rdzv-backend",
        OWN,
        "static or c10d, which mean the same here",
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
        "this node's address, where it doesn't follow from the endpoint",
        "HOST",
        variable=True,
    ),
    Option("--standalone", OWN, "this node alone, whatever the scheduler says", variable=True),
)

WORKERS = (
    Option(
        "--nproc-per-node",
        OWN,
        "workers on this node: a number; gpu: one for each GPU or NPU; cpu: one for each core; "
        "auto: as gpu, or cpu where there is none (default: gpu, or 1 where there is none)",
        "N",
        short=("--nproc",),
        differs="torchrun starts one worker by default, and its gpu is CUDA's alone; npu is the "
        "same as gpu, and other devices that torch counts have their names: xpu, mlu",
        variable=True,
    ),
    Option(
        "--max-restarts",
        OWN,
        "how often a failure without a known cause, or by a signal from outside, is restarted "
        "unchanged (default: 0)",
        "N",
        differs="corrections of known failures don't count; what is known to be the script's own "
        "mistake, or has failed in the same way twice, isn't restarted",
        variable=True,
    ),
    Option(
        "--monitor-interval",
        OWN,
        "no effect: a worker's end is seen when it happens",
        "SECONDS",
        differs="there is no polling",
        variable=True,
    ),
    Option(
        "--start-method",
        OWN,
        "spawn: every worker is a fresh process; forkserver: it is forked from a process that "
        "has imported what the script needs; fork: the same (default: forkserver)",
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
        "the script is a module's name",
        short=("-m",),
        variable=True,
    ),
    Option(
        "--no-python",
        BOTH,
        "the script is an executable program, run unchanged",
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
        "signals that are passed on to the workers, besides those that stop them",
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
        "from SIGTERM to SIGKILL (default: 15)",
        "SECONDS",
        differs="without it TORCH_ELASTIC_SHUTDOWN_TIMEOUT is used; torchrun waits 30 s",
        variable=True,
    ),
    Option(
        "--virtual-local-rank",
        OWN,
        "every worker sees its own device alone, and has LOCAL_RANK=0",
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
        "where the run directory is made (default: safe-launch/runs in the user's cache)",
        "FOLDER",
        differs="attempt-N/rank-N.log has both streams of a rank, and is always written",
        variable=True,
    ),
    Option(
        "--redirects",
        OWN,
        "streams that are kept from the console: 1 stdout, 2 stderr, 3 both, 0:1,1:2 by local rank",
        "STREAMS",
        short=("-r",),
        differs="they are in rank-N.stdout.log and rank-N.stderr.log, and in rank-N.log",
        variable=True,
    ),
    Option(
        "--tee",
        OWN,
        "streams that go to separate files and, prefixed with the rank, to the console",
        "STREAMS",
        short=("-t",),
        differs="rank-N.stdout.log and rank-N.stderr.log",
        variable=True,
    ),
    Option(
        "--log-line-prefix-template",
        OWN,
        "the prefix of a line of --tee, of ${role_name}, ${rank}, ${local_rank} and ${hostname} "
        "(default: [${role_name}${local_rank}]:)",
        "TEMPLATE",
        differs="without it TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE is used; ${pid} isn't known yet",
        variable=True,
    ),
    Option(
        "--local-ranks-filter",
        OWN,
        "local ranks that are shown on the console",
        "N,...",
        variable=True,
    ),
    Option(
        "--duplicate-stdout-filters",
        OWN,
        "lines with one of these words go to attempt-N/filtered_stdout.log as well",
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
        "print what completes the command line in a shell, and launch nothing",
        "bash|zsh|fish|tcsh",
        differs="the same as `safe-launch completion`: it completes safe-launch",
    ),
)

TABLE = (*NODES, *WORKERS, *OUTPUT)
