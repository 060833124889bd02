"""Removes decoration added to a log by people and web pages, such as quotation marks and wrapping.

Every search of a log uses this module's output.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from ..core.plain_json import parsed
from ..core.quotation import ANSI
from .lines import FILLER

NAMED = (
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*"
    r"(?:Error|Exception|Interrupt|Failure|Fault|Timeout|OutOfMemory|Exit)"
)
"""The name of an exception."""
STRAIGHT = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u300e\u300f", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u300c\u300d\uff02", '"'),
        **dict.fromkeys("\u00a0\u2007\u2008\u2009\u200a\u202f\u3000", " "),
        **dict.fromkeys("\u200b\u200c\u2060\ufeff", ""),
        "\uff1a": ": ",
    }
)
"""Plain characters for typographic quotes, spaces and colons."""
SPELT = re.compile(
    r"\b(?P<kind>value|type|key|index|attribute|runtime|assertion) ?error: "
    r"(?![-+]?(?:\d|\.\d|nan\b|inf\b))"
    r"|^(?P<cut>alue|ype|ey|ndex|ttribute|untime|ssertion|mport|oduleNotFound)Error: ",
    re.IGNORECASE,
)
"""An exception's name as a person spells it."""
NAMES = (
    *("ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "RuntimeError"),
    *("AssertionError", "ImportError", "ModuleNotFoundError"),
)
UNQUOTED = re.compile(r"(?<=Error: )(\w+) object has no attribute (\w+)")
"""Python's message without its quotes, as a page shows it that takes them for markup."""
RETURNED = re.compile(r"\s*\^M\s*\d+%\|.*")
"""A progress bar behind a carriage return that is spelt out."""
DOCUMENT = re.compile(r'\{(?:"[^{}]*,)?\s*"(?:log|msg|message)": ?"')
ESCAPED = re.compile(r"&(?:lt|gt|amp|quot|#x?[0-9a-fA-F]+);")
BREAK = re.compile(r"<br ?/?>\s*$")
WRAPPER = re.compile(
    r"(?:> ?)+|#{1,6} (?=\S)|\|(?: |$)| *\d{1,7}(?:\t| [|\u2502] ?)|[-*+\u2022\u00b7] |\d{1,4}[.)] "
)
"""Markup in front of a line: a quotation, a heading, a table, a number, a list."""
LISTED = re.compile(r"[-*+\u2022\u00b7] |\d{1,4}[.)] ")
LABEL = re.compile(
    r"(?:the |full |following )*(?:errors?|exception|logs?|traceback|output)"
    r"(?: message| log| is| was)*: "
    r"|\S*(?:\u62a5\u9519|\u9519\u8bef|\u5f02\u5e38)\S*: |[=~-]{2,}> +",
    re.IGNORECASE,
)
"""Words written before a message by people."""
QUOTES = ('"', "'")
MARKS = ("**", "``", "`", "__", "*", *QUOTES)
"""Marks that enclose a line, or the first and last line of a longer text."""
STATED = re.compile(
    rf'[\s`*"\'\[]*+(?:Traceback \(most|File "|{NAMED}\b|terminate called|Fatal Python error'
    r"|(?:\S*/)?python[\d.]*: )"
)
"""Beginnings of messages specific to failures."""
MARKED = re.compile(rf"(\*\*|`|__|\"|')({NAMED})(:?)\1(?=(:?))")
"""An exception's name enclosed in marks."""
BAR = re.compile(r"(?<=\S)\s+\|\s*$|^\s*\|\s*$")
MOST_PASTED = 4 << 20
"""Maximum bytes of a copied log."""
NEARLY_ALL = 0.9
WIDTHS = range(60, 251)
"""Columns at which terminals may wrap."""
LEAST_WRAPPED = 3
"""Minimum lines of exactly the maximum width to infer wrapping."""
ALIKE = 20
"""Characters that lines of one kind begin with."""
STAMP = re.compile(
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\[\d\d:\d\d:\d\d\])"
    r" (?!- |\||\[?(?:INFO|WARN|ERROR|DEBUG)\b)"
)
"""A timestamp prepended by another tool, not by the logger."""
DRAWN = re.compile(r"^[\W_]*$|[│┃╮╯|]\s*$")
"""Lines with a fixed width: rules and boxes."""
BEGINS = re.compile(r"\[|\{|\(\w+ pid=| *\d{1,4}: |\d{4}-\d\d|[IWEF]\d{4} |Traceback|  |\s*$")
FEW = 0.4
"""Maximum share of the lines after the widest that look like the beginning of a line."""


DEBUGGED = "(note: full exception trace is shown"
"""What VS Code's debugger adds to an exception's name."""


def plain(raw: str) -> str:
    """A line without colours, and without a page's or a logger's formatting."""
    text = ANSI.sub("", raw) if "\x1b" in raw else raw
    if text.startswith("Exception has occurred") and DEBUGGED in text:
        text = text[: text.index(DEBUGGED)].rstrip()
    if "^M" in text:
        text = RETURNED.sub("", text)
    if text.startswith('{"') and DOCUMENT.match(text):
        text = _message(text)
    return straight(text)


def straight(text: str) -> str:
    """Replaces typographic characters with a program's plain ones."""
    if not text.isascii():
        text = text.translate(STRAIGHT)
    if "&" in text and ESCAPED.search(text):
        text = html.unescape(text)
    return BREAK.sub("", text) if "<br" in text[-8:] else text


def unwrapped(text: str) -> str:
    """Removes leading marks of a quotation, a list or a table, or a label.

    In a list or behind a label, only if a failure follows: messages contain lists too.
    """
    match = WRAPPER.match(text)
    if match is not None and not LISTED.match(text):
        return inside(text)
    match = match or LABEL.match(text)
    return text[match.end() :] if match and STATED.match(text, match.end()) else text


def inside(text: str) -> str:
    """Removes the marks of a quotation, a list or a table, if any."""
    inner = WRAPPER.sub("", text, count=1)
    return BAR.sub("", inner) if text.startswith("|") else inner


def unmarked(text: str) -> str:
    """Removes marks around a line or around an exception's name."""
    if "`" in text or "**" in text or STATED.match(text) or SPELT.match(text):
        text = MARKED.sub(r"\2\3", text)
        text = SPELT.sub(_spelt_right, text)
        text = UNQUOTED.sub(r"'\1' object has no attribute '\2'", text)
    while (inner := _inner(text)) != text:
        text = inner
    return text


def _spelt_right(spelt: re.Match[str]) -> str:
    """An exception's name, also if a copy lacks its first letter."""
    if cut := spelt["cut"]:
        whole = (name for name in NAMES if name[1:].lower() == f"{cut}Error".lower())
        return f"{next(whole)}: "
    return f"{spelt['kind'].capitalize()}Error: "


def _inner(text: str) -> str:
    """Removes one pair of marks around a line, or an unpaired one."""
    for mark in MARKS:
        inner = enclosed(text, mark)
        if inner is None:
            inner, count = text, text.count(mark)
            if count % 2 and text.startswith(mark):
                inner = text[len(mark) :]
            elif count % 2 and text.endswith(mark):
                inner = text[: -len(mark)]
            if STATED.match(inner):
                return inner
        elif STATED.match(inner) or (mark not in QUOTES and mark not in inner):
            return inner
    return text


def enclosed(text: str, mark: str) -> str | None:
    """The text between an opening and a closing mark, if it has both."""
    inner = text[len(mark) : -len(mark)]
    is_enclosed = text.startswith(mark) and text.endswith(mark) and len(text) >= 2 * len(mark)
    return inner if is_enclosed and (inner[:1] != mark[0] or mark in QUOTES) else None


def _message(text: str) -> str:
    """The message in a line of Docker's json-file driver, or of a logger."""
    try:
        line = parsed(text)
    except ValueError:
        return text
    if not isinstance(line, dict):
        return text
    return str(line.get("log") or line.get("msg") or line.get("message") or "").rstrip("\r\n")


def restored(log: bytes) -> tuple[bytes, ...]:
    """The possible original logs: with wrapped lines joined, if any, and as it is.

    Every line keeps its number: fillers follow joined lines.
    """
    text = log.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = _without_marks([*map(straight, text.split("\n"))])
    texts = dict.fromkeys("\n".join(joined) for joined in (_join_wrapped(lines), lines))
    return tuple(candidate.encode("utf-8", "replace") for candidate in texts)


def _without_marks(lines: Sequence[str]) -> list[str]:
    """Removes indents and marks around each line or the whole."""
    lines = textwrap.dedent("\n".join(lines)).split("\n")
    written = [line for line in lines if line.strip()]
    if sum(WRAPPER.match(line) is not None for line in written) > NEARLY_ALL * len(written):
        lines = [*map(inside, lines)]
        written = [line for line in lines if line.strip()]
    if written and all(map(STAMP.match, written)):
        lines = [STAMP.sub("", line, count=1) for line in lines]
        written = [line for line in lines if line.strip()]
    for mark in MARKS:
        if None not in (enclosed(line, mark) for line in written):
            return [enclosed(line, mark) or "" for line in lines]
        if enclosed("\n".join(written), mark) is not None:
            first, last = lines.index(written[0]), lines.index(written[-1])
            lines[first] = lines[first].removeprefix(mark)
            lines[last] = lines[last].rstrip().removesuffix(mark)
    return lines


def _join_wrapped(lines: Sequence[str]) -> list[str]:
    """Joins lines wrapped by a terminal at the maximum width."""
    lengths = Counter(len(line) for line in lines if not DRAWN.search(line))
    width = max(lengths, default=0)
    if width not in WIDTHS or lengths[width] < LEAST_WRAPPED:
        return list(lines)
    widest = [(line, after) for line, after in pairwise(lines) if len(line) == width]
    begun = [BEGINS.match(after) is not None or _is_like(line, after) for line, after in widest]
    if sum(begun) > FEW * len(begun):
        return list(lines)
    result: list[str] = []
    missing = 0
    is_open = False
    for line, after in pairwise([*lines, ""]):
        if is_open:
            result[-1] += line
            missing += 1
        else:
            result += [FILLER] * missing
            missing = 0
            result.append(line)
        is_open = len(line) == width and not DRAWN.search(line)
        is_open = is_open and not (after.startswith("Traceback (") or _is_like(line, after))
    return result + [FILLER] * missing


def _is_like(line: str, after: str) -> bool:
    """Whether two lines begin alike, as those that a kernel prints once a thread."""
    return line[:ALIKE] == after[:ALIKE]
