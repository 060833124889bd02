"""The frames of a link: a payload after its length and, if there is a key, before a tag.

The tag is an HMAC over the frame's number, its length and its payload with the key of its
direction, which reveals frames that were changed, repeated, dropped or sent back.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field

from ..core.quantities import count_of

LENGTH = struct.Struct("!I")
NUMBER = struct.Struct("!Q")
TAG = 32


@dataclass(slots=True)
class Direction:
    """One direction of a link.

    Attributes:
        key: of the tags; empty for none.
        count: frames so far.
    """

    key: bytes = field(repr=False)
    count: int = 0

    def sealed(self, payload: bytes) -> bytes:
        """The next frame, of a payload."""
        head = LENGTH.pack(len(payload))
        return head + payload + self._tag(head, payload)

    def opened(self, buffer: bytearray, most: int) -> bytes | None:
        """Takes the next frame off a buffer; returns its payload, None while it isn't complete.

        Raises:
            ValueError: it is too long, or its tag is wrong.
        """
        if len(buffer) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(buffer)
        if length > most:
            raise ValueError(f"a message of {count_of(length, 'byte')}, and {most:,} are allowed")
        start, end = LENGTH.size, LENGTH.size + length
        whole = end + (TAG if self.key else 0)
        if len(buffer) < whole:
            return None
        head, payload, tag = buffer[:start], bytes(buffer[start:end]), buffer[end:whole]
        del buffer[:whole]
        if not hmac.compare_digest(bytes(tag), self._tag(bytes(head), payload)):
            raise ValueError("a message that was changed or repeated on its way")
        return payload

    def _tag(self, head: bytes, payload: bytes) -> bytes:
        """The tag of the next frame; empty without a key."""
        number = NUMBER.pack(self.count)
        self.count += 1
        return hmac.digest(self.key, number + head + payload, "sha256") if self.key else b""
