"""Lines that state an exception's type and message, alone or behind a logger's header."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..evidence.failure_record import Raised

KINDS = (
    r"Error|Exception|Interrupt|Exit|Iteration|Timeout|Failure|Fault|Mismatch|OutOfMemory|Empty|Full"
    r"|Group|Cancelled|Refused|NotFound|Invalid"
)
RAISED = re.compile(
    r"(?P<kind>(?=\w*[A-Z.])(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\.<locals>\.\w+)?)"
    r"(?:: ?(?P<message>.*))?$"
)
"""The line below a traceback's frames; the rest of a name that was torn apart is none."""
SURELY_RAISED = re.compile(
    rf"(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:{KINDS}))(?:: ?(?P<message>.*))?$"
)
DOUBLED = re.compile(
    rf"(?P<kind>(?:[A-Za-z_]\w{{0,40}}\.)*[A-Z]\w{{0,40}}?(?:{KINDS}))"
    r"(?:(?:: ?)?(?P=kind))+(?:: ?)*(?P<message>.*?)[: ]*$"
    r"|(?P<other>[A-Z]\w{2,40}): (?P=other)(?P<rest>(?!:).*)$"
)
"""The type of an exception that two ranks printed at once, in alternating pieces."""
LAST_WORDS = re.compile(r"terminate called after throwing an instance of '(?P<kind>[^']+)'")
WHAT = re.compile(r"\s*what\(\): *(?P<message>.*)")
BARE = re.compile(
    r"(?<![\w.'\"`(])(?!Conda)(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Timeout"
    rf"|OutOfMemory|Fault)|Exception(?=: )|SystemExit|(?:[A-Za-z_]\w*\.)+[A-Z]?\w*(?:{KINDS}))"
    r"(?:: ?(?P<message>.*))?$"
)
"""An exception's type anywhere in a line, with what follows it; conda's are a shell's."""
UNTYPED = {
    r"(?:\w+:\S+:\d+ )?(?:NPU|OPS|HCCL) (?:function )?error[:,].*error code is \d": "RuntimeError",
    r"E[A-Z0-9]\d{4}: ": "RuntimeError",
    r"(?:CUDA|HIP|CUDA driver) error: ": "RuntimeError",
    r"The client socket has timed out after \d+m?s while trying to connect to ": (
        "torch.distributed.DistNetworkError"
    ),
    r"The server socket has failed to listen on any local network address": (
        "torch.distributed.DistNetworkError"
    ),
    r"e! +Error: CUDNN_STATUS_": "RuntimeError",
    r"[45]\d\d (?:Client|Server) Error: .* for url: ": "requests.exceptions.HTTPError",
}
"""Messages that stand in logs without the type with which Python raises them: TORCH_CHECK in
torch_npu and in c10/cuda/CUDAException.cpp, torch/csrc/distributed/c10d/socket.cpp, cuDNN's own
log, requests' Response.raise_for_status."""
ANY_UNTYPED = re.compile("|".join(f"({pattern})" for pattern in UNTYPED))
_KINDS = tuple(UNTYPED.values())
OF_PYTHON = r"python[\d.]*: (?:Error while finding module|No module named |can't open file )"
INTERPRETER = re.compile(
    r"(?:\S*/)?python[\d.]*: (?P<said>"
    r"Error while finding module specification for '[^']*' \((?P<kind>\w+): .*\)"
    r"|No module named [\w.'-]+"
    r"|(?P<is_file>can't open file )'[^']+': \[Errno \d+\] .*)$"
)
"""What the interpreter says where it can't start a script or module (Modules/main.c, runpy)."""
SEVERE = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|Uncaught|Unhandled|UNCAUGHT)\b|^Error:|(?:^|\[)[EF]\d{0,4} "
)
MILD = re.compile(r"WARN|Warning|INFO|DEBUG|TRACE\b|(?:^|\[)[WID]\d{0,4} ")
LONGEST_HEADER, LONGEST_LINE = 200, 4000
WORD = re.compile(r"\[[^\[\]]*\]|\([^()]*\)|[^\s\[\]()|]+")
OF_HEADER = re.compile(
    r"\[.*|\(.*|[-:]+|\S*[\d_./].*|[A-Z][a-z]{2},?|(?:ERROR|CRITICAL|FATAL|UNCAUGHT)\S*|Error:"
    r"|(?:Uncaught|Unhandled|[Ee]xception)\W?"
)
"""A word of a logger's header: a time, a place in the source, a severity; none of a sentence."""
NAME = re.compile(r"(?<=[-|] )\w+ (?=[-|] )")
"""A logger's name between dashes."""
RANK = re.compile(r"\brank[=: ]?(\d+)\b", re.IGNORECASE)
WATCHDOG = re.compile(r".*\bwatchdog thread terminated with exception: (?P<message>.*)")
"""The watchdog's words before it ends the process; what follows is the exception's text."""
OF_CPP = {
    "out_of_range": "IndexError",
    "invalid_argument": "ValueError",
    "bad_alloc": "MemoryError",
    "Error": "RuntimeError",
    "system_error": "OSError",
}
"""Python's types for C++'s, where the names differ and it isn't RuntimeError: pybind11's
translate_exception, and c10::Error in torch/csrc/Exceptions.h."""


@dataclass(frozen=True, slots=True)
class Said:
    """An exception without a traceback.

    Attributes:
        kind: the name of its type.
        message: its text.
        is_severe: it was logged as an error, or nobody caught it.
        rank: the rank that the logger's header names.
    """

    kind: str
    message: str
    is_severe: bool = False
    rank: int | None = None


def said(text: str) -> Said | None:
    """The exception that a line states as its own event, if it does.

    In front of it may stand one space, or the header of a logger; not the words of a sentence,
    which speaks of an exception that somebody has handled.
    """
    if text[:1].isspace() and (text[:1] != " " or text[1:2].isspace()):
        return None
    if found := INTERPRETER.match(text):
        return _of_interpreter(found)
    for pattern in (BARE, ANY_UNTYPED):
        found = pattern.search(text, 0, LONGEST_LINE)
        if found is not None and _is_header(header := text[: found.start()]):
            kind = found["kind"] if pattern is BARE else _KINDS[(found.lastindex or 1) - 1]
            message = (found["message"] or "") if pattern is BARE else text[found.start() :]
            return Said(kind, message, SEVERE.search(header) is not None, rank_in(header))
    return None


def _of_interpreter(found: re.Match[str]) -> Said:
    """What Python would have raised, in the interpreter's words."""
    missing = "FileNotFoundError" if found["is_file"] else "ModuleNotFoundError"
    return Said(found["kind"] or missing, found["said"], is_severe=True)


def _is_header(text: str) -> bool:
    """Whether a text before an exception is at most a logger's header, and no warning's."""
    if len(text) > LONGEST_HEADER or MILD.search(text):
        return False
    words = WORD.findall(NAME.sub("", text))
    return all(map(OF_HEADER.fullmatch, words))


def rank_in(text: str) -> int | None:
    """The rank that a logger's header names."""
    found = RANK.search(text)
    return int(found[1]) if found else None


def in_python(raised: Raised) -> tuple[Raised, ...]:
    """The exception of which a C++ process has aborted, as Python would have raised it.

    The entries know it by that name, and without the watchdog's words in front of it.
    """
    first, _, rest = raised.message.partition("\n")
    what = WHAT.match(rest)
    if what is None or not LAST_WORDS.match(first):
        return ()
    message = rest[what.start("message") :]
    if watchdog := WATCHDOG.match(message):
        message = message[watchdog.start("message") :]
    name = raised.exception.rpartition(".")[2]
    is_named = raised.exception.startswith("c10.") and name not in OF_CPP
    return (Raised(name if is_named else OF_CPP.get(name, "RuntimeError"), message),)
