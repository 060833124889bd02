"""Removes the prefixes of launchers, schedulers and containers from a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from .lines import decoded
from .plain import plain, unmarked, unwrapped
from .progress_signs import STEP
from .traceback_parts import BOX_TOP, HEADER, NOTEBOOK, is_edge

TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"

RANKS = (
    re.compile(r"\[rank(?P<rank>\d+)\]: ?"),  # torch.distributed's excepthook and c10's logger
    re.compile(
        r"\[(?:default|[A-Za-z_]\w*?)(?P<rank>\d+)\]:"
    ),  # torchrun --tee, by role and local rank
    re.compile(r"\[(?:\d+,)?(?P<rank>\d+)\]<std(?:err|out|diag)>: ?"),  # mpirun, horovodrun
)
"""Prefixes that name a rank; an inner prefix is more reliable."""
STREAMS = (
    re.compile(r" *(?P<stream>\d{1,4}): (?=\s*\S)"),  # srun --label
    re.compile(  # pdsh, and `kubectl logs` of several pods
        r"(?P<stream>(?!\S*(?:Error|Exception|Warning|\.py):|E[A-Z\d]\d{4}:|ERR\d+:)"
        r"(?:localhost|\d+\.\d+\.\d+\.\d+|[A-Za-z][\w-]*\d[\w-]*(?:\.[A-Za-z][\w-]*)*)): "
    ),
    re.compile(r"\[(?P<stream>pod/[^\]\s]+)\] ?"),
    re.compile(r"\((?P<stream>(?:[\w.(),-]+ )?pid=\d+(?:, ip=[\d.]+)?)\) ?"),  # ray, SkyPilot
)
"""Prefixes that distinguish the lines of processes or hosts."""
LABEL = re.compile(r" *\d+(?:: |\t| [|\u2502] )")
"""Prefixes that may begin with spaces: srun's, padded to the widest rank, and line numbers."""
STAMPS = (
    re.compile(r"\[\d{1,7}\] "),  # viewers of logs number the lines
    re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ (?!kernel)[^\s:]+: "),  # syslog
    re.compile(TIME + r" std(?:out|err) [FP] "),  # Kubernetes' container runtime
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) ?"),
)
GLOG = re.compile(
    r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w/.<>-]+:\d+\] ?(?:\[[\d/_]+\] )?"
    r"|ERROR \d\d-\d\d \d\d:\d\d:\d\d \[[\w./-]+:\d+\] "
    r"(?=  \S|    |Traceback|(?:[\w.]+\.)?\w+(?:Error|Exception)(?:: |$))"
)
"""The prefixes of torch's Python loggers and vLLM's, repeated on each line of a traceback."""
FOLDED = re.compile(r"Traceback \(most recent call last\):\\n")
MOST_LINES, LEAST_LINES = 400, 8
"""Maximum and minimum first lines of a log to search for a common prefix."""
EXCEPTIONS = 0.05
"""Share of the lines that may lack the prefix."""
NUMBER = re.compile(r"\d+")
SEPARATORS = " \t:]|>)"
"""Characters that a prefix ends with."""
LONGEST = 160
"""Maximum characters of a prefix."""
MOST_LEARNED = 8


@dataclass(frozen=True, slots=True)
class Stripped:
    """A line without its prefixes.

    Attributes:
        text: the line itself, as the process wrote it.
        rank: the rank in a prefix.
        stream: identifier of the process's lines in the file.
    """

    text: str
    rank: int | None = None
    stream: str = ""


@lru_cache(maxsize=1024)
def stripped(raw: str) -> Stripped:
    """Removes colours, known prefixes and a web page's decoration from a line.

    Cached, as tracebacks share most of their lines.
    """
    text = plain(raw)
    if text[:1] == "`" and any(pattern.match(text, 1) for pattern in RANKS):
        text = text[1:].removesuffix("`")
    if text[:1] in " \t" and not LABEL.match(text):
        return Stripped(text)
    rank: int | None = None
    streams: list[str] = []
    for _ in range(5):
        shorter = unwrapped(text)
        for pattern in STAMPS:
            if match := pattern.match(shorter):
                shorter = shorter[match.end() :]
        for pattern in RANKS:
            if match := pattern.match(shorter):
                rank = int(match["rank"])
                shorter = shorter[match.end() :]
        for pattern in STREAMS:
            if match := pattern.match(shorter):
                streams.append(match["stream"])
                shorter = shorter[match.end() :]
        if match := GLOG.match(shorter):
            streams.append("logger")
            shorter = shorter[match.end() :]
        if shorter == text:
            break
        text = shorter
    if rank is not None:
        streams.append(f"rank {rank}")
    elif streams and streams[-1].isdigit() and len(streams[-1]) < 5:
        rank = int(streams[-1])
    return Stripped(unmarked(text), rank, " ".join(streams))


def unfolded(text: str) -> list[str]:
    """Splits a traceback that a logger folded into a line as a JSON string."""
    if "\\n" not in text or not FOLDED.search(text) or text.startswith('{"log":"'):
        return [text]
    pieces = [piece.replace('\\"', '"') for piece in text.split("\\n")]
    if text.startswith("{"):
        pieces[-1] = re.split(r'"\s*[,}]', pieces[-1])[0]
    return pieces


def common(head: bytes) -> re.Pattern[str] | None:
    """A pattern of the prefix of nearly all lines of a log, with any numbers.

    Returns:
        None for no such prefix. It ends before a rank, which `stripped` reads, or a step.
    """
    raw = decoded(head).split("\n")[:MOST_LINES]
    lines = [stripped(line).text for line in raw]
    written = [line for line in lines if line.strip()]
    if len(written) < LEAST_LINES:
        return None
    padded = _shape([line.lstrip(" ") for line in written])
    plain = _shape(written)
    if plain.strip() or not padded:
        start, shape = "", plain
    else:
        start, shape = " *", padded
    is_frames = not shape.strip() and any(line.startswith(f'{shape}File "') for line in written)
    # The indentation of a long traceback, or the margin of an exception group, is no prefix.
    if len(shape) < 2 or is_frames or shape.strip() == "|":
        return None
    return re.compile(start + re.escape(shape).replace("0", r"\d+"))


def _shape(lines: Sequence[str]) -> str:
    """The prefix of nearly all lines, with 0 for every number."""
    shapes = sorted(NUMBER.sub("0", line) for line in lines)
    few = int(len(shapes) * EXCEPTIONS)
    pairs = takewhile(
        lambda pair: pair[0] == pair[1], zip(shapes[few], shapes[-1 - few], strict=False)
    )
    shape = "".join(char for char, _ in pairs)
    shape = shape[: max(shape.rfind(end) for end in SEPARATORS) + 1]
    return _before((*RANKS, STEP), shape)


def _pattern_of(prefix: str) -> re.Pattern[str] | None:
    """A pattern of a new prefix, with any numbers.

    Returns:
        None for a progress bar or a text that is too long. A rank isn't part of it.
    """
    prefix = _before(RANKS, prefix)
    is_torn = prefix[-1:].isalnum()  # the header interrupts another rank's text
    if prefix.strip() in ("", "Original") or is_torn or len(prefix) > LONGEST or "%|" in prefix:
        return None
    return re.compile(re.sub(r"\d+", r"\\d+", re.escape(prefix)))


def _before(patterns: Iterable[re.Pattern[str]], text: str) -> str:
    """A text up to the first match of any pattern."""
    starts = (match.start() for pattern in patterns if (match := pattern.search(text)))
    return text[: min(starts, default=None)]


class FilePrefixes:
    """Strips prefixes from a file's lines, learning file-specific ones.

    A prefix is learned from the common beginning of nearly all first lines, and from the text
    before the first line of a traceback.
    """

    def __init__(self, head: bytes) -> None:
        self._learned: list[re.Pattern[str]] = [*filter(None, [common(head)])]

    def stripped(self, text: str) -> Stripped:
        """A line without its prefixes."""
        line = stripped(text)
        for number, known in enumerate(self._learned):
            if match := known.match(line.text):
                # A file-specific prefix may precede a prefix with the rank.
                inner = stripped(line.text[match.end() :])
                rank = line.rank if inner.rank is None else inner.rank
                return Stripped(inner.text, rank, f"{line.stream} {number} {inner.stream}")
        return self.stripped(text) if self._learn(line.text) else line

    def _learn(self, text: str) -> bool:
        """Learns a new prefix from a traceback's first line; returns whether it did."""
        header = HEADER.search(text)
        if not header or not header.start() or len(self._learned) >= MOST_LEARNED:
            return False
        pattern = _pattern_of(text[: header.start()])
        is_drawn = BOX_TOP.match(text.strip()) or NOTEBOOK.match(text) or is_edge(text)
        if pattern is None or is_drawn or not pattern.match(text):
            return False
        self._learned.append(pattern)
        return True
