"""Recognizes warnings that are no failure, in a text that shows none, and says what they mean."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import chain

from .announced import COMMAND, DRAWN, is_persons
from .attempts import Reading
from .complaints import complains
from .progress_signs import STEP

MOST = 40
"""Maximum lines of a text that is about a warning."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of warnings that are no failure.

    Attributes:
        words: its words.
        means: what it means, as a sentence after a colon.
        is_everywhere: whether most logs have it, so that nobody asks about it.
    """

    words: re.Pattern[str]
    means: str
    is_everywhere: bool = False


def _kind(words: str, means: str, *, is_everywhere: bool = False) -> Kind:
    return Kind(re.compile(words), means, is_everywhere)


KNOWN = (
    _kind(
        r"find_unused_parameters=True was specified in DDP constructor, but did not find any",
        "DDP looked for parameters without a gradient and found none. That costs a pass over the"
        " graph in each step and changes no result; `find_unused_parameters=False` silences it, if"
        " every step uses all parameters.",
    ),
    _kind(
        r"Grad strides do not match bucket view strides|^(?:grad|bucket_view)\.sizes\(\) = ",
        "a gradient's memory layout differs from its bucket's in DDP. It is no error: the values"
        " are right, and the step is at most a little slower.",
    ),
    _kind(
        r"None of the inputs have requires_grad=True\. Gradients will be None",
        "gradient checkpointing ran a part whose inputs need no gradient. It stops nothing, and is"
        " harmless for frozen parts, as when the loss falls or the reward rises. If nothing is"
        " learned, call `model.enable_input_require_grads()` or set `use_reentrant=False`.",
    ),
    _kind(
        r"Invalidate trace cache @ step \d+",
        "ZeRO-3 met modules in another order than in the step before (as when generating between"
        " steps), and forgets what it fetched ahead. It is expected and costs speed at"
        " most; a newer DeepSpeed doesn't print it.",
    ),
    _kind(
        r"\[c10d\] The client socket has failed to connect to \[.*system error: 10049",
        "on Windows one of the host's addresses isn't valid, and c10d tries the next. It stops"
        " nothing, unless no address is left (`failed to connect to any network address`).",
    ),
    _kind(
        r"\[c10d\] The \w+ socket .*\(errno: 97 - Address family not supported",
        "IPv6 is off on this machine, and c10d goes on over IPv4. It stops nothing.",
    ),
    _kind(
        r"You are running multi-node training without SLURM handling the processes",
        "NeMo notes that another launcher than Slurm starts the processes. It stops nothing; each"
        " node needs its ranks' variables from that launcher.",
    ),
    _kind(
        r"barrier\(\): using the device under current context",
        "torch takes the current device for the barrier. It stops nothing if each rank has called"
        " `torch.cuda.set_device`; `device_id=` in `init_process_group` silences it.",
    ),
    _kind(
        r"Unable to register cu\w+ factory: ",
        "TensorFlow's import has registered a part twice. It stops nothing, and has nothing to do"
        " with a training in torch.",
    ),
    _kind(
        r"Tried to log to step \d+ that is less than the current step",
        "W&B drops these values from its charts only; the training and its weights don't change.",
    ),
    _kind(
        r"The '?\w*dataloader.{0,40} does not have many workers which may be a bottleneck",
        "Lightning's advice on speed: loading data with few workers may be slower. It changes no"
        " result.",
    ),
    _kind(
        r"It is recommended to use `self\.log\(.*sync_dist=True\)`",
        "Lightning can't see whether this logged value is averaged over the ranks. It stops nothing"
        " and changes no weights; values of TorchMetrics are averaged already.",
    ),
    _kind(
        r"Could not estimate the number of tokens of the input, floating-point operations",
        "transformers doesn't count the floating-point operations of such inputs. Nothing else"
        " depends on that number.",
    ),
    _kind(
        r"Unable to find hostfile, will proceed with training with local resources only",
        "DeepSpeed trains on this node alone, as it was given no hostfile.",
    ),
    _kind(
        r"The tokenizer has new PAD/BOS/EOS tokens",
        "transformers has set the model's configuration to the tokenizer's special tokens. It stops"
        " nothing.",
        is_everywhere=True,
    ),
    _kind(
        r"`use_cache=True` is incompatible with gradient checkpointing",
        "transformers switches the cache off by itself; training doesn't need it.",
        is_everywhere=True,
    ),
    _kind(
        r"Setting OMP_NUM_THREADS environment variable for each process to be 1",
        "torchrun limits each process to one CPU thread. It stops nothing; set OMP_NUM_THREADS to"
        " silence it.",
        is_everywhere=True,
    ),
)
"""Lines that look like failures and are none."""
OF_ITSELF = (
    _kind(
        r"\b\w*DeprecationWarning: |\bFutureWarning: ", "it announces a change in a later release."
    ),
    _kind(
        r"\b[Nn]ot an error\b|\bcan (?:be )?(?:safely )?(?:be )?ignored?\b|\bharmless\b",
        "by its own words it is no error.",
    ),
    _kind(
        r"\bmay impair performance\b|\b(?:may|can) adversely affect performance\b",
        "by its own words it costs speed at most.",
    ),
    _kind(
        r"\bWarning: .*(?:\bwill be set to\b|\bfalling back\b)",
        "the program goes on in another way, which it names.",
    ),
    _kind(r"\b\w*UserWarning: ", "it is a warning, after which the program goes on."),
)
"""Words of a warning that show its weight."""
GRAVE = re.compile(
    r"incorrect|wrong|unexpected|undefined|fail|\bhang|freez|deadlock|\bnan\b|overflow|corrupt|lost\b"
    r"|compatib|driver|\bcpu\b|cuda|unable|can(?:no|')t|could not|not found|missing|broadcast"
    r"|unlikely|no effect|no longer|skip|out of memory",
    re.IGNORECASE,
)
"""Words of a warning that may be the reason of a failure, or of bad weights."""
BELOW = re.compile(r"\s|\S*warn\w*\(")
"""A source line below a warning."""
WRAPPED = re.compile(r"[\w,] ?\n[a-z]+[ ,]")
"""The end of a line, and the begin of the next that goes on with its sentence."""
TROUBLE = re.compile(
    r"\b(?:crash|hang|hung|stuck|frozen|freez|stall|kill|fail|abort|exit|stop)|out of memory"
    r"|\b(?:die[sd]?|dead|oom|ends|ended|quits?|flat|nothing|deadlock\w*)\b|(?<![A-Za-z])nan(?![A-Za-z])"
    r"|(?:n't|\bnot?|never) (?:\w+ )?(?:work|start|train|run|learn|converg|improv|respon|progress)"
    r"|\u5361|\u5d29|\u5931\u8d25|\u6302|\u9000\u51fa|\u65e0\u6cd5|\u505c|\u4e2d\u65ad",
    re.IGNORECASE,
)
"""A person's words for a failure."""
DOUBTED = re.compile(
    r"error|problem|issue|wrong|slow|\bonly\b|\bnot?\b|n't\b|never|instead|missing"
    r"|\u62a5\u9519|\u9519\u8bef|\u95ee\u9898|\u53ea|\u4e0d",
    re.IGNORECASE,
)
"""Words of a person who may mean more than a warning."""


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning that is no failure.

    Attributes:
        said: its text, from its own words on.
        means: what it means, as a sentence after a colon.
        is_all: whether the text has nothing else, apart from a person's words.
    """

    said: str
    means: str
    is_all: bool


def is_harmless(text: str) -> bool:
    """Whether a line is a known one that looks like a failure and is none."""
    return any(kind.words.search(text) for kind in KNOWN)


def warned(reading: Reading) -> Warned | None:
    """The warning that a text without a failure is about, if it has no other complaint.

    Of several, a known one, the most frequent.
    """
    texts = [line.text for line in chain.from_iterable(reading.last_lines.values())]
    has_raised = any(event.record.exception for event in reading.events)
    if has_raised or reading.deaths or reading.cut or len(texts) > MOST:
        return None
    found: list[tuple[Kind, re.Match[str]]] = []
    others: list[str] = []
    is_below = False
    for above, text in zip(["", *texts], texts, strict=False):
        weighed = _weighed(text)
        goes_on = BELOW.match(text) or WRAPPED.search(f"{above[-2:]}\n{text}")
        is_below = weighed is not None or (is_below and goes_on is not None)
        if weighed is not None:
            found.append(weighed)
        elif not is_below:
            others.append(text)
    around = [f"{each.string[: each.start()]} {each.string[each.end() :]}" for _, each in found]
    is_bad = any(map(TROUBLE.search, (*others, *around)))
    persons = [text for text in others if is_persons(text)]
    programs = [text for text in others if text not in persons and not STEP.search(text)]
    if not found or is_bad or any(map(complains, programs)):
        return None
    known = [each for each in found if each[0] in KNOWN and not each[0].is_everywhere]
    often = Counter(kind for kind, _ in known or found)
    kind, match = max(known or found, key=lambda each: often[each[0]])
    is_asked = bool(known)
    is_all = _is_whole(reading) and not any(map(DOUBTED.search, others))
    is_all &= not any(map(STEP.search, others))
    is_all &= all(COMMAND.match(text) or DRAWN.match(text) for text in programs)
    is_all &= is_asked or bool(persons)
    said = match.string[match.start() :] if kind in KNOWN else match.string
    return Warned(said.strip(), kind.means, is_all) if is_all or is_asked else None


def _weighed(text: str) -> tuple[Kind, re.Match[str]] | None:
    """The kind of a warning that is no failure, and its words; None for other lines."""
    kinds = KNOWN if GRAVE.search(text) else (*KNOWN, *OF_ITSELF)
    matches = ((kind, kind.words.search(text)) for kind in kinds)
    return next(((kind, match) for kind, match in matches if match is not None), None)


def _is_whole(reading: Reading) -> bool:
    """Whether the last lines of each file are all its lines."""
    return all(
        first and lines and lines[0].number <= first[0].number
        for file, lines in reading.last_lines.items()
        for first in [reading.first_lines.get(file)]
    )
