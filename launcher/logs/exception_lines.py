"""Recognizes lines with an exception's type and message, possibly after a logger's header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ..evidence.failure_record import Raised
from .plain import LABEL, NAMED

KINDS = (
    r"Error|Exception|Interrupt|Exit|Iteration|Timeout|Failure|Fault|Mismatch|OutOfMemory|Empty|Full"
    r"|Group|Cancelled|Refused|NotFound|Invalid"
)
RAISED = re.compile(
    r"(?P<kind>(?=\w*[A-Z.])(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\.<locals>\.\w+)?)"
    r"(?:: ?(?P<message>.*))?$"
)
"""The line below a traceback's frames, but not the rest of a cut name."""
SURELY_RAISED = re.compile(
    rf"(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:{KINDS}))(?:: ?(?P<message>.*))?$"
)
DOUBLED = re.compile(
    rf"(?P<kind>(?:[A-Za-z_]\w{{0,40}}\.)*[A-Z]\w{{0,40}}?(?:{KINDS}))"
    r"(?:(?:: ?)?(?P=kind))+(?:: ?)*(?P<message>.*?)[: ]*$"
    r"|(?P<other>[A-Z]\w{2,40}): (?P=other)(?P<rest>(?!:).*)$"
)
"""An exception's type printed by two ranks at once, in alternating pieces."""
LAST_WORDS = re.compile(r"terminate called after throwing an instance of '(?P<kind>[^']+)'")
WHAT = re.compile(r"\s*what\(\): *(?P<message>.*)")
BARE = re.compile(
    r"(?<![\w.'\"`(])(?!Conda)(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Timeout"
    rf"|OutOfMemory|Fault)|Exception(?=: )|SystemExit|(?:[A-Za-z_]\w*\.)+[A-Z]?\w*(?:{KINDS}))"
    r"(?:: ?(?P<message>.*))?$"
)
"""An exception's type anywhere in a line, with the text after it, except conda's shell errors."""
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
    r"The client socket has failed to connect to any network address of ": (
        "torch.distributed.DistNetworkError"
    ),
    r"LLVM ERROR: ": "Abort",
    r"e! +Error: CUDNN_STATUS_": "RuntimeError",
    r"[\w/.-]+\.(?:cc|cpp|cu):\d+: +Check failed: ": "RuntimeError",
    r"The size of tensor a \(\d+\) must match": "RuntimeError",
    r"mat1 and mat2 shapes cannot be multiplied": "RuntimeError",
    r"(?:\w+\.)*\w+\(\) got an unexpected keyword argument '\w+'": "TypeError",
    r"NCCL error in: \S+:\d+, .*NCCL version \d": "torch.distributed.DistBackendError",
    r"Error\(s\) in loading state_dict for \w+:": "RuntimeError",
    r"[45]\d\d (?:Client|Server) Error: .* for url: ": "requests.exceptions.HTTPError",
}
"""Messages logged without the type that Python raises them with: TORCH_CHECK in
torch_npu and in c10/cuda/CUDAException.cpp, torch/csrc/distributed/c10d/socket.cpp, LLVM's
report_fatal_error, cuDNN's log, requests' Response.raise_for_status, glog's CHECK, Python's on
arguments."""
ANY_UNTYPED = re.compile("|".join(f"({pattern})" for pattern in UNTYPED))
_KINDS = tuple(UNTYPED.values())
OF_PYTHON = (
    r"python[\d.]*(?:\.exe)?: (?:Error while finding module|No module named |can't open file )"
)
INTERPRETER = re.compile(
    r"(?:[^:'\"]*/|[A-Za-z]:[^:'\"]*\\)?python[\d.]*(?:\.exe)?: (?P<said>"
    r"Error while finding module specification for '[^']*' \((?P<kind>\w+): .*\)"
    r"|No module named [\w.'-]+"
    r"|(?P<is_file>can't open file )'[^']+': \[Errno \d+\] .*)$"
)
"""The interpreter's messages if it can't start a script or module (Modules/main.c, runpy)."""
SEVERE = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|Uncaught|Unhandled|UNCAUGHT)\b|^Error:|(?:^|\[)[EF]\d{0,4} "
    r"|,\d{3} [EFC] \d+ \d+\]"
)
MILD = re.compile(r"WARN|Warning|INFO|DEBUG|TRACE\b|\[[WID]\d{0,4} |^[WID](?:\d{1,4} | (?=[\d\[]))")
LONGEST_HEADER, LONGEST_LINE = 200, 4000
WORD = re.compile(r"\[[^\[\]]*\]|\([^()]*\)|[^\s\[\]()|]+")
CAUGHT = re.compile(r"(?:Exception|Error|Failed)(?: \w+){1,6}: ")
"""A program's report on a caught exception."""
OF_HEADER = re.compile(
    r"\[.*|\(.*|[-:]+|\S*[\d_./].*|[A-Z][a-z]{2},?|(?:ERROR|CRITICAL|FATAL|UNCAUGHT)\S*|Error:"
    r"|(?:Uncaught|Unhandled|[Ee]xception)\W?"
)
"""A word of a logger's header, not of a sentence: a time, a source location, a severity."""
NAME = re.compile(r"(?<=[-|] )\w+ (?=[-|] )")
"""A logger's name between dashes."""
SPOKEN = re.compile(
    rf"(?<![A-Za-z0-9_.])(?!Conda)(?P<kind>{NAMED})(?:[`'\"*]*: ?(?P<message>.*)"
    r"|\((?P<quote>['\"])(?P<shown>.*)(?P=quote),?\).*"
    r"|[`'\"*]* \((?P<within>(?!.*\b(?:happens|only|GPUs?|see|when|if|like)\b)"
    r"[^()]*[a-z]{2} [^()]*)\)[.,!?]*|[`'\"*.,!?)\]]*)$"
)
"""An exception mentioned in a sentence: its name with a message, as a value, or at the end."""
OF_CODE = re.compile(
    r"\b(?:except|raise|catch|class|import|isinstance)\b[^:]*$"
    r"|\bif (?!you(?:'ve| have)\b)[^:]*$|^\s*[{\[]['\"{]|^FAILED \S+::"
)
"""Text before an exception's name in source code, data or a test report."""
HAPPENS = re.compile(
    r"\b(?:fail(?:s|ed|ing|ure)?|errors?|exceptions?|raise|raises|raised|throws|threw|crash\w*|got|gets?"
    r"|getting|see|seeing|hits?|encounter\w*|receiv\w*|occur\w*|stop(?:s|ped)|dies|died|abort\w*|exits"
    r"|exited|caused|shows|says|lead(?:s|ing)? to|led to|result(?:s|ed) in"
    r"|runs? into|ran into|facing|faced)\b"
    r"|\u62a5\u9519|\u9519\u8bef|\u5f02\u5e38|\u51fa\u73b0|\u9047\u5230|\u629b\u51fa|\u63d0\u793a"
    r"|\u5931\u8d25|: *$",
    re.IGNORECASE,
)
"""Words of a sentence that reports an exception, or a label's colon."""
PROSE = re.compile(
    r" (?=(?:when|while|whenever|after|and (?:it|then|the)|but|every time)\b|\|(?: |$))"
    r"|(?=[\u3002\uff0c\uff1b\uff01\uff1f])"
)
"""The end of a message within a sentence."""
CLOSING = {"`": "`", '"': '"', "'": "'", "(": ")", "[": "]"}
HANDLED = re.compile(
    r"\b(?:will be (?:\w+ )?(?:skipped|selected|deleted|dropped|ignored)|skipp(?:ed|ing)"
    r"|falling back|retrying|ignoring (?:this|it)|trying (?:again|anew)|thrown while requesting"
    r"|using \S+(?: \S+){0,4} instead)\b",
    re.IGNORECASE,
)
"""Words of a program that continues after an exception."""
CONTINUES = re.compile(
    r"\btraining (?:still )?(?:continues|goes on|keeps going)\b"
    r"|\u80fd(?:\u591f)?\u6b63\u5e38\u8bad\u7ec3",
    re.IGNORECASE,
)
ON_ONE = re.compile(r"\b(?:gpus?|cards?|single|one|nodes?)\b|[\u5361\u5355]", re.IGNORECASE)
"""Words of a person below an exception: that the training goes on, or of another run that does."""
PARTING = re.compile(r"(?<=[:\]|)\d-]) +")
MARKS = "`*_\"'>([ \t"
MOST_PARTS, MOST_NAMED = 10, 80
"""Maximum parts of a header; maximum characters before an exception without a message."""
RANK = re.compile(r"\brank[=: ]?(\d+)\b", re.IGNORECASE)
WATCHDOG = re.compile(r".*\bwatchdog thread terminated with exception: (?P<message>.*)")
"""The watchdog's message before it ends the process, followed by the exception's text."""
OF_CPP = {
    "out_of_range": "IndexError",
    "invalid_argument": "ValueError",
    "bad_alloc": "MemoryError",
    "Error": "RuntimeError",
    "system_error": "OSError",
}
"""Python's types for C++'s, if the names differ and it isn't RuntimeError: pybind11's
translate_exception, and c10::Error in torch/csrc/Exceptions.h."""


@dataclass(frozen=True, slots=True)
class BareException:
    """An exception without a traceback.

    Attributes:
        kind: the name of its type.
        message: its text.
        is_severe: whether it was logged as an error, or is uncaught.
        rank: the rank in the logger's header.
        is_spoken: whether it is part of a sentence or quoted.
    """

    kind: str
    message: str
    is_severe: bool = False
    rank: int | None = None
    is_spoken: bool = False


def stated_exception(text: str) -> BareException | None:
    """The exception that a line reports as an event or mentions in a sentence.

    A space or a logger's header may precede an event.
    """
    if text[:1].isspace() and (text[:1] != " " or text[1:2].isspace()):
        return _spoken(text)
    if match := next(filter(None, map(INTERPRETER.match, (text, *behind_header(text)))), None):
        missing = "FileNotFoundError" if match["is_file"] else "ModuleNotFoundError"
        return BareException(match["kind"] or missing, match["said"], is_severe=True)
    for pattern in (BARE, ANY_UNTYPED):
        match = pattern.search(text, 0, LONGEST_LINE)
        if match is not None and _is_header(header := text[: match.start()]):
            kind = match["kind"] if pattern is BARE else _KINDS[(match.lastindex or 1) - 1]
            message = (match["message"] or "") if pattern is BARE else text[match.start() :]
            return BareException(kind, message, SEVERE.search(header) is not None, rank_in(header))
    return _spoken(text)


def message_of(spoken: re.Match[str]) -> str:
    """The message beside an exception's name in a sentence; empty if there is none."""
    return spoken["message"] or spoken["shown"] or spoken["within"] or ""


def _spoken(text: str) -> BareException | None:
    """The exception in a sentence, unless handled, in a warning, or in code."""
    match = SPOKEN.search(text, 0, LONGEST_LINE)
    if match is None:
        return None
    header, message = text[: match.start()], message_of(match)
    if MILD.search(header) or OF_CODE.search(header) or HANDLED.search(header):
        return None
    is_logged = header[:1] == "[" and SEVERE.search(header) is None
    words = header.strip(MARKS)
    if words and (is_logged or not HAPPENS.search(header)):
        return None
    if not message and len(header) > MOST_NAMED:
        return None
    cut = closing(message, header[-1:]) if header[-1:] in CLOSING else None
    is_quoted = cut is not None
    if cut is None:
        cut = end.start() if (end := PROSE.search(message)) else len(message)
    said, after = message[:cut], message[cut:].strip()
    if HANDLED.search(after):
        return None
    if after and not is_quoted:
        said = f"{said}\n{after}"
    return BareException(match["kind"], said.rstrip(), rank=rank_in(header), is_spoken=True)


def closing(text: str, opening: str) -> int | None:
    """The position of the closing quote or bracket, skipping nested pairs."""
    end, depth = CLOSING[opening], 1
    for place, char in enumerate(text):
        if char in (opening, end):
            is_inner = char == opening and (
                opening != end or text[place - 1 : place] in ("", " ", "(")
            )
            depth += 1 if is_inner else -1
        if not depth:
            return place
    return None


def behind_header(text: str) -> Iterator[str]:
    """A line's text after each possible header: a time, a place, a label."""
    label = LABEL.match(text)
    begin = label.end() if label else 0
    if label:
        yield text[begin:]
    for separator in islice(PARTING.finditer(text, begin, LONGEST_HEADER), MOST_PARTS):
        header = text[begin : separator.start()]
        if not _is_header(header):
            return
        yield text[separator.end() :]


def _is_header(text: str) -> bool:
    """Whether a text before an exception is empty or a logger's header, but not a warning's."""
    if len(text) > LONGEST_HEADER or MILD.search(text):
        return False
    words = WORD.findall(NAME.sub("", text))
    return CAUGHT.fullmatch(text) is not None or all(map(OF_HEADER.fullmatch, words))


def rank_in(text: str) -> int | None:
    """The rank in a logger's header."""
    match = RANK.search(text)
    return int(match[1]) if match else None


def in_python(raised: Raised) -> tuple[Raised, ...]:
    """The exception that aborted a C++ process, as Python would have raised it.

    Entries use that name, without the watchdog's prefix.
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
