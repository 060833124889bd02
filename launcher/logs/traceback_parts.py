"""The parts of a traceback in a log: its lines, its message, a group's margin, Rich's boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..evidence.failure_record import Frame
from .exception_lines import LAST_WORDS, SURELY_RAISED, WHAT

HEADER = re.compile(r"Traceback \(most recent call last\)")
FRAME = re.compile(
    r'[\s>]*(?:F\w{2,4} "|(?:File )?(?=[\w./~-]+\.py"?, line \d+, in ))'
    r'(?P<file>[^"]+?)"?, line (?P<line>\d+)(?:, in (?P<function>.+))?$'
)
"""A frame; in a copy it may be misspelt, or lack its quotes or, as the first, its beginning."""
GLUED = re.compile(
    r"\s*(?P<source>(?:[^'\"]|'[^']*'|\"[^\"]*\")+(?<=['\")\]]))"
    r" (?P<raised>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): \S.*)"
)
"""A source line, and the exception in the same line of a copy."""
CHAINED = re.compile(
    r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):?$"
)
INDENT = re.compile(r"\s*")
"""Indentation of a quoted traceback."""
IGNORED = re.compile(
    r"Exception ignored in|Error in atexit\._run_exitfuncs"
    r"|Exception in thread .* \(most likely raised during"
)
AT_EXIT = frozenset({"_exitfunc", "_run_finalizers"})
"""Functions of weakref and multiprocessing that print exceptions at the interpreter's exit."""
NOTEBOOK = re.compile(r"[A-Za-z_][\w.]* {2,}Traceback \(most recent call last\)$")
CELL = re.compile(
    r"(?:File )?(?P<file>(?:[A-Za-z]:)?[^\s:]+\.pyx?|<[^>]+>|(?:Cell|Input) In ?\[\d+\])"
    r"(?::(?P<line>\d+)|, line \d+)?(?:,? in (?:\w+\.)*(?P<function>\w+|<[^>]*>).*)?$"
)
"""A frame in IPython's format."""
OF_IPYTHON = re.compile(r"File \S+\.py:\d+, in \w")
"""The beginning of such a frame, possibly of a traceback that lacks its header."""
ARROW = re.compile(r"-+> *(?P<line>\d+) (?P<source>.*)")
BELOW = re.compile(r" +\d+ +(?P<source>\S.*)")
"""A source line after the one that an arrow points to."""
WRITTEN = re.compile(r"raise (?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)\((?P<text>.*)", re.DOTALL)
LITERAL = re.compile(r"(?P<quote>['\"])(?P<said>.*?)(?P=quote)")
ENDS_MESSAGE = re.compile(
    r"Traceback \(most|={10}|-{10}|\*{5}|\[\d{4}-\d\d-\d\d[ T]|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"
    r"|[IWEF]\d{3,4} \d\d:|\[[IWEF]\d{0,4} |(?:ERROR|WARNING|INFO|DEBUG|CRITICAL)[: ]"
    r"|(?:[\w ./()-]{1,40}: *)?\s*\d+%\|"
    r"|```|\$ \S|\{'(?:\w*loss|\w*runtime|eval_|grad_norm|learning_rate|epoch|rewards?)"
    r"|srun: |slurmstepd: |\[(?:safe-launch|HyperPodElasticAgent|default|FailurePolicy)\]"
    r"|Fatal Python error|terminate called|Exception ignored"
    r"|Process \S+:|wandb: |Time to load |Loading \w+:|[Ee]poch \d|[Ss]tep \d|INFO:|<frozen "
    r"|Set the environment variable HYDRA_FULL_ERROR|\+{1,3} [a-z_./][\w./-]*(?: |$)"
    r"|(?:\(\S+\) )?\[?[\w.-]+@[\w.-]+[: ~][^\s]*\]?[$#%>] |(?:\(\S+\) )?[$%] \S|>>> "
    r"|[\U0001f300-\U0001faff]"
)
"""Beginnings of lines that aren't part of an exception's message, as a shell's prompt or trace and
a program's pictograph."""
GOES_ON = re.compile(
    r"\s|E[A-Z0-9]\d{4}|Last error|-- Process \d+ terminated|\[ERROR\] \d{4}-"
    r"|Exception raised from|ncclS|ncclI|Error"
    r"|\(?[A-Z0-9][a-z]*\)? [\w`'(]"
)
"""Beginnings of lines that continue a message after an empty line."""
OF_PERSON = re.compile(
    r"\b(?:I|I'm|I've|[Mm]y|[Oo]ur|anyone|[Tt]hanks)\b|\?\s*$"
    r"|^(?:Any|After|Here|Does|Is|How|Why)\b"
)
"""A sentence of somebody who pastes a message."""
OF_PYTHON = re.compile(
    r"\[Errno -?\d+\] [^:]+: '[^']*'(?: -> '[^']*')?$|No module named '[^']*'$"
    r"|(?:module )?'[\w.]+'(?: object)? has no attribute '\w+'$"
    r"|'\w+' object is not (?:callable|iterable|subscriptable)$|name '\w+' is not defined$"
    r"|[\w.<>]+\(\) got an unexpected keyword argument '\w+'$"
    r"|(?:list|tuple|string) index out of range$"
)
"""Python's messages, complete in one line."""


MOST_LINES = 60


@dataclass(slots=True)
class Message:
    """An exception's type, and its message so far.

    Attributes:
        kind: the type.
        lines: the message's lines.
        is_spoken: whether the exception is only named in a sentence, which its line ends.
        is_mute: whether it is a bare `assert`, which has no message.
        is_blank: whether an empty line has followed.
    """

    kind: str
    lines: list[str]
    is_spoken: bool
    is_mute: bool
    is_blank: bool = False

    @property
    def text(self) -> str:
        """The whole message."""
        lines = list(self.lines)
        while lines and not lines[-1].strip():
            lines.pop()
        return "\n".join(lines).strip("\n")

    def takes(self, text: str) -> bool:
        """Whether a line continues the message; adds it if so."""
        first = self.lines[0]
        if (first and self.is_spoken) or OF_PYTHON.match(first):
            return False
        if not first and text.startswith("-- Process "):
            return False  # of torch's `spawn`, which another exception follows
        if what := WHAT.match(text):
            self.lines.append(f"what(): {what['message']}")
            return True
        if not text.strip():
            was_blank, self.is_blank = self.is_blank, True
            return not was_blank
        if len(self.lines) >= MOST_LINES or ENDS_MESSAGE.match(text) or HEADER.search(text):
            return False
        if CHAINED.match(text.strip()) or FRAME.match(text) or LAST_WORDS.match(text):
            return False
        if first and not text.replace(first, "").strip(": "):
            return True  # the other ranks' copies
        is_other = not GOES_ON.match(text) or OF_PERSON.search(text)
        if self.is_mute or (self.is_blank and is_other):
            return False
        # E.g. "backend='inductor' raised:", with the inner exception in the next line.
        is_named = self.lines[-1].endswith(":") and not self.is_blank
        if SURELY_RAISED.match(text) and not (is_named or text.startswith("nccl")):
            return False
        if not text.startswith(("frame #", "<omitting")):
            self.lines.append(text)
        return True


WHOLE = "Traceback (most recent call last)"
OF_GROUP = f"Exception Group {WHOLE}"
OPENS = f"+ {OF_GROUP}"
MARGIN = re.compile(r"\s*(?:\| ?|(?P<next>\+-\+?)-*)")
"""The left edge of a group's lines, as `traceback` draws it."""
GROUP_LINE = re.compile(r"(?:[\w.]+\.)?(?:Base)?ExceptionGroup: .* \(\d+ sub-exceptions?\)$")
"""The message of a group itself, which only counts its exceptions."""


def is_edge(header: str) -> bool:
    """Whether a traceback's first line is within a group or begins one."""
    return OPENS in header or header.lstrip().startswith((f"| {WHOLE}", f"| {OF_GROUP}"))


@dataclass(slots=True)
class Group:
    """The exception group that is being read.

    Attributes:
        is_open: whether the lines read last belong to a group.
        is_over: whether its first exception is complete.
    """

    is_open: bool = False
    is_over: bool = False

    def plain(self, text: str) -> str | None:
        """A line without the group's margin; None if it adds nothing to the first exception.

        The frames that lead to the group come before those within it.
        """
        if OPENS in text:
            self.is_open, self.is_over = True, False
            return text.replace(OPENS, WHOLE, 1)
        if not self.is_open:
            return text
        margin = MARGIN.match(text)
        if margin is None:  # a launcher's prefix may have hidden the outermost
            self.is_open = not (self.is_over or text.startswith(WHOLE))
            return None if GROUP_LINE.match(text) else text
        inner = text[margin.end() :]
        self.is_over = self.is_over or margin["next"] == "+-"
        is_noise = margin["next"] or inner.startswith((WHOLE, OF_GROUP)) or GROUP_LINE.match(inner)
        return None if self.is_over or is_noise else inner


BOX_TOP = re.compile(r"[╭┏+][─━-]+ *Traceback \(most recent call last\) *[─━-]*[╮┓+]?$")
BOX_LINE = re.compile(r"[│┃|](?P<text>.*?)[│┃|]?$")
BOX_END = re.compile(r"[╰┗+][─━-]+[╯┛+]?$")
BOX_PLACE = re.compile(r"(?P<file>[^\s:]+\.\w+): ?(?P<line>\d+) in (?P<function>[\w<>.]+)")
BOX_SOURCE = re.compile(r"\s*❱ *\d+ (?P<source>.*)")
OTHER_SOURCE = re.compile(r"\s*\d+ [ │]")
MOST_ROWS = 2000


def row_of(text: str) -> str | None:
    """The text between a box's borders; None for a line that isn't part of a box."""
    inner = BOX_LINE.match(text.strip())
    return inner["text"] if inner else None


def frames_in(rows: Sequence[str]) -> Iterator[tuple[int, Frame]]:
    """The frames in a box, with the index of the row of each, outermost first."""
    index, frame = -1, None
    for number, row in enumerate(rows):
        if source := BOX_SOURCE.match(row):
            if frame is not None:
                frame = replace(frame, source=source["source"].strip(" │"))
            continue
        following = rows[number + 1] if number + 1 < len(rows) else ""
        if place := _place(row, following):
            if frame is not None:
                yield index, frame
            index = number
            frame = Frame(place["file"], int(place["line"]), place["function"], "")
    if frame is not None:
        yield index, frame


def _place(row: str, following: str) -> re.Match[str] | None:
    """A frame's place in a row; its path may continue in the next row."""
    row, following = row.strip(), following.strip()
    if not row or OTHER_SOURCE.match(row):
        return None
    if whole := BOX_PLACE.match(row):
        return whole
    if BOX_PLACE.match(following):
        return None
    return BOX_PLACE.match(f"{row}{following}") or BOX_PLACE.match(f"{row} {following}")


def goes_on(source: str) -> bool:
    """Whether a statement that raises ends on a later line."""
    return source.startswith("raise ") and source.count("(") > source.count(")")


def as_written(frames: Sequence[Frame]) -> tuple[str, str] | None:
    """The exception and the text of the last frame's statement, if it raises with a literal.

    A copy of a traceback may end there, before the exception itself.
    """
    match = WRITTEN.match(frames[-1].source) if frames else None
    said = "".join(part["said"] for part in LITERAL.finditer(match["text"])) if match else ""
    return (match["kind"], said) if match and said else None
