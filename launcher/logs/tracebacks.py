"""Reads exceptions in a log: tracebacks of Python, Rich and IPython, and C++'s messages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..evidence.failure_record import Frame, Raised
from .exception_lines import (
    DOUBLED,
    LAST_WORDS,
    RAISED,
    SURELY_RAISED,
    WATCHDOG,
    BareException,
    in_python,
    rank_in,
    stated_exception,
)
from .traceback_parts import (
    ARROW,
    AT_EXIT,
    BELOW,
    BOX_END,
    BOX_TOP,
    CELL,
    CHAINED,
    FRAME,
    GLUED,
    HEADER,
    IGNORED,
    INDENT,
    MOST_ROWS,
    NOTEBOOK,
    OF_IPYTHON,
    Group,
    Message,
    as_written,
    frames_in,
    goes_on,
    row_of,
)

MOST_FRAMES = 120
AT_TOP = 5
"""Lines at the top of a log: of a title, or in which a traceback's header may be missing."""
MOST_NOISE = 40
"""Maximum other lines between two lines of a traceback."""


@dataclass(frozen=True, slots=True)
class Trace:
    """An exception in a log, with its traceback if it has one.

    Attributes:
        raised: the exception itself, with its innermost frame.
        frames: all frames, outermost first.
        chain: earlier exceptions in its chain, nearest first.
        first: number of the first line of its traceback.
        placed: number of the line with its innermost frame.
        raised_at: number of the line with its type and message.
        last: number of its last line.
        is_ignored: whether Python printed it and continued, e.g. in a destructor.
        bare: its line, if it has no traceback.
    """

    raised: Raised
    frames: tuple[Frame, ...]
    chain: tuple[Raised, ...]
    first: int
    placed: int
    raised_at: int
    last: int
    is_ignored: bool = False
    bare: BareException | None = None


@dataclass(slots=True)
class Tracebacks:
    """Reads one process's lines, and returns each completed exception.

    The state has the frames and the message so far, and the previous exception of a chain.
    """

    frames: list[Frame] = field(default_factory=list)
    box: list[str] | None = None
    indent: str = ""
    is_notebook: bool = False
    is_open: bool = False
    is_headed: bool = False
    is_ignored: bool = False
    was_ignored: bool = False
    near: bool = False
    noise: int = 0
    first: int = 0
    placed: int = 0
    margin: int = 0
    raised_at: int = 0
    last: int = 0
    message: Message | None = None
    bare: BareException | None = None
    done: Trace | None = None
    chained: Trace | None = None
    outer: Trace | None = None
    was_handled: bool = False
    group: Group = field(default_factory=Group)

    @property
    def wants_more(self) -> bool:
        """Whether the next line may belong to an unfinished traceback."""
        return self.is_open or self.message is not None or self.box is not None

    def cut(self) -> tuple[int, int, tuple[Frame, ...]] | None:
        """First line, last frame's line, and frames of a traceback still without its exception.

        Without a header, only a traceback at the log's beginning counts: others are printed stacks.
        """
        boxed = tuple(frame for _, frame in frames_in(self.box or ()))
        is_cut = (self.is_open or self.box is not None) and not (self.message or self.was_ignored)
        frames = (*self.frames, *boxed)
        if not (is_cut and frames and (self.is_headed or self.first <= AT_TOP)):
            return None
        return self.first, self.placed + len(self.box or ()), frames

    def has_just_raised(self, number: int) -> bool:
        """Whether a line is an exception without a traceback."""
        return self.bare is not None and self.raised_at == number

    def feed(self, number: int, text: str) -> tuple[bool, Trace | None]:
        """Reads a line; returns whether it is part of a traceback, and a completed exception."""
        plain = self.group.plain(text)
        return (True, None) if plain is None else self._read(number, plain)

    def _read(self, number: int, text: str) -> tuple[bool, Trace | None]:
        if self.box is not None:
            return True, self._read_box(number, text)
        if self.wants_more:
            text = text.removeprefix(self.indent)
        if self.message is not None:
            if self.message.takes(text):
                self.last = number if text.strip() else self.last
                return True, None
            self._close()
        if not text.strip():
            return self.is_open, None
        if CHAINED.match(text.strip()):
            self.chained, self.done = self.done, None
            self.was_handled = text.lstrip().startswith("During")
            return True, None
        done = self._flush()
        if HEADER.search(text):
            if done is not None and _is_quoted(text, done):
                self.outer, done = done, None
            self._open(number, is_headed=True)
            self.indent = indent[0] if (indent := INDENT.match(text)) else ""
            self.is_notebook = NOTEBOOK.match(text) is not None
            if BOX_TOP.match(text.strip()):
                self.box = []
            return True, done
        return self._takes(number, text), done

    def _takes(self, number: int, text: str) -> bool:
        """Reads a line other than a header; returns whether it is part of a traceback."""
        if IGNORED.match(text):
            self.is_ignored = True
            return True
        if place := FRAME.match(text):
            if not self.is_open:
                self._open(number)
            function = (place["function"] or "").strip()
            name, _, rest = function.partition(" ")  # of a copy in one line
            function = name if GLUED.match(rest) else function
            self._frame(Frame(place["file"], int(place["line"]), function, ""))
            self.placed, self.margin = number, len(text) - len(text.lstrip())
            return function != name or not rest or self._takes_inside(number, rest)
        if OF_IPYTHON.match(text) and not self.is_open:
            self._open(number)
            self.is_notebook = True
        if ended := LAST_WORDS.match(text):
            self._open(number)
            self._raise(number, ended["kind"].replace("::", "."), ended[0])
            return True
        if (watchdog := WATCHDOG.match(text)) and not self.is_open:
            rank = rank_in(text[: watchdog.start("message")])
            kind = "torch.distributed.DistBackendError"
            self._say(number, BareException(kind, watchdog["message"], is_severe=True, rank=rank))
            return True
        if double := DOUBLED.match(text):
            if not self.is_open:
                self._open(number)
            kind, message = double["kind"] or double["other"], double["message"] or double["rest"]
            self._raise(number, kind, message or "")
            return True
        if self.is_open:
            return self._takes_inside(number, text)
        if bare := stated_exception(text):
            self._say(number, bare)
        return bare is not None

    def end(self) -> Trace | None:
        """Completes an unfinished exception at the end."""
        if self.box is not None:
            self._unbox()
        if self.message is None and self.is_open and (raised := as_written(self.frames)):
            self._raise(self.placed, *raised)
        if self.message is not None:
            self._close()
        else:
            self._break_off()
        return self._flush()

    def _open(self, number: int, *, is_headed: bool = False) -> None:
        self.frames, self.message, self.is_headed = [], None, is_headed
        self.is_open, self.near, self.noise, self.first = True, True, 0, number
        self.placed = number
        self.bare, self.indent = None, ""
        self.was_ignored, self.is_ignored = self.is_ignored, False

    def _takes_inside(self, number: int, text: str) -> bool:
        """Reads a line after a header or a frame: source text, the exception, or another text."""
        if self.is_notebook and self._is_of_cell(number, text):
            return True
        if (glued := GLUED.match(text)) and self._takes_source(glued["source"]):
            text = glued["raised"]
        inner = text.lstrip(" ")
        is_outside = self.frames and len(text) - len(inner) < max(self.margin, 2)
        if self.near and is_outside and SURELY_RAISED.match(inner):
            text = inner
        if text[0] in " \t":
            self._takes_source(text.strip())
            return self.near
        pattern = RAISED if self.near else SURELY_RAISED
        raised = pattern.match(text)
        if raised and (self.frames or SURELY_RAISED.match(text)):
            last = self.frames[-1].source if self.frames else ""
            is_mute = raised["message"] is None and last.startswith("assert ")
            self._raise(number, raised["kind"], raised["message"] or "", is_mute=is_mute)
            return True
        self.near = False
        self.noise += 1
        if self.noise > MOST_NOISE:
            self._break_off()
        return False

    def _takes_source(self, text: str) -> bool:
        """Takes a text as the last frame's source line, unless it has one; returns whether so."""
        is_new = self.near and self.frames and not self.frames[-1].source and set(text) - set("^~ ")
        if is_new:
            self.frames[-1] = replace(self.frames[-1], source=text)
        return bool(is_new)

    def _break_off(self) -> None:
        """Drops a traceback without an end, keeping a complete exception before it."""
        self.done = self.outer or self.chained or self.done
        self.is_open, self.frames = False, []
        self.chained = self.outer = None

    def _is_of_cell(self, number: int, text: str) -> bool:
        """Whether a line is a frame in IPython's format, or one of the source lines around it."""
        if cell := CELL.match(text):
            function = cell["function"] or "<module>"
            self.frames.append(Frame(cell["file"], int(cell["line"] or 0), function, ""))
            self.placed, self.near, self.noise = number, True, 0
            return True
        if (arrow := ARROW.match(text)) and self.frames:
            frame = self.frames[-1]
            self.frames[-1] = replace(
                frame, line=int(arrow["line"]), source=arrow["source"].strip()
            )
            return True
        if self.frames and goes_on(self.frames[-1].source) and (below := BELOW.match(text)):
            frame = self.frames[-1]
            self.frames[-1] = replace(frame, source=f"{frame.source}{below['source']}")
        return text[0] == " "

    def _frame(self, frame: Frame) -> None:
        self.frames.append(frame)
        del self.frames[:-MOST_FRAMES]
        self.near, self.noise = True, 0

    def _raise(self, number: int, kind: str, message: str, *, is_mute: bool = False) -> None:
        is_spoken = self.bare is not None and self.bare.is_spoken
        self.message = Message(kind, [message], is_spoken=is_spoken, is_mute=is_mute)
        self.raised_at = self.last = number
        self.is_open = False

    def _say(self, number: int, bare: BareException) -> None:
        self._open(number)
        self.bare = bare
        self._raise(number, bare.kind, bare.message)

    def _close(self) -> None:
        """Completes the exception; a following exception may still be chained to it."""
        assert self.message is not None, "only called with an exception"
        frame = self.frames[-1] if self.frames else None
        raised = Raised(self.message.kind, self.message.text, frame)
        chain = in_python(raised)
        if self.chained is not None:
            before = replace(self.chained.raised, was_handled=self.was_handled)
            chain = (before, *self.chained.chain)
            self.first = min(self.first, self.chained.first)
        self.done = Trace(
            raised,
            tuple(self.frames),
            chain,
            self.first,
            self.placed,
            self.raised_at,
            self.last,
            self.was_ignored or any(frame.function in AT_EXIT for frame in self.frames[:1]),
            self.bare,
        )
        if self.outer is not None:
            # A data loader worker's exception, quoted in the waiting process's message.
            chain = (self.done.raised, *self.done.chain)
            self.done = replace(self.outer, chain=chain, last=self.last)
        self.chained, self.outer, self.message, self.frames = None, None, None, []

    def _flush(self) -> Trace | None:
        done, self.done = self.done, None
        return done

    def _read_box(self, number: int, text: str) -> Trace | None:
        """Reads a line of one of Rich's boxes."""
        assert self.box is not None, "only called inside a box"
        if BOX_END.match(text.strip()):
            self._unbox()
            self.last = number
            return None
        row = row_of(text)
        if row is None or len(self.box) > MOST_ROWS:
            self._unbox()
            return self.feed(number, text)[1]
        self.box.append(row)
        return None

    def _unbox(self) -> None:
        """Takes the frames out of a box."""
        for index, frame in frames_in(self.box or ()):
            self._frame(frame)
            self.placed = self.first + 1 + index
        self.box = None
        self.near = True


def _is_quoted(header: str, before: Trace) -> bool:
    """Whether a traceback is part of the message of the exception before it.

    E.g. a data loader worker's ("Original Traceback"), or one behind a colon (Ray's imports).
    """
    return header.lstrip().startswith("Original ") or before.raised.message.endswith(":")
