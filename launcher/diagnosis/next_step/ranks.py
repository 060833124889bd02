"""Recognizes failures caused by several ranks: file races, different modules, a busy rank."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise, takewhile

from ...core.quotation import shortened
from ...system.redaction import redacted
from .step import Case, Step, run_of

RANKED = re.compile(
    r"\[(?:default|rank)?(\d+)\]:|\brank[ :=_-]?(\d+)\b|\blocal_rank[ :=]+(\d+)", re.I
)
LAUNCHED = re.compile(
    r"\btorchrun\b|\bdeepspeed (?:-|\w+\.py)|\baccelerate launch\b|\bmulti-?gpu\b|\u591a\u5361",
    re.I,
)
"""A launcher's command, or words for several devices."""
WORLD = re.compile(
    r"\b(?:world[_"
    r" ]?size|nproc[-_]per[-_]node|num[-_]processes|n_gpus_per_node|num_machines|nprocs|[td]p_size"
    r"|tensor[-_](?:model[-_])?parallel[-_]size|data[-_]parallel[-_]size)\W{1,4}(\d+)",
    re.I,
)
ALTERING = (
    r"_?(?:remove|unlink|rmtree|rmdir|renames?|replace|move|removedirs|makedirs|mkdir|symlink"
    r"|copy\w*|dump|rotate\w*|save(?:_\w+)?)"
)
"""Functions that change the file system."""
ALTERED = re.compile(rf"{ALTERING}\Z")
ALTERS = re.compile(rf"\b{ALTERING}\(")
REMOVES_TREE = re.compile(r"_?rmtree\w*: .*\bos\.(?:rmdir|unlink)\b")
"""The end of the removal of a tree, whose beginning looks whether it is there."""
VANISHED = ("FileNotFoundError", "FileExistsError", "OSError", "NotADirectoryError")
TAKEN = re.compile(
    r"\[Errno (?:2|17|39|116)\]|No such file|File exists|Directory not empty|Stale file handle"
)
COLLECTIVE = re.compile(
    r"Rank (?P<here>\d+) is running collective: .*?OpType=(?P<this>\w+),"
    r" TensorShape=(?P<a>\[[^\]]*\]).*?"
    r"but Rank (?P<there>\d+) is running collective: .*?OpType=(?P<that>\w+),"
    r" TensorShape=(?P<b>\[[^\]]*\])",
    re.S,
)
SHAPES = re.compile(
    r"Detected mismatch between (?P<this>(?P<that>collectives)) on ranks\.\s+Rank (?P<here>\d+)\b"
    r".*?TensorShape=(?P<a>\[[^\]]*\]).*?Rank (?P<there>\d+)\b.*?TensorShape=(?P<b>\[[^\]]*\])",
    re.S,
)
"""The same in a shortened message."""
CACHE = re.compile(
    r"unsloth_compiled_cache|transformers_modules|torchinductor_\w+|torch_extensions|\.triton\b"
    r"|flashinfer|tilelang|\bunsloth\b.*\bexec\(",
    re.IGNORECASE,
)
"""Folders of code that libraries generate as they run."""
HALF = re.compile(
    r"^module '(?P<name>\w+)' has no attribute '(?P=name)'|unexpected EOF|was never closed"
    r"|^module 'transformers_modules\S* has no attribute"
    r"|No such file or directory: '[^']*(?:transformers_modules|torchinductor_|unsloth_compiled)"
    r"|file too short|source code string cannot contain null bytes|^Ran out of input"
)
"""A module or file that another process was still writing."""
TAKEN_PORT = re.compile(
    r"Address already in use|EADDRINUSE|server socket has failed to (?:bind|listen)"
)
BY_SLURM = re.compile(
    r"\bsrun\b[^\n]*--ntasks-per-node[= ](?P<tasks>\d+)\b[^\n]*"
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|deepspeed|deepy\.py|accelerate launch)\b"
)
"""A launcher in each task of a node."""
LAUNCHER = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+\] \[INFO\] \[runner\.py:\d+:main\] (cmd = .+)"
)
"""The command of DeepSpeed's launcher, and the second in which it was started."""
REPLICA = re.compile(r"Caught \w+ in replica \d+ on device")
UNEQUAL = re.compile(
    r"(?i)\bsize of tensor|\bsizes of tensors|\bshape|\bbatch[ _]size|\bsame device"
    r"|\bcuda:\d and cuda:\d|\bon cuda:\d|\bbroadcast|\bmust match\b"
)
"""A difference of shapes or devices."""
GATHERED = "Was asked to gather along dimension 0"
"""nn.DataParallel's warning, in a process with several devices."""
REPLICATED = tuple(
    f"torch/nn/parallel/{name}.py"
    for name in ("data_parallel", "parallel_apply", "replicate", "scatter_gather")
)
TIMEOUT = re.compile(r"\btime(?:d )?-?out\b|\bTimed out\b", re.IGNORECASE)
OF_WAITING = re.compile(r"Watchdog|watchdog|ProcessGroup(?:NCCL|HCCL|Gloo)|Timed out waiting")
"""Lines of the waiting ranks."""
MOST = 6
"""Lines to inspect before the first line of a waiting rank."""
LONGEST = 90
"""Maximum characters to quote of a line."""
LONGER = (
    "The others wait longer with `init_process_group(timeout=timedelta(hours=2))`, with the Trainer"
    " by `--ddp_timeout 7200`."
)
WAITED = "(“{line}”) while the others waited."


def race_on_files(case: Case) -> Step | None:
    """A file removed or moved by one rank while another used it."""
    if case.kind not in VANISHED or TAKEN.search(case.message) is None:
        return None
    if not _is_ranked(case) and not _vanished_midway(case):
        return None
    last = case.frames[-4:]
    if not any(ALTERED.match(frame.function) or ALTERS.search(frame.source) for frame in last):
        return None
    paths = re.findall(r"'([^']+)'", case.message)
    what = paths[0] if paths else "the file"
    yours = case.users_frame
    doing = f" (`{shortened(yours.source, 80)}`)" if yours and yours.source else ""
    text = (
        'Let one rank do it (`if int(os.environ["RANK"]) == 0:`, `LOCAL_RANK` where each node has'
        " a disk of its own), and `torch.distributed.barrier()` before the others go on. Several"
        f" ranks change {what} at the same time{doing}, and another has already done it."
    )
    if (framework := run_of(case).framework) and framework.on_trainer:
        text += (
            " On the Trainer: `save_on_each_node=False` where the nodes share the output folder."
        )
    return Step(text)


def _vanished_midway(case: Case) -> bool:
    """Whether a folder went while `shutil.rmtree`, which had found it, was removing it."""
    places = [f"{frame.function}: {frame.source}" for frame in case.frames[-3:]]
    return "No such file" in case.message and any(map(REMOVES_TREE.match, places))


def shared_cache(case: Case) -> Step | None:
    """Code that a library generates, read by a rank while another was writing it."""
    places = (f"{frame.file} {frame.source}" for frame in case.frames)
    match = next(filter(None, map(CACHE.search, (case.message, *places))), None)
    is_launched = _is_ranked(case) or LAUNCHED.search(case.around) is not None
    if match is None or not is_launched or not HALF.search(case.message):
        return None
    name = match[0] if " " not in match[0] and "(" not in match[0] else "unsloth_compiled_cache"
    return Step(
        f"Delete the cache folder ({name}) and let one process fill it before the others start:"
        " run the imports once without the launcher, or give each rank a folder of its own. All"
        " ranks write the generated code there at once, and this one read a file that another"
        " hadn't finished. A newer version of the library may wait for rank 0."
    )


def other_modules(case: Case) -> Step | None:
    """Ranks in the same operation with different shapes, which run different modules."""
    match = COLLECTIVE.search(case.raised.message) or SHAPES.search(case.raised.message)
    if match is None or match["this"] != match["that"] or match["a"] == match["b"]:
        return None
    if len(set(re.findall(r"OpType=(\w+)", case.raised.message))) > 1:
        return None
    text = (
        "Let every rank run the same modules in the same order, or shard so that no forward pass"
        f" gathers parameters (ZeRO-2): ranks {match['here']} and {match['there']} are both in"
        f" {match['this']}, with {match['a']} and {match['b']}. So they run different modules: let"
        " a sample without images go through the vision tower (with an empty picture), too, and run"
        " an expert or a branch that a batch doesn't need."
    )
    return Step(text)


SAME_DEVICE = re.compile(r"Duplicate GPU detected|rank \d+ and rank \d+ both on CUDA device")
IN_TASKS = re.compile(
    r"^#SBATCH\s+(?:--ntasks-per-node|--tasks-per-node)[= ](?:[2-9]|\d\d)"
    r"|^srun: error: \S+: tasks \d+[-,]\d",
    re.MULTILINE,
)
"""Several tasks of Slurm on a node: in a job script, or as they end."""
EACH_STARTS = re.compile(
    r"\bsrun\b[^\n]*\b(?:torchrun|torch\.distributed\.run|deepspeed|accelerate launch)\b"
    r"|failed to run torchrun "
)
"""A launcher that each task starts."""


def many_launchers(case: Case) -> Step | None:
    """Several launchers on a node, which all want the same port, or the same devices."""
    if not (TAKEN_PORT.search(case.message) or SAME_DEVICE.search(case.message)):
        return None
    around = case.around
    by_slurm = any(int(match["tasks"]) > 1 for match in BY_SLURM.finditer(around))
    by_slurm |= IN_TASKS.search(around) is not None and EACH_STARTS.search(around) is not None
    began = [match.groups() for match in LAUNCHER.finditer(around)]
    at_once = any(one == other for one, other in pairwise(began))
    if not (by_slurm or at_once):
        return None
    return Step(
        "Start one launcher on each node, `srun --ntasks-per-node=1`, as it starts a process for"
        " each GPU itself: here several were started at once, and all but the first find the port"
        " or the devices taken, whichever they are. DeepSpeed's launcher on a single node of MPI or"
        ' Slurm needs `--force_multi` (GPT-NeoX: `"force_multi": true`).'
    )


def unequal_replicas(case: Case) -> Step | None:
    """Shapes or devices that differ among the replicas of nn.DataParallel."""
    return _one_process_each(case) if UNEQUAL.search(case.message) else None


def replicas_in_threads(case: Case) -> Step | None:
    """A failure in a replica of nn.DataParallel, which a Trainer uses in a single process."""
    return None if case.kind == "OutOfMemoryError" else _one_process_each(case)


def _one_process_each(case: Case) -> Step | None:
    """The advice against nn.DataParallel, if it takes part."""
    raised = (raised.message for raised in case.record.raised())
    is_replica = any(map(REPLICA.match, raised)) or (
        UNEQUAL.search(case.message) and GATHERED in case.around
    )
    if not is_replica and not any(f.file.endswith(REPLICATED) for f in case.record.frames):
        return None
    return Step(
        "Start one process for each device (`torchrun --nproc-per-node N`, `accelerate launch`),"
        " or show a single one to this (`export CUDA_VISIBLE_DEVICES=0`): it was started as one"
        " process for several devices, and nn.DataParallel has split each batch among replicas in"
        " threads, which many models and batches don't bear."
    )


def _is_ranked(case: Case) -> bool:
    """Whether the log shows several ranks, by a prefix, a word or a number."""
    named = case.record.rank is not None or RANKED.search(case.around) is not None
    return named or bool(world_sizes(case))


def world_sizes(case: Case) -> frozenset[int]:
    """Numbers of ranks above 1 in the log."""
    return frozenset(int(n) for n in WORLD.findall(case.around) if 1 < int(n) < 100_000)


@dataclass(frozen=True, slots=True)
class Business:
    """An activity that may keep a rank busy.

    Attributes:
        words: a line's that show it.
        do: the advice.
        more: what else may help.
        is_last: whether only the last line shows it, as others follow once it is done.
    """

    words: re.Pattern[str]
    do: str
    more: str = LONGER
    is_last: bool = False


KINDS = (
    Business(
        re.compile(r"(?i)^\W*(?:compiling and )?loading fused kernels \.\.\."),
        "Delete `megatron/fused_kernels/build` if no compiler runs, whose lock a killed build has"
        f" left, or let one process build it first: a rank was at it {WAITED}",
        "",
        is_last=True,
    ),
    Business(
        re.compile(
            r"\bas PyTorch extensions root\b|\b(?:Building|Loading) extension module\b"
            r"|\bEmitting ninja build file\b"
        ),
        "Delete the file `lock` below `~/.cache/torch_extensions` if no compiler runs, as a killed"
        f" build leaves it, or let one process build it first: a rank was at it {WAITED}",
        "",
        is_last=True,
    ),
    Business(
        re.compile(r"(?i)\b(?:tokeniz|pre-?process)|\bMap(?: \(|:)|^generating \w+ split"),
        "Prepare the data once before the launch, in a run of one process, or raise the process"
        f" group's timeout: a rank was at it {WAITED}",
    ),
    Business(
        re.compile(r"(?i)\b(?:scanning|caching|downloading|building (?:the )?(?:index|cache))\b"),
        "Have it done once before the launch, by one process, or raise the process group's"
        f" timeout: a rank was at it {WAITED}",
    ),
    Business(
        re.compile(
            r"(?i)\b(?:data|loader|iterator|dataset)\b.{0,20}\bexhausted\b|\bStopIteration\b"
            r"|\bepoch \d+ (?:is )?(?:done|finished|ended)\b|\b\d+ batches this epoch\b|\buneven\b"
        ),
        "Give every rank the same number of batches (`drop_last=True`, or repeat and cut the data):"
        f" a rank had no more {WAITED}",
        "Under DDP `torch.distributed.algorithms.Join` lets ranks end at different steps.",
    ),
    Business(
        re.compile(r"(?i)\bsav(?:e|ing)\b|\bcheckpoint\b|\bstate dict\b|\bwriting\b"),
        "Raise the process group's timeout, or save less and to a faster disk: a rank was saving"
        f" {WAITED}",
        f"{LONGER} An adapter alone, or a sharded or asynchronous checkpoint, is written sooner.",
    ),
    Business(
        re.compile(r"(?i)\beval(?:uat\w*)?\b|\bvalidat(?:e|ing|ion)\b"),
        "Evaluate on all ranks or on fewer samples, or raise the process group's timeout: a rank"
        f" was evaluating {WAITED}",
    ),
)
"""Activities by lines, the most specific first."""
STEP = re.compile(r"\bloss\b", re.IGNORECASE)
"""A line of a training step."""


def busy_rank(case: Case) -> Step | None:
    """Reports a rank's last activity before the others' timeout."""
    if not TIMEOUT.search(case.message):
        return None
    before = takewhile(lambda line: not OF_WAITING.search(line), case.record.log_tail)
    lines = [line for line in before if line.strip() and not STEP.search(line)][-MOST:]
    for kind in KINDS:
        near = lines[-1:] if kind.is_last else reversed(lines)
        line = next((line for line in near if kind.words.search(line)), None)
        if line is not None:
            quoted = shortened(redacted(" ".join(line.split())), LONGEST)
            return Step(f"{kind.do.format(line=quoted)} {kind.more}".rstrip())
    return None
