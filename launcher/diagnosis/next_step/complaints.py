"""Advises by what somebody wrote around a log: that the run hangs, learns nothing, and the like."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .activities import activity_in
from .step import Basis, Case, Step

ENDS_ITSELF = r"(?:ends?|exits?|dies?|stops?|crash(?:es|ed)?|aborts?|quits?)"
ENDED = re.compile(
    r"\b(?:then|and|until)\b[^.]{0,40}\b(?:process(?:es)?|job|run|training|pods?|ranks?|it"
    rf"|everything)\b[^.]{{0,20}}\b{ENDS_ITSELF}\b"
    rf"|\b{ENDS_ITSELF}(?: \w+)? (?:at once|immediately|silently|right away|soon|there|here"
    r"|without (?:an? )?(?:error|message|output|traceback))\b"
    r"|\bjust (?:ends|exits|dies|stops|quits)\b|自动退出|直接(?:退出|中断)|闪退",
    re.IGNORECASE,
)
STANDS = re.compile(
    r"\b(?:it|job|run|script|training|trainer|program|process(?:es)?|ranks?|nodes?|gpus?|everything)"
    r"\b[^.?]{0,40}\b(?:hangs|hung|freezes|froze|(?:is|are|gets?|got|was|being) stuck|stalls)\b"
    r"|\b(?:is|are|was|were|gets?|got|keeps?|it's) (?:always |just )?(?:hanging|stuck|frozen)\b"
    r"|(?:^|\bit )hang(?:s|ed)? (?:in|on|at|after|here|forever|for|when|during)\b"
    r"|^(?:stuck|freezes) (?:at|in|on|after|here|forever|for)\b"
    r"|\b(?:did(?:n't| not)|does(?:n't| not)|no longer) (?:respond|proceed|move on)\b"
    r"|\b(?:ranks?|jobs?|it) never (?:exits?|returns?|finish\w*|ends?)\b"
    r"|\bnothing (?:more |else )?(?:is|gets|was) (?:printed|logged|happening)\b"
    r"|\bnothing (?:more|else|happens)\b(?=[.,;]| happens|$)"
    r"|\bno (?:further|more) (?:output|progress)\b"
    r"|卡住|卡死|一直卡|没有任何(?:输出|反应|日志)|不动了",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Complaint:
    """A person's words on a run, and what to look at first.

    Attributes:
        words: a sentence's.
        do: the advice.
        is_of_steps: whether the steps in the log are of the run that the sentence is about.
    """

    words: re.Pattern[str]
    do: str
    is_of_steps: bool = True


def _complaint(words: str, do: str) -> Complaint:
    return Complaint(re.compile(words, re.IGNORECASE), do)


_DEVICES = r"(?:gpus?|cards?|devices?|npus?|显卡|卡)"
_NOT = r"(?:do(?:es)?n[o']?t|do(?:es)? not|isn't|is not|never|won't)"
_ROSE = (
    r"(?:jump(?:s|ed)?|spike[sd]?|(?:much )?higher|starts? (?:over|again)|increase[sd]?"
    r"|goes (?:back )?up|from scratch|(?:is|as) (?:at|in) the beginning)"
)
COMPLAINTS = (
    Complaint(
        STANDS,
        "Find out where each rank stands: `py-spy dump --pid PID` for the process of each rank,"
        " on every node. Ranks in a collective wait for the rank that isn't in it; if all are"
        " in the first one, the ranks don't reach each other. `NCCL_DEBUG=INFO` (HCCL:"
        " `ASCEND_GLOBAL_LOG_LEVEL=1`) shows the interface that they use. safe-launch names the"
        " rank and its line.",
        is_of_steps=False,
    ),
    Complaint(
        ENDED,
        "The reason isn't in this log: see the exit code (`echo $?`), each rank's log"
        " (torchrun: `--log-dir logs --redirects 3`), and `dmesg -T | grep -i -E 'oom|killed'`"
        " on the node.",
        is_of_steps=False,
    ),
    _complaint(
        rf"\bonly (?:the )?(?:first|one|a single|rank 0|1|{_DEVICES} ?:?0|cuda:0)\b[^.]{{0,40}}"
        rf"\b(?:{_DEVICES}|process(?:es)?|busy|used|utili[sz]ed|working)\b"
        rf"|\b(?:others?|second|remaining) {_DEVICES} (?:\w+ ){{0,4}}(?:idle|unused|not used|0 ?%)"
        rf"|只(?:用|有|使用)了?(?:一|1|单|第一)[张块]?{_DEVICES}",
        "Start one process for each device: `torchrun --nproc-per-node N`, `accelerate launch"
        " --num_processes N`, or under Slurm `srun` with `--ntasks-per-node` equal to the number of"
        " GPUs. A single process trains on one device, however many it sees.",
    ),
    _complaint(
        rf"\bresum\w+\b[^.]{{0,80}}\bloss\b[^.]{{0,60}}\b{_ROSE}\b"
        rf"|\bloss\b[^.]{{0,40}}\b{_ROSE}\b[^.]{{0,60}}\b(?:resum\w+|restart\w*|checkpoint)",
        "Find out what the resume doesn't restore: compare a weight and the optimizer's `exp_avg`"
        " right after loading with those before saving, and the learning rate and the step. If only"
        " the optimizer's state is wrong, resume without it (Megatron: `--no-load-optim`); its"
        " moments build up anew. An offloaded optimizer, another number of ranks and a file of one"
        " rank are the usual reasons.",
    ),
    _complaint(
        rf"\b(?:loss|accuracy|reward|weights?|parameters?|model|it) (?:\w+ ){{0,3}}{_NOT}"
        r" (?:really )?(?:train|learn|decreas|drop|go(?:es|ing)? down|chang|updat|improv|converg)"
        r"\w*"
        r"|loss ?(?:一直)?不(?:下降|收敛|变)"
        r"|\bloss (?:is|stays) (?:constant|the same|stuck|flat)\b"
        r"|\b(?:scores?|outputs?|predictions?|embeddings|similarit\w+)\b[^.,]{0,40}\b(?:is|are|all)"
        r" (?:all |always )?(?:the same|identical|equal)\b",
        "See that the optimizer trains the model: its parameters are collected after FSDP, ZeRO or"
        " an adapter has replaced the model's (in one `prepare` call, or later), the learning rate"
        " isn't 0, and some labels of each batch aren't -100. Under safe-launch, the checks of a"
        " run name the parameters.",
    ),
    _complaint(
        r"\b(?:saved|loaded|re-?load\w*|exported|merged|checkpoint)\b[^.]{0,80}\b(?:garbage|gibberish"
        r"|nonsense|random(?:ly)?|empty|size 0|untrained|0 parameters|bad results)\b",
        "Look at a weight in the saved file (`safetensors.torch.load_file(...)`): its shape must be"
        " whole and its values those of the trained model. Under ZeRO-3 and FSDP weights are"
        " gathered before saving, by all ranks (`stage3_gather_16bit_weights_on_model_save`,"
        " `accelerator.get_state_dict(model)`). If the file is right, see which keys"
        " `load_state_dict` reports as missing: a prefix (`module.`, `_orig_mod.`) hides them.",
    ),
    _complaint(
        r"\bmemory\b[^.]{0,30}\b(?:keeps?|is|was|slowly|steadily|constantly|gradually) ?(?:on )?"
        r"(?:grow|increas|ris|climb|going up)\w*|\bmemory leak",
        "Find what each step keeps: a loss or output that is collected with its graph"
        " (`loss.item()` or `.detach()` instead), and on the host a data set's Python lists, which"
        " each loader process copies bit by bit (use arrays or `datasets`). On a device compare"
        " `torch.cuda.memory_allocated()` of two steps: if it's equal, only the cache is split up.",
    ),
    _complaint(
        r"\b(?:multi|several|2|two|4|four|8|eight|more)[ -]?(?:gpus?|cards?|nodes?)\b[^.]{0,60}"
        r"\b(?:slower|no faster|not faster|same (?:time|speed)|no speed-?up)\b"
        r"|\bslower\b[^.]{0,40}\b(?:than|with)\b[^.]{0,20}\b(?:single|one|1) ?(?:gpu|card|node)",
        "Compare samples per second and not steps: each rank has a batch of its own, so a step does"
        " more. Then see whether the ranks wait for data (raise `num_workers`, threads per process"
        " by OMP_NUM_THREADS) or for the network (`NCCL_DEBUG=INFO` shows sockets instead of"
        " InfiniBand or NVLink; accumulation makes them talk less).",
    ),
)
"""The complaints, those of a run that ended or hangs first."""


def complaint_in(text: str) -> Complaint | None:
    """The complaint of a line, if any."""
    return next((each for each in COMPLAINTS if each.words.search(text)), None)


def users_report(case: Case) -> Step | None:
    """What to look at first, by what somebody reports on a run without an error."""
    if case.record.exception or not (complaint := complaint_in(case.message)):
        return None
    is_at_end = complaint.words in (STANDS, ENDED)
    activity = activity_in(case.record.log_tail) if is_at_end else None
    if activity and activity.advice:
        tried = f"{activity.advice[0].upper()}{activity.advice[1:]}"
        return Step(f"{tried} The log ends {activity.words}. {complaint.do}")
    return Step(complaint.do, Basis.OPEN)
