"""The message of an exception, of which a log has one line after the other."""

from __future__ import annotations

from dataclasses import dataclass

from .exception_lines import LAST_WORDS, SURELY_RAISED, WHAT
from .traceback_lines import CHAINED, ENDS_MESSAGE, FRAME, GOES_ON, HEADER, OF_PYTHON

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
        if self.is_mute or (self.is_blank and not GOES_ON.match(text)):
            return False
        # E.g. "backend='inductor' raised:", with the inner exception in the next line.
        is_named = self.lines[-1].endswith(":") and not self.is_blank
        if SURELY_RAISED.match(text) and not (is_named or text.startswith("nccl")):
            return False
        if not text.startswith(("frame #", "<omitting")):
            self.lines.append(text)
        return True
