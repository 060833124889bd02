"""Notes the tokens of passes without gradients, and whether a pass with gradients has the same."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ...checks import dropped
from ..callers import user_place
from ..divided_data import tensors_in
from .copies import Copy, copied
from .loss_inputs import is_plain
from .reporting import report
from .stacks import Running

MOST = 16
"""Maximum passes to keep."""
TOKENS = 256
"""Tokens of a pass to compare."""
LEAST = 8
"""Tokens of a pass that isn't equal to another by chance."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass with dropout.

    Attributes:
        shape: of its tokens.
        tokens: the first of them.
        random: digest of the random states before.
        model: the class of the model.
        share: the share of elements that are dropped.
        where: the user's line.
    """

    shape: tuple[int, ...]
    tokens: Copy
    random: str
    model: str
    share: float
    where: str


class Compared:
    """Passes of the trained model in the first steps."""

    def __init__(self) -> None:
        self._noted: list[Pass] = []
        self._pairs: list[tuple[Pass, Pass]] = []
        self._last: tuple[int, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether passes with gradients are to be compared."""
        return bool(self._noted)

    def untrained(self, now: Running, given: Any, share: float) -> None:
        """Notes a pass without gradients."""
        seen = None if len(self._noted) == MOST else self._seen(now, given, share)
        if seen is not None:
            self._noted.append(seen)

    def trained(self, now: Running, given: Any) -> None:
        """Compares a pass with gradients with those before; reports earlier ones."""
        seen = self._seen(now, given, 0.0)
        if seen is not None:
            self._pairs += [(one, seen) for one in self._noted if one.shape == seen.shape]
        waiting = []
        for one, other in self._pairs:
            if not (one.tokens.is_there and other.tokens.is_there):
                waiting.append((one, other))
                continue
            tokens = one.tokens.parts()[0]
            # Equal states are put back on purpose, so that the same elements are dropped.
            is_same = tokens == other.tokens.parts()[0] and one.random != other.random
            if is_same and len(set(tokens)) > 2:
                report(dropped.unlike_trained(one.model, one.share), where=one.where)
                self._noted, waiting = [], []
                break
        self._pairs = waiting[-MOST:]

    def _seen(self, now: Running, given: Any, share: float) -> Pass | None:
        """A pass at its first dropout; None at others, or without tokens."""
        import torch

        rows = (each for each in tensors_in((now.args, now.kwargs)) if is_plain(each))
        ids = next((each for each in rows if each.ndim == 2 and each.dtype is torch.int64), None)
        if ids is None or ids.numel() < LEAST:
            return None
        name = (id(ids), ids.data_ptr(), torch.is_grad_enabled())
        if name == self._last:
            return None
        self._last = name
        tokens = copied([ids.reshape(-1)[:TOKENS]])
        if tokens is None:
            return None
        kind = type(getattr(now.outermost, "module", now.outermost)).__name__
        return Pass(tuple(ids.shape), tokens, _random(given), kind, share, user_place())


compared = Compared()
"""Those of this process."""


def _random(tensor: Any) -> str:
    """Digest of torch's random states of the host and a tensor's device."""
    import torch

    states = [torch.get_rng_state()]
    device = getattr(tensor, "device", None)
    if device is not None and device.type != "cpu":
        states.append(getattr(torch, device.type).get_rng_state(device))
    return blake2b(b"".join(state.numpy().tobytes() for state in states), digest_size=8).hexdigest()
